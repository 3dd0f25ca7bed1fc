// The message about a submission agrees with the counts of the server: for every policy, every combination of faults, and one to four clicks,
// concurrent and sequential. Requests go to the real service, without a page.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { guardedMessage, handlerNote, POLICY_NOTES, unguardedMessage } from "../assets/messages.js";
import { read } from "../assets/request_timeline.js";
import { startService } from "./shop.mjs";

let service;
before(async () => (service = await startService()));
after(() => service.stop());

const POLICIES = ["remembered", "token", "key", "interval", "unguarded"];
const FAULTS = ["", "slow", "fails", "loses", "slow, fails", "slow, loses", "fails, loses", "slow, fails, loses"];
const CLICKS = [1, 2, 3, 4];

/** A visitor with one submission, sent like the page sends it. */
class Customer {
  static async come(policy) {
    const page = await fetch(`${service.url}/`);
    const customer = new Customer();
    const cookie = page.headers.get("set-cookie").split(";")[0];
    const token = policy === "remembered" || policy === "token" ? (await (await fetch(`${service.url}/token`, { method: "POST" })).json()).token : null;
    const headers = { cookie, ...(policy === "key" && { "idempotency-key": crypto.randomUUID() }) };
    const order = { item: "tea", quantity: "1", name: "Ada", ...(token && { _onceward: token }) };
    return Object.assign(customer, { policy, headers, order, answers: [] });
  }

  async click(mode, changed = {}) {
    const headers = { ...this.headers, ...(mode && { "demo-handler": mode }) };
    const body = new URLSearchParams({ ...this.order, ...changed });
    const sent = fetch(`${service.url}/demo/orders/${this.policy}`, { method: "POST", headers, body });
    this.answers.push(await sent.then(read).catch(() => ({ kind: "lost" })));
  }

  async tally() {
    return (await (await fetch(`${service.url}/demo/state`, { headers: this.headers })).json()).tally;
  }

  get message() {
    return (this.policy === "unguarded" ? unguardedMessage : guardedMessage)(this.policy, this.answers);
  }
}

/** The number before a phrase, or 0. */
function number(text, phrase) {
  return Number(new RegExp(`(\\d+) (?:more )?${phrase}`).exec(text)?.[1] ?? 0);
}

/** Asserts that a sentence about the guarded form agrees with the server and with itself. */
function assertTrue(text, { policy, answers }, tally) {
  const lost = answers.filter(({ kind }) => kind === "lost").length;
  const numbers = /^Orders? ([\d, and]+) (?:is|are) placed/.exec(text)?.[1].match(/\d+/g)?.map(Number) ?? [];
  const isOrdered = numbers.length > 0;
  if (isOrdered) assert.ok(numbers.every((number) => number <= tally.guarded), "the order exists");
  if (/is placed, once/.test(text)) assert.equal(tally.guarded, 1);
  if (/Nothing was ordered|Correct it|valid again|free again|not count as a duplicate/.test(text)) assert.equal(tally.guarded, 0);
  if (tally.guarded === 0) assert.ok(!isOrdered && !/counts once/.test(text));
  if (tally.guarded > 0 && !isOrdered) assert.ok(lost > 0 && /^(Response|\d+ responses) lost/.test(text), "only a lost response leaves it open");
  assert.equal(number(text, "clicks? (?:was|were) rejected") || (/^Rejected/.test(text) ? answers.length : 0), tally.refused, "rejected");
  assert.equal(number(text, "clicks? received (?:the same response|it again)"), tally.replayed, "replayed");
  const failed = number(text, "clicks? failed") || (/Nothing was ordered|Correct it/.test(text) ? 1 : 0);
  assert.equal(failed, tally.failed, "failed");
  assert.doesNotMatch(text, /still running/, "every request has ended");
  assert.ok(!(isOrdered && /again:/.test(text)), "a placed order must not be sent again");
  if (policy !== "interval") assert.ok(tally.guarded <= 1);
}

/** The same for the other form. */
function assertTrueUnguarded(text, { answers }, tally) {
  const lost = answers.filter(({ kind }) => kind === "lost").length;
  const said = number(text, "orders?\\b") || (/one order\.$/.test(text) ? 1 : 0);
  assert.equal(/may be \d+ orders\.$/.test(text) ? said : said + lost, tally.unguarded, "orders, or possible orders");
  assert.equal(/there may be|may be an order|may be orders|There may be/.test(text), lost > 0, "possible orders are mentioned");
  if (/Nothing was ordered/.test(text)) assert.equal(tally.unguarded, 0);
}

async function check(customer, what) {
  const [text, tally] = [customer.message, await customer.tally()];
  const isTrue = customer.policy === "unguarded" ? assertTrueUnguarded : assertTrue;
  try {
    assert.match(text, /^[A-Z0-9].*[.?]$/);
    assert.doesNotMatch(text, /undefined|null|NaN|  |\.\.|token_|in_progress/);
    isTrue(text, customer, tally);
  } catch (error) {
    throw new Error(`${what}: ${JSON.stringify(text)} against ${JSON.stringify(tally)}: ${error.message}`);
  }
}

/** Runs every combination, 24 at a time: the demo accepts 200 orders in flight. */
async function everywhere(run) {
  const all = POLICIES.flatMap((policy) => FAULTS.flatMap((mode) => CLICKS.map((clicks) => [policy, mode, clicks])));
  const workers = Array.from({ length: 24 }, async () => {
    for (let next = all.shift(); next; next = all.shift()) await run(...next);
  });
  await Promise.all(workers);
}

test("the message after concurrent clicks agrees with the server", async () => {
  await everywhere(async (policy, mode, clicks) => {
    const customer = await Customer.come(policy);
    await Promise.all(Array.from({ length: clicks }, () => customer.click(mode)));
    await check(customer, `${policy} [${mode}] × ${clicks}`);
  });
});

test("the message after sequential clicks, and after one more without faults, agrees with the server", async () => {
  await everywhere(async (policy, mode, clicks) => {
    const customer = await Customer.come(policy);
    for (let click = 0; click < clicks; click++) {
      await customer.click(mode);
      await check(customer, `${policy} [${mode}] click ${click + 1}`);
    }
    await customer.click("");
    await check(customer, `${policy} [${mode}] × ${clicks}, then without faults`);
  });
});

test("the message after clicks with different faults agrees with the server", async () => {
  const pairs = FAULTS.flatMap((first) => FAULTS.map((second) => [first, second]));
  await Promise.all(POLICIES.map(async (policy) => {
    for (const [first, second] of pairs.filter(([first, second]) => !`${first}${second}`.includes("slow"))) {
      const customer = await Customer.come(policy);
      await customer.click(first);
      await customer.click(second);
      await check(customer, `${policy} [${first}] [${second}]`);
    }
  }));
});

test("the message after an invalid order says how to correct it", async () => {
  for (const policy of POLICIES) {
    const customer = await Customer.come(policy);
    for (let click = 0; click < 2; click++) await customer.click("", { name: " " });
    assert.match(customer.message, /^Enter a name of up to 40 characters\. (2 clicks failed|1 more click received the same response)\. (Correct it and s|S)end it again\.$/, policy);
    await check(customer, policy);
  }
});

test("the message after an expired interval names both orders", () => {
  const executed = (order) => ({ kind: "executed", status: 201, order, text: "" });
  assert.equal(guardedMessage("interval", [executed(1), executed(2)]), "Orders 1 and 2 are placed, each more than five seconds after the last.");
  assert.equal(guardedMessage("interval", [{ kind: "lost" }, executed(2)]), "Order 2 is placed. 1 click received no response and may be another order.");
});

test("the note of every combination of settings is one consistent statement", () => {
  const notes = FAULTS.map((mode) => handlerNote(Object.fromEntries(mode.split(", ").map((word) => [word, true]))));
  assert.equal(new Set(notes).size, FAULTS.length);
  FAULTS.forEach((mode, at) => {
    assert.equal(/1\.2 seconds/.test(notes[at]), mode.includes("slow"), notes[at]);
    assert.equal(/places the order/.test(notes[at]), !mode.includes("fails"), notes[at]);
    assert.equal(/breaks/.test(notes[at]), mode.includes("loses") && !mode.includes("fails"), notes[at]);
  });
  assert.equal(Object.keys(POLICY_NOTES).length, 4);
});

// A plain HTTP server in Node that pays once, however often it is asked: by asking Onceward first.
//
//     ONCEWARD_URL=http://127.0.0.1:8080 LEDGER=payments.txt node payments.mjs
//
// A program sends an Idempotency-Key. A page sends the Onceward-Token that it fetched before: its second click gets the first answer.
// It renews its claim while it works. If it dies in the middle, nobody can tell whether it has paid, and the payment is not made again
// before an operator has settled it. With RETRYABLE=1 it is made again once the lease has expired, and then perhaps twice.
// Nothing but what Node has. It listens on a free port, and says on which.

import { createHash, randomUUID } from "node:crypto";
import { appendFile } from "node:fs/promises";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const { ONCEWARD_URL, ONCEWARD_API_KEY, LEDGER, RETRYABLE } = process.env;
const LEASE = 2000; // milliseconds
// One answer that does not come must not cost the claim: so it is given up, and asked for again, well within the lease.
const PATIENCE = Math.floor(LEASE / 3);
const UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Reads a duration as Onceward writes it: `333ms`, `5s`. */
function milliseconds(duration) {
  const [, number, unit] = duration.match(/^(\d+)(\D+)$/);
  return number * UNITS[unit];
}

/** Posts to Onceward. If that gives no whole answer in time, nothing is known, and nothing runs. */
async function ask(path, body) {
  const headers = { "content-type": "application/json" };
  if (ONCEWARD_API_KEY) headers.authorization = `Bearer ${ONCEWARD_API_KEY}`;
  try {
    const signal = AbortSignal.timeout(PATIENCE);
    const told = await fetch(ONCEWARD_URL + path, { method: "POST", headers, body: JSON.stringify(body), signal });
    return { status: told.status, wait: told.headers.get("retry-after"), body: await told.text() };
  } catch {
    return { status: 503, wait: "1", body: '{"code":"store_unavailable"}' };
  }
}

/** Claims a key. A claim whose answer was lost may have been made: asked for under the same attempt, it is given again. */
async function claim(asked) {
  const attempt = randomUUID();
  const deadline = Date.now() + LEASE;
  for (;;) {
    const told = await ask("/claim", { ...asked, attempt });
    if (told.status < 500 || Date.now() > deadline) return told;
    await sleep(PATIENCE / 2);
  }
}

/** Whether Onceward has taken in what it was told. Without the right key it has not. */
function isHeard(status) {
  return status < 500 && status !== 401;
}

/** The right to run under a key, renewed until the run has ended and Onceward has heard how. */
class Claim {
  #lastWord;
  #over = false;
  #turn = Promise.resolve();

  constructor({ pass, renew_every }) {
    this.pass = pass;
    // Twice as often as Onceward asks for it, since one renewal may get stuck.
    this.pause = milliseconds(renew_every) / 2;
    this.#keep();
  }

  async #keep() {
    for (; !this.#over; await this.#say()) await sleep(this.pause);
  }

  /** Says how the run has ended. As long as that is not heard, or not known, says that the claim is still held. */
  #say() {
    return (this.#turn = this.#turn.then(async () => {
      if (this.#over) return;
      if (this.#lastWord && isHeard((await ask(...this.#lastWord)).status)) this.#over = true;
      else await ask("/claim/renew", { pass: this.pass });
    }));
  }

  complete(reply) {
    this.#lastWord = ["/claim/complete", { pass: this.pass, reply }];
    return this.#say();
  }

  release() {
    this.#lastWord = ["/claim/release", { pass: this.pass }];
    return this.#say();
  }
}

/** Runs under a claim. Gives what is answered. */
async function run(claim, work) {
  let body;
  try {
    body = JSON.stringify(await work());
  } catch {
    // Its effect is the last thing that it does, so there was none.
    await claim.release();
    return { status: 500, headers: [], body: '{"code":"internal"}' };
  }
  const headers = [["content-type", "application/json"]];
  await claim.complete({ status: 201, headers, body: Buffer.from(body).toString("base64") });
  return { status: 201, headers, body };
}

/** What must happen once. */
async function pay(order) {
  await sleep(1000 * (order.takes ?? 0));
  await appendFile(LEDGER, `${order.order}\n`);
  return { paid: order.order };
}

async function handle(request, body) {
  const { "idempotency-key": key, "onceward-token": token } = request.headers;
  if (!key && !token) return { status: 400, headers: [], body: '{"code":"key_missing"}' };
  const told = await claim({
    ...(key ? { key, at_most_once: !RETRYABLE } : { token }),
    action: "POST /payments",
    subject: request.headers["x-user"] ?? "anonymous",
    fingerprint: createHash("sha256").update(body).digest("hex"),
    lease: `${LEASE}ms`,
  });
  if (told.status === 401) {
    // That is for the operator to set right: the customer has done nothing wrong, and may come again.
    console.error("Onceward rejects this backend: ONCEWARD_API_KEY is missing or wrong");
    return { status: 503, headers: [["retry-after", "1"]], body: '{"code":"store_unavailable"}' };
  }
  if (told.status !== 200) {
    return { status: told.status, headers: told.wait ? [["retry-after", told.wait]] : [], body: told.body };
  }
  const answer = JSON.parse(told.body);
  if (answer.outcome === "replay") {
    const { reply } = answer;
    const headers = [...reply.headers, ["idempotent-replayed", "true"]];
    return { status: reply.status, headers, body: Buffer.from(reply.body, "base64") };
  }
  return run(new Claim(answer), () => pay(JSON.parse(body)));
}

async function serve(request, response) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const { status, headers, body } = await handle(request, Buffer.concat(chunks));
  response.writeHead(status, headers.flat());
  response.end(body);
}

// A client that hangs up in the middle ends its own request, and not the process, in which others are being paid.
const server = createServer((request, response) => serve(request, response).catch(() => response.destroy()));
server.listen(0, "127.0.0.1", 128, () => console.log(`http://127.0.0.1:${server.address().port}`));

// The client by itself: claims by hand, functions, tokens, and the end of a process.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { inspect } from "node:util";
import { NotApplied, Onceward, stateEffect, Unknown } from "onceward-node";
import { startProxy } from "./stage/faulty_proxy.mjs";
import { API_KEY, startService } from "./stage/service.mjs";
import { until } from "./stage/shop.mjs";

const PAYMENT = { key: "k", action: "POST /orders", subject: "anonymous" };

async function stage(t, plan) {
  const service = await startService(t);
  const proxy = await startProxy(t, service.url, plan);
  const lines = [];
  const onceward = new Onceward(proxy.url, { apiKey: API_KEY, log: (line) => lines.push(line) });
  return { service, proxy, lines, onceward };
}

test("function runs once, and a duplicate receives its value", async (t) => {
  const { onceward } = await stage(t);
  let runs = 0;
  const work = async () => ({ runs: (runs += 1) });
  assert.deepEqual([await onceward.claim(PAYMENT, work), await onceward.claim(PAYMENT, work)], [{ runs: 1 }, { runs: 1 }]);
  assert.deepEqual([await onceward.claim({ ...PAYMENT, key: "none" }, () => undefined), await onceward.claim({ ...PAYMENT, key: "none" }, work)], [undefined, undefined]);
  const cycle = {};
  cycle.self = cycle;
  assert.equal(await onceward.claim({ ...PAYMENT, key: "cycle" }, () => cycle), cycle, "the effect is not hidden");
  await assert.rejects(onceward.claim({ ...PAYMENT, key: "cycle" }, work), { name: "Rejected", code: "reply_not_kept" });
  assert.equal(runs, 1);
});

test("error of a function settles its claim by its type", async (t) => {
  const { onceward, service } = await stage(t);
  const fail = (error) => () => {
    throw error;
  };
  const cases = [
    ["plain", {}, fail(new Error("e")), "running"],
    ["unknown", {}, fail(new Unknown()), "running"],
    ["not_applied", {}, fail(new NotApplied()), "absent"],
    ["retryable", { atMostOnce: false }, fail(new Error("e")), "absent"],
    ["stated", {}, async () => (stateEffect("applied"), fail(new Error("e"))()), "done"],
    ["settled", {}, async (claim) => (await claim.release(), fail(new Error("e"))()), "absent"],
  ];
  for (const [key, more, work, state] of cases) {
    await assert.rejects(onceward.claim({ ...PAYMENT, ...more, key }, work));
    assert.equal(await service.state(key), state, key);
  }
  await onceward.claim({ ...PAYMENT, key: "free" }, () => stateEffect("not_applied"));
  assert.equal(await service.state("free"), "absent");
});

test("consumer runs once per message", async (t) => {
  const { onceward } = await stage(t);
  const seen = [];
  const consume = onceward.once(({ id }) => ({ ...PAYMENT, key: id }), async (message) => seen.push(message));
  for (const id of ["a", "b", "a"]) await consume({ id });
  assert.deepEqual(seen, [{ id: "a" }, { id: "b" }]);
});

test("claim by hand is renewed, completed and replayed", async (t) => {
  const { onceward, proxy } = await stage(t);
  const claim = await onceward.claim({ ...PAYMENT, lease: 400 });
  await until("the claim is renewed", () => proxy.count("/claim/renew") > 8);
  assert.equal(await claim.complete({ status: 202, headers: [["x-a", "1"]], body: Buffer.from([0, 255]) }), "recorded");
  const renewals = proxy.count("/claim/renew");
  const { outcome, reply } = await onceward.claim(PAYMENT);
  assert.deepEqual([outcome, reply.status, [...reply.body]], ["replay", 202, [0, 255]]);
  await sleep(50);
  assert.equal(proxy.count("/claim/renew"), renewals, "not renewed any more");
  await assert.rejects(claim.release(), /settled already/);
});

test("lookup by hand returns the stored reply, and changes nothing", async (t) => {
  const { onceward, proxy, service } = await stage(t, (path, count) => (path === "/outcome" && count === 0 ? "lose" : undefined));
  await assert.rejects(onceward.lookUp(PAYMENT), { name: "Rejected", code: "not_found" });
  assert.deepEqual([await service.state("k"), proxy.count("/claim")], ["absent", 0]);
  const claim = await onceward.claim(PAYMENT);
  await assert.rejects(onceward.lookUp(PAYMENT), { code: "in_progress" });
  await claim.complete({ status: 202, headers: [["x-a", "1"]], body: Buffer.from([0, 255]) });
  assert.deepEqual(await onceward.lookUp(PAYMENT), { status: 202, headers: [["x-a", "1"]], body: Buffer.from([0, 255]) });
  await assert.rejects(onceward.lookUp({ ...PAYMENT, subject: "bob" }), { code: "not_found" });
  const { token } = await onceward.issue();
  await assert.rejects(onceward.lookUp({ token, action: "a", subject: "s" }), { code: "not_found" });
  await onceward.claim({ token, action: "a", subject: "s" }, () => undefined);
  assert.equal((await onceward.lookUp({ token, action: "a", subject: "s" })).status, 204);
});

test("claim that is disposed of without a result is unknown", async (t) => {
  const { onceward, service } = await stage(t);
  const claim = await onceward.claim({ ...PAYMENT, lease: 300 });
  await claim[Symbol.asyncDispose]();
  await until("the lease expires", async () => (await service.state("k")) === "unknown");
  await assert.rejects(onceward.claim(PAYMENT), { code: "outcome_unknown" });
});

test("lost claim aborts its signal, and completes as lost", async (t) => {
  const { onceward, proxy, lines } = await stage(t);
  const intent = { ...PAYMENT, lease: 300, atMostOnce: false };
  proxy.plan = (path) => (path === "/claim/renew" ? 503 : undefined);
  const claim = await onceward.claim(intent);
  let other;
  await until("the lease expires", async () => (other = await onceward.claim(intent).catch(() => undefined)));
  proxy.plan = () => undefined;
  await until("the claim is lost", () => claim.signal.aborted);
  assert.ok(lines.some((line) => line.includes("claim was lost")));
  assert.equal(await other.complete(), "recorded");
});

test("answers of a gateway are not the verdict of the service", async (t) => {
  const gateway = [302, 404, 409, 429];
  const { onceward, proxy, service } = await stage(t, (path, count) => (path === "/claim" ? undefined : gateway[count]));
  const claim = await onceward.claim(PAYMENT);
  assert.equal(await claim.complete({ status: 201 }), "recorded");
  assert.deepEqual([proxy.count("/claim/complete"), await service.state("k"), claim.signal.aborted], [5, "done", false]);
});

test("renewal that a gateway rejects does not lose the claim", async (t) => {
  const { onceward, proxy } = await stage(t, (path, count) => (path === "/claim/renew" && count < 4 ? 409 : undefined));
  const claim = await onceward.claim({ ...PAYMENT, lease: 2000 });
  await until("the claim is renewed", () => proxy.count("/claim/renew") > 4);
  assert.equal(claim.signal.aborted, false);
  assert.equal(await claim.complete(), "recorded");
});

test("release whose response was lost is not followed by a renewal", async (t) => {
  const { onceward, proxy, service } = await stage(t, (path) => (path === "/claim/release" ? "lose" : undefined));
  const claim = await onceward.claim({ ...PAYMENT, lease: 600 });
  assert.equal(await claim.release(), "pending");
  assert.equal(await service.state("k"), "absent");
  proxy.plan = () => undefined;
  const count = proxy.count("/claim/release");
  await until("the release is repeated", () => proxy.count("/claim/release") > count);
  const at = proxy.seen.findIndex(({ path }) => path === "/claim/release");
  assert.ok(proxy.seen.slice(at).every(({ path }) => path === "/claim/release"));
  assert.equal(await service.state("k"), "absent");
});

test("slow service is not waited for longer than the timeout", async (t) => {
  const { onceward } = await stage(t, () => ({ delay: 3000 }));
  const start = performance.now();
  await assert.rejects(onceward.claim({ ...PAYMENT, lease: 600 }), { code: "store_unavailable" });
  assert.ok(performance.now() - start < 2000);
});

test("token is issued, redeemed once, and valid again after its release", async (t) => {
  const { onceward } = await stage(t, (path, count) => (count === 0 ? "lose" : undefined));
  const { token, expires_in } = await onceward.issue({ action: "POST /orders", ttl: 60_000 });
  assert.ok(expires_in <= 60);
  const intent = { token, action: "POST /orders", subject: "alice" };
  const redeemed = await onceward.redeem(intent);
  await assert.rejects(onceward.redeem(intent), { code: "token_used" });
  assert.equal(await redeemed.release(), true);
  await onceward.redeem(intent);
  await assert.rejects(onceward.issue({ ttl: 1 }), { code: "bad_request" });
});

test("release of a token that reaches no service is not recorded", async (t) => {
  const { onceward, service, proxy } = await stage(t);
  const { token } = await onceward.issue();
  const redeemed = await onceward.redeem({ token, subject: "alice", action: "POST /orders" });
  proxy.plan = () => "drop";
  assert.equal(await redeemed.release(), false);
  proxy.plan = () => 302;
  assert.equal(await redeemed.release(), false);
  assert.ok(service.url);
});

test("misuse is an error of the caller", async (t) => {
  const { onceward } = await stage(t);
  await assert.rejects(onceward.claim({ key: "k", action: "a", subject: "" }), /subject is required/);
  assert.throws(() => new Onceward("127.0.0.1:8080"));
  assert.throws(() => new Onceward("redis://127.0.0.1"), /has to look like/);
});

test("held claim does not keep its process alive, and its outcome is unknown", { timeout: 30_000 }, async (t) => {
  const { service, proxy } = await stage(t);
  const program = `import { Onceward } from "onceward-node";
    const onceward = new Onceward("${proxy.url}", { apiKey: "${API_KEY}" });
    await onceward.claim({ key: "k", action: "POST /orders", subject: "anonymous", lease: 3000 });
    console.log("claimed");`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], { cwd: new URL("..", import.meta.url), stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => child.kill("SIGKILL"));
  // With a timer that keeps the process alive, it would renew its claim for an hour.
  assert.deepEqual((await once(child, "exit"))[0], 0);
  await until("the lease expires", async () => (await service.state("k")) === "unknown");
});

test("rejection contains no secret", async (t) => {
  const { onceward } = await stage(t);
  const claim = await onceward.claim(PAYMENT);
  const error = await onceward.claim(PAYMENT).catch((error) => error);
  assert.equal(error.code, "in_progress");
  assert.doesNotMatch(`${error.stack} ${inspect([error, claim, onceward], { depth: 9 })}`, new RegExp(`${API_KEY}|owp1_`));
});

// Faults of the service, of its configuration and of the application that uses this package.

import assert from "node:assert/strict";
import { test } from "node:test";
import express from "express";
import { Onceward, protectKey } from "onceward-node/express";
import * as forFetch from "onceward-node/fetch";
import { post, serve } from "./stage/app.mjs";
import { startProxy } from "./stage/faulty_proxy.mjs";
import { API_KEY, startService } from "./stage/service.mjs";
import { read, until } from "./stage/shop.mjs";

const ORDER = { key: "k", action: "POST /orders", subject: "anonymous" };

async function stage(t, plan, options) {
  const service = await startService(t);
  const proxy = await startProxy(t, service.url, plan);
  const lines = [];
  const onceward = new Onceward(proxy.url, { apiKey: API_KEY, log: (line) => lines.push(line), ...options });
  return { service, proxy, lines, onceward };
}

const problem = (status, code, retry) => ({ problem: { status, code, retry, title: code, detail: code } });

for (const [name, faults, code] of [
  ["were all lost", ["lose"], "redeem_unknown"],
  ["were lost, and then a gateway responds", ["lose", 502], "redeem_unknown"],
  ["are those of a gateway", [502], "redeem_unknown"],
  ["were lost, and then its store is down", ["lose", problem(503, "store_unavailable", "same")], "redeem_unknown"],
  ["say so", [problem(503, "redeem_unknown", "new_token")], "redeem_unknown"],
  ["say that its store is down", [problem(503, "store_unavailable", "same")], "store_unavailable"],
]) {
  test(`redeem whose answers ${name} is ${code}`, async (t) => {
    const { onceward, service } = await stage(t, (_, count) => faults[Math.min(count, faults.length - 1)], { timeout: 1000 });
    const { token } = await new Onceward(service.url).issue();
    const error = await onceward.redeem({ token, subject: "alice" }).catch((error) => error);
    assert.deepEqual([error.code, error.problem?.status, error.problem?.retry], [code, 503, code === "redeem_unknown" ? "new_token" : "same"]);
  });
}

test("redeem that reaches no service is store_unavailable", async (t) => {
  const { onceward, service, proxy } = await stage(t);
  const { token } = await onceward.issue();
  service.stop();
  const nowhere = new Onceward(service.url, { log: () => undefined });
  await until("the service is gone", async () => (await fetch(service.url).then(() => false, () => true)));
  await assert.rejects(nowhere.redeem({ token, subject: "alice" }), { code: "store_unavailable" });
  assert.equal(proxy.count("/token/redeem"), 0);
});

test("request whose claim was granted while the service was frozen runs afterwards", { timeout: 60_000 }, async (t) => {
  const { onceward, service } = await stage(t);
  const app = express();
  let runs = 0;
  app.post("/orders", protectKey(onceward, { subject: () => "anonymous", lease: 2000 }), (_, response) => void response.status(201).send(`${(runs += 1)}`));
  const url = `${await serve(t, app)}/orders`;
  await post(url, "", {}, "first");
  service.child.kill("SIGSTOP");
  assert.deepEqual((await post(url, "")).summary, [503, "store_unavailable"]);
  service.child.kill("SIGCONT");
  const seen = new Set();
  await until("the request runs", async () => {
    const { summary } = await post(url, "");
    seen.add(summary.join(" "));
    return summary[1] === "executed";
  });
  seen.delete("201 executed");
  seen.delete("409 in_progress");
  assert.deepEqual([[...seen], runs], [[], 2]);
});

for (const fault of [problem(400, "bad_request", "no"), problem(403, "blocked", "no"), 401, 502]) {
  test(`claim whose answer was lost before ${fault.problem?.code ?? fault} is released`, async (t) => {
    // The claim is granted, and what follows is not about it.
    const plan = (path, count) => (path !== "/claim" ? undefined : count === 0 ? "lose" : count < 4 ? fault : undefined);
    const { onceward, proxy, service } = await stage(t, plan, { timeout: 1000 });
    await onceward.claim({ ...ORDER, lease: 3000 }).then((claim) => claim.release(), () => undefined);
    await until("the claim is released", () => proxy.count("/claim/release") === 1);
    await until("the key is free", async () => (await service.state("k")) === "absent");
  });
}

test("claim whose answer was lost before another holds the key is not repeated", async (t) => {
  const { onceward, proxy, service } = await stage(t, (path, count) => (path === "/claim" && count === 0 ? "drop" : undefined));
  const other = await new Onceward(service.url, { apiKey: API_KEY }).claim(ORDER);
  await assert.rejects(onceward.claim({ ...ORDER, lease: 3000 }), { code: "in_progress" });
  await until("it is claimed once more", () => proxy.count("/claim") === 3);
  assert.equal(await other.complete({ status: 201 }), "recorded");
  assert.equal(proxy.count("/claim/release"), 0);
});

test("result that is no reply is an error, and the claim goes on", async (t) => {
  const { onceward, proxy } = await stage(t);
  const claim = await onceward.claim({ ...ORDER, lease: 600 });
  for (const reply of [{ status: 201, headers: { location: "/1" } }, { status: 201, headers: [["x-count", 1]] }, { headers: [] }]) {
    await assert.rejects(claim.complete(reply), { name: "TypeError" });
  }
  const count = proxy.count("/claim/renew");
  // An unhandled rejection would end the test.
  await until("the claim is renewed", () => proxy.count("/claim/renew") > count + 1);
  assert.equal(await claim.complete({ status: 201, headers: [["location", "/1"]] }), "recorded");
});

test("status that is text is stored, and one that is no whole number leaves the response as it is", async (t) => {
  const { onceward, lines } = await stage(t);
  const app = express();
  app.post("/orders/:status", protectKey(onceward, { subject: () => "anonymous" }), (request, response) => {
    response.statusCode = request.params.status === "text" ? "201" : 201.5;
    response.end("made");
  });
  const url = await serve(t, app);
  const send = async (path) => {
    const { status, outcome, text } = await post(`${url}/orders/${path}`, "", {}, path);
    return [status, outcome, status === 201 ? text : ""];
  };
  assert.deepEqual([await send("text"), await send("text")], [[201, "executed", "made"], [201, "replayed", "made"]]);
  assert.deepEqual(lines, []);
  assert.deepEqual([await send("part"), await send("part")], [[201, "executed", "made"], [409, "reply_not_kept", ""]]);
  assert.match(lines.join(), /^a response is not stored, since its status is 201\.5/);
});

for (const [kind, log] of [["throws", () => { throw new Error("the disk is full"); }], ["rejects", async () => { throw new Error("the disk is full"); }]]) {
  test(`log that ${kind} does not disturb a claim`, async (t) => {
    const { onceward, proxy, service } = await stage(t, (path) => (path === "/claim/complete" ? 503 : undefined), { log });
    const claim = await onceward.claim({ ...ORDER, lease: 3000 });
    assert.equal(await claim.complete({ status: 201 }), "pending");
    proxy.plan = () => undefined;
    await until("the result is recorded", async () => (await service.state("k")) === "done");
  });
}

test("reply that a gateway rejects with 400 is stored later", async (t) => {
  const { onceward, proxy } = await stage(t, (path, count) => (path === "/claim/complete" && count === 0 ? 400 : undefined));
  const claim = await onceward.claim(ORDER);
  assert.equal(await claim.complete({ status: 201, body: Buffer.from("made") }), "recorded");
  assert.equal(proxy.count("/claim/complete"), 2);
  assert.equal((await onceward.lookUp(ORDER)).body.toString(), "made");
});

test("long fingerprint is compared as a whole", async (t) => {
  const { onceward } = await stage(t);
  const run = (content) => onceward.claim({ ...ORDER, fingerprint: content }, () => "made");
  const content = JSON.stringify({ text: "x".repeat(100_000) });
  assert.deepEqual([await run(content), await run(content)], ["made", "made"]);
  await assert.rejects(run(`${content} `), { code: "key_reused" });
});

test("subject may be a number, and 0 is one", async (t) => {
  const { onceward } = await stage(t);
  const handler = (subject) => forFetch.protectKey(onceward, { subject: () => subject }, () => new Response("made"));
  const send = async (subject) => (await read(await handler(subject)(new Request("http://shop/orders", { method: "POST", headers: { "idempotency-key": "k" } })))).outcome;
  const outcomes = [];
  for (const subject of [0, 0, 7, "7", 7n, undefined, null, ""]) outcomes.push(await send(subject));
  assert.deepEqual(outcomes, ["executed", "replayed", "executed", "replayed", "replayed", "unauthorized", "unauthorized", "unauthorized"]);
  for (const subject of [{ id: 7 }, true, NaN, [7]]) await assert.rejects(send(subject), { name: "TypeError", message: /subject has to be text or a number/ });
  assert.equal((await onceward.lookUp({ ...ORDER, subject: 7 })).status, 200);
  for (const [given, subject] of [["7", 7], [7, "7"], [7n, 7]]) {
    const { token } = await onceward.issue({ subject: given });
    await onceward.redeem({ token, subject, action: "a" });
    await assert.rejects(onceward.redeem({ token: (await onceward.issue({ subject: given })).token, subject: 8, action: "a" }), { name: "Rejected" });
  }
});

test("onError of the Fetch API may state the effect", async (t) => {
  const { onceward } = await stage(t);
  const onError = (error) => {
    forFetch.stateEffect("not_applied");
    return new Response(error.message, { status: 500 });
  };
  const order = forFetch.protectKey(onceward, { subject: forFetch.anonymous, onError }, () => {
    throw new Error("sold out");
  });
  const { text, outcome } = await read(await order(new Request("http://shop/orders", { method: "POST", headers: { "idempotency-key": "k" } })));
  assert.deepEqual([text, outcome], ["sold out", "not_applied"]);
});

test("two different tokens are rejected, and neither is used", async (t) => {
  const { onceward } = await stage(t);
  const order = forFetch.protectToken(onceward, { subject: forFetch.anonymous }, () => new Response("made"));
  const [one, other] = [(await onceward.issue()).token, (await onceward.issue()).token];
  const send = async (header, field) => {
    const body = new URLSearchParams({ _onceward: field });
    const { status, outcome } = await read(await order(new Request("http://shop/orders", { method: "POST", headers: { "onceward-token": header }, body })));
    return [status, outcome];
  };
  assert.deepEqual(await send(one, other), [400, "token_malformed"]);
  assert.deepEqual([await send(one, one), await send("", other)], [[200, "executed"], [200, "executed"]]);
});

test("token that is too large for the service is the fault of the client", async (t) => {
  const { onceward, lines } = await stage(t);
  const order = forFetch.protectToken(onceward, { subject: forFetch.anonymous }, () => assert.fail("the handler ran"));
  const body = new URLSearchParams({ _onceward: "x".repeat(20_000) });
  const { status, outcome, headers } = await read(await order(new Request("http://shop/orders", { method: "POST", body })));
  assert.deepEqual([status, outcome, headers.get("onceward-retry"), lines], [413, "body_too_large", "no", []]);
});

test("service that does not respond leaves one line in the log", async (t) => {
  const { onceward, service, lines } = await stage(t, () => "drop", { timeout: 300 });
  for (const key of ["a", "b", "c"]) await assert.rejects(onceward.claim({ ...ORDER, key, lease: 300 }), { code: "store_unavailable" });
  assert.deepEqual([lines.length, /^Onceward does not respond \(\w+\), so nothing runs; check the service/.test(lines[0])], [1, true], lines.join());
  assert.ok(service.url);
});

test("mistakes of the configuration are in the log, and the client receives store_unavailable", async (t) => {
  const { service, lines } = await stage(t);
  const log = (line) => lines.push(line);
  const send = async (path, options) => {
    const onceward = new Onceward(service.url + path, { apiKey: API_KEY, log });
    const order = forFetch.protectKey(onceward, { subject: forFetch.anonymous, ...options }, () => assert.fail("the handler ran"));
    const { status, outcome } = await read(await order(new Request("http://shop/orders", { method: "POST", headers: { "idempotency-key": "k" } })));
    return [status, outcome, onceward];
  };
  const [misplaced, greedy] = [await send("/onceward", {}), await send("", { lease: 10 * 3_600_000 })];
  assert.deepEqual([misplaced, greedy].map(([status, outcome]) => [status, outcome]), Array(2).fill([503, "store_unavailable"]));
  assert.match(lines[0], /status 404 .*check ONCEWARD_URL/);
  assert.match(lines[1], /check its options, such as `lease`: .*lease/);
  await assert.rejects(misplaced[2].lookUp(ORDER), { code: "store_unavailable" });
  await assert.rejects(greedy[2].claim({ ...ORDER, lease: 10 * 3_600_000 }), { name: "Rejected", code: "bad_request" });
});

// Decisions, compared with those of the library.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { duration, milliseconds } from "../dist/esm/duration.js";
import { effectOfError, effectOfStatus } from "../dist/esm/effect.js";
import { canonicalJson, fingerprint } from "../dist/esm/fingerprint.js";
import { parseKey } from "../dist/esm/key_header.js";
import { outcomeOf } from "../dist/esm/outcome.js";
import { OWN } from "../dist/esm/problem.js";
import { KEPT, keptHeaders, NEVER_KEPT, replyFromWire, replyOfValue, replyToWire, valueOfReply } from "../dist/esm/reply.js";
import { patience, Retries } from "../dist/esm/retries.js";
import { judge, NotApplied, stateEffect, Unknown } from "../dist/esm/statement.js";
import { tokenField } from "../dist/esm/token_field.js";

const repository = new URL("../../../", import.meta.url);
const source = (path) => readFileSync(new URL(path, repository), "utf8");

test("effect of a status is that of the library, for every policy", () => {
  const range = (from, to, without = []) => [...Array(to - from).keys()].map((at) => at + from).filter((status) => !without.includes(status));
  const statuses = (policy, effect) => range(100, 600).filter((status) => effectOfStatus(policy, status) === effect);
  const effects = (policy) => ({ applied: statuses(policy, "applied"), not_applied: statuses(policy, "not_applied"), unknown: statuses(policy, "unknown") });
  const free = [401, 403, 425, 429];
  assert.deepEqual(effects("at_most_once"), { applied: range(100, 500, [...free, 408]), not_applied: free, unknown: [408, ...range(500, 600)] });
  const retryable = [401, 403, 408, 425, 429, 500, 501, 503];
  assert.deepEqual(effects("retryable"), { applied: range(100, 500, retryable), not_applied: retryable, unknown: range(500, 600, retryable) });
  assert.deepEqual(effects("token"), { applied: range(100, 400), not_applied: [...range(400, 502), 503], unknown: [502, ...range(504, 600)] });
  const rust = source("guard/src/policy.rs");
  for (const line of ["408 | 500 | 501 | 503 if self.at_most_once => Effect::Unknown", "401 | 403 | 408 | 425 | 429 | 500 | 501 | 503 => Effect::NotApplied", "(_, 400..=501 | 503) => Effect::NotApplied"]) {
    assert.ok(rust.includes(line), `the library has changed: ${line}`);
  }
});

test("error counts like a 500, unless it states an effect", () => {
  assert.deepEqual(["at_most_once", "retryable", "token"].map((policy) => effectOfError(policy, new Error())), ["unknown", "not_applied", "not_applied"]);
  assert.deepEqual([new NotApplied(), new Unknown()].map((error) => effectOfError("at_most_once", error)), ["not_applied", "unknown"]);
  assert.deepEqual([undefined, null, "text"].map((error) => effectOfError("token", error)), ["not_applied", "not_applied", "not_applied"]);
});

test("timeout error is unknown for every policy, also as a cause", () => {
  const causes = (error, depth) => (depth === 0 ? error : new Error("a wrapper", { cause: causes(error, depth - 1) }));
  const named = (members) => Object.assign(new Error("e"), members);
  const timeouts = [
    new DOMException("late", "TimeoutError"),
    new DOMException("stopped", "AbortError"),
    AbortSignal.abort().reason,
    named({ code: "ETIMEDOUT" }),
    named({ code: "UND_ERR_HEADERS_TIMEOUT" }),
    named({ code: "etimedout" }),
    named({ name: "HeadersTimeoutError" }),
    named({ name: "QUERY_TIMEOUT" }),
    { name: "TimeoutError" },
  ];
  const others = [named({ code: 23 }), named({ name: 5 }), named({ code: "ECONNREFUSED" }), new Error("timeout"), { cause: null }, "timeout", undefined];
  const cycle = new Error("e");
  cycle.cause = causes(cycle, 2);
  for (const policy of ["at_most_once", "retryable", "token"]) {
    for (const error of timeouts.flatMap((each) => [each, causes(each, 1), causes(each, 3)])) assert.equal(effectOfError(policy, error), "unknown", error.name);
    for (const error of [...others, cycle]) assert.equal(effectOfError(policy, error), effectOfStatus(policy, 500));
    assert.equal(effectOfError(policy, new NotApplied("reversed", { cause: timeouts[0] })), "not_applied");
    assert.deepEqual([500, 503, 422, 200].map((status) => judge(policy, { error: timeouts[0] }, status)), ["unknown", "unknown", "unknown", "applied"]);
  }
});

test("statement outweighs error, error outweighs status, unless the response is no error", () => {
  const error = new Unknown();
  assert.equal(judge("token", { effect: "applied", error }, 500), "applied");
  assert.equal(judge("token", { error }, 500), "unknown");
  assert.equal(judge("token", { error }, 200), "applied");
  assert.equal(judge("token", { error: new Error() }, 504), "unknown");
  assert.throws(() => stateEffect("applied"), /outside of a request/);
});

test("outcome shows whether a duplicate may run", () => {
  const table = [["applied", "recorded", "executed"], ["applied", "pending", "unprotected"], ["applied", "lost", "unprotected"], ["not_applied", "recorded", "not_applied"], ["not_applied", "pending", "not_released"], ["not_applied", "lost", "unprotected"], ["unknown", undefined, "unknown"]];
  for (const [effect, settled, outcome] of table) assert.equal(outcomeOf(effect, settled), outcome);
});

test("stored headers are those of the library", () => {
  const rust = source("guard/src/reply.rs");
  const names = (constant) => [...rust.match(new RegExp(`const ${constant}: [^=]+= \\[([^\\]]+)\\]`))[1].matchAll(/"([^"]+)"/g)].map(([, name]) => name);
  assert.deepEqual([...KEPT], names("KEPT"));
  assert.deepEqual([...NEVER_KEPT], names("NEVER"));
  const headers = [["Location", "/1"], ["Set-Cookie", "a=1"], ["X-Cost", "2"], ["Onceward-Outcome", "executed"], ["Proxy-Authenticate", "Basic"], ["X-Other", "3"]];
  assert.deepEqual(keptHeaders(headers, ["x-cost", "set-cookie", "onceward-outcome", "proxy-authenticate"]), [["location", "/1"], ["x-cost", "2"]]);
});

test("problems of the package are those of the service", () => {
  const table = source("docs/errors.md");
  for (const [code, [status, retry, title, detail]] of Object.entries(OWN)) assert.ok(table.includes(`| \`${code}\` | ${status} | \`${retry}\` | ${title}. ${detail} |`), code);
});

test("key header is bare or quoted, visible ASCII", () => {
  const good = [["abc", "abc"], [" abc ", "abc"], ['"abc"', "abc"], ['"a,b;c"', "a,b;c"], [String.raw`"a\"b\\"`, String.raw`a"b\ `.trim()], ["x".repeat(255), "x".repeat(255)]];
  for (const [header, key] of good) assert.equal(parseKey(header), key, header);
  for (const header of ["", '""', "a b", "a,b", "a;b", 'a"b', '"abc', '"a"b"', String.raw`"a\b"`, "schlüssel", "x".repeat(256)]) assert.equal(parseKey(header), undefined, header);
});

test("fingerprint covers method, path, query, media type and body, and no boundary", () => {
  const content = { method: "POST", path: "/a", query: "b=1", contentType: "text/plain", body: Buffer.from("c") };
  const same = fingerprint(content);
  assert.equal(fingerprint({ ...content, contentType: "Text/Plain; charset=utf-8" }), same);
  for (const change of [{ method: "PUT" }, { path: "/ab" }, { query: "" }, { contentType: "" }, { body: Buffer.from("d") }, { path: "/a?b", query: "=1" }]) assert.notEqual(fingerprint({ ...content, ...change }), same);
  const form = (mark, value) => ({ ...content, contentType: `multipart/form-data; boundary=${mark}`, body: Buffer.from(`--${mark}\r\n\r\n${value}\r\n--${mark}--\r\n`, "latin1") });
  assert.equal(fingerprint(form("one", "\xff")), fingerprint(form("another-mark", "\xff")));
  assert.notEqual(fingerprint(form("one", "\xff")), fingerprint(form("one", "\xfe")));
  // The same digest as in Python, so that both can stand behind one load balancer.
  assert.equal(same, "311f3266286fe49562ceb9d3a58e8adc72ac89ca369cf0cc34f5daf9d882f496");
  assert.equal(canonicalJson({ b: 2, a: { toString: 1 } }), '{"a":{"toString":1},"b":2}');
  assert.equal(canonicalJson({ b: [{ d: 1, c: 2 }], a: null }), '{"a":null,"b":[{"c":2,"d":1}]}');
});

test("token is found in forms only", () => {
  const urlencoded = "application/x-www-form-urlencoded; charset=utf-8";
  assert.equal(tokenField(urlencoded, Buffer.from("a=1&_onceward=t%31")), "t1");
  assert.equal(tokenField(urlencoded, Buffer.from("a=1&_onceward=")), undefined);
  const part = (head, value) => `--x\r\n${head}\r\n\r\n${value}\r\n`;
  const body = Buffer.from(`${part('Content-Disposition: form-data; name="a"', "_onceward")}${part('content-disposition: form-data; name="_onceward"', "t2")}--x--\r\n`);
  assert.equal(tokenField('multipart/form-data; boundary="x"', body), "t2");
  assert.equal(tokenField("application/json", Buffer.from('{"_onceward":"t"}')), undefined);
});

test("durations round trip", () => {
  assert.deepEqual(["333ms", "5s", "2m", "1h", "1d"].map(milliseconds), [333, 5000, 120_000, 3_600_000, 86_400_000]);
  assert.equal(duration(333.4), "333ms");
  assert.throws(() => milliseconds("5 seconds"));
});

test("values and replies round trip", () => {
  for (const value of [null, 1, "text", { a: [1] }, undefined]) assert.deepEqual(valueOfReply(replyFromWire(replyToWire(replyOfValue(value)))), value);
});

test("claim is repeated for as long as it may exist", () => {
  const answer = (status, wasSent = true) => ({ status, wasSent, body: "", contentType: "" });
  assert.deepEqual([answer(503), answer(0), answer(0, false)].map((each) => patience(each, 15_000)), [3000, 15_000, 1000]);
  assert.deepEqual([answer(503), answer(0), answer(0, false)].map((each) => patience(each, 600)), [600, 600, 600]);
  for (const status of [200, 401, 409, 422]) assert.equal(new Retries(15_000).delayAfter(answer(status)), undefined);
  assert.ok(new Retries(15_000).delayAfter(answer(0)) > 0);
});

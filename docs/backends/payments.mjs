// An HTTP server in Node that makes each payment once: it claims each request at Onceward before it pays.
//
//     ONCEWARD_URL=http://127.0.0.1:8080 LEDGER=payments.txt node payments.mjs
//
// A program sends an Idempotency-Key. A page sends the Onceward-Token that it fetched before, and its second click receives the first
// response. The server renews its claim while it works. If it crashes, the outcome of the payment is unknown, and the payment is not made
// again until an operator settles it. With RETRYABLE=1 it is made again once the lease has expired, and may then be made twice.
// It needs no packages. It listens on a free port, and prints its URL.

import { createHash, randomUUID } from "node:crypto";
import { appendFile } from "node:fs/promises";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const { ONCEWARD_URL, ONCEWARD_API_KEY, LEDGER, RETRYABLE } = process.env;
const LEASE = 2000; // milliseconds
// Timeout of a request to Onceward. It is short enough to retry well within the lease, so one lost response does not lose the claim.
const TIMEOUT = Math.floor(LEASE / 3);
const UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Parses a duration of Onceward, such as `333ms` or `5s`. */
function milliseconds(duration) {
  const [, number, unit] = duration.match(/^(\d+)(\D+)$/);
  return number * UNITS[unit];
}

/** Posts to Onceward. Without a complete response in time it is unknown whether this is a duplicate, so nothing runs. */
async function call(path, body) {
  const headers = { "content-type": "application/json" };
  if (ONCEWARD_API_KEY) headers.authorization = `Bearer ${ONCEWARD_API_KEY}`;
  try {
    const signal = AbortSignal.timeout(TIMEOUT);
    const response = await fetch(ONCEWARD_URL + path, { method: "POST", headers, body: JSON.stringify(body), signal });
    return { status: response.status, retryAfter: response.headers.get("retry-after"), body: await response.text() };
  } catch {
    return { status: 503, retryAfter: "1", body: '{"code":"store_unavailable"}' };
  }
}

/** Claims a key or token. A claim whose response was lost may exist: a retry with the same attempt receives the same pass. */
async function claim(intent) {
  const attempt = randomUUID();
  const deadline = Date.now() + LEASE;
  for (;;) {
    const response = await call("/claim", { ...intent, attempt });
    if (response.status < 500 || Date.now() > deadline) return response;
    await sleep(TIMEOUT / 2);
  }
}

/** Returns whether Onceward has processed the request. It has not without the right API key. */
function isProcessed(status) {
  return status < 500 && status !== 401;
}

/** A claim, renewed until Onceward has stored the result of the run. */
class Claim {
  #result;
  #settled = false;
  #queue = Promise.resolve();

  constructor({ pass, renew_every }) {
    this.pass = pass;
    // Twice as often as Onceward requires, because one renewal may time out.
    this.interval = milliseconds(renew_every) / 2;
    this.#renew();
  }

  async #renew() {
    for (; !this.#settled; await this.#report()) await sleep(this.interval);
  }

  /** Reports the result of the run. Renews the claim if there is no result yet, or if reporting it fails. */
  #report() {
    return (this.#queue = this.#queue.then(async () => {
      if (this.#settled) return;
      if (this.#result && isProcessed((await call(...this.#result)).status)) this.#settled = true;
      else await call("/claim/renew", { pass: this.pass });
    }));
  }

  complete(reply) {
    this.#result = ["/claim/complete", { pass: this.pass, reply }];
    return this.#report();
  }

  release() {
    this.#result = ["/claim/release", { pass: this.pass }];
    return this.#report();
  }
}

/** Runs `work` under a claim, and returns the response for the client. */
async function run(claim, work) {
  let body;
  try {
    body = JSON.stringify(await work());
  } catch {
    // The effect is the last step of pay(), so a failure had no effect.
    await claim.release();
    return { status: 500, headers: [], body: '{"code":"internal"}' };
  }
  const headers = [["content-type", "application/json"]];
  await claim.complete({ status: 201, headers, body: Buffer.from(body).toString("base64") });
  return { status: 201, headers, body };
}

/** The effect that must happen once. */
async function pay(order) {
  await sleep(1000 * (order.takes ?? 0));
  await appendFile(LEDGER, `${order.order}\n`);
  return { paid: order.order };
}

async function handle(request, body) {
  const { "idempotency-key": key, "onceward-token": token } = request.headers;
  if (!key && !token) return { status: 400, headers: [], body: '{"code":"key_missing"}' };
  const claimed = await claim({
    ...(key ? { key, at_most_once: !RETRYABLE } : { token }),
    action: "POST /payments",
    subject: request.headers["x-user"] ?? "anonymous",
    fingerprint: createHash("sha256").update(body).digest("hex"),
    lease: `${LEASE}ms`,
  });
  if (claimed.status === 401) {
    // A configuration error: the operator has to fix it, and the client may retry.
    console.error("Onceward rejects this backend: ONCEWARD_API_KEY is missing or wrong");
    return { status: 503, headers: [["retry-after", "1"]], body: '{"code":"store_unavailable"}' };
  }
  if (claimed.status !== 200) {
    return { status: claimed.status, headers: claimed.retryAfter ? [["retry-after", claimed.retryAfter]] : [], body: claimed.body };
  }
  const verdict = JSON.parse(claimed.body);
  if (verdict.outcome === "replay") {
    const { reply } = verdict;
    const headers = [...reply.headers, ["idempotent-replayed", "true"]];
    return { status: reply.status, headers, body: Buffer.from(reply.body, "base64") };
  }
  return run(new Claim(verdict), () => pay(JSON.parse(body)));
}

async function serve(request, response) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const { status, headers, body } = await handle(request, Buffer.concat(chunks));
  response.writeHead(status, headers.flat());
  response.end(body);
}

// A client that closes its connection early ends only its own request, not the process with the payments of other clients.
const server = createServer((request, response) => serve(request, response).catch(() => response.destroy()));
server.listen(0, "127.0.0.1", 128, () => console.log(`http://127.0.0.1:${server.address().port}`));

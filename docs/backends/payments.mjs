// A plain HTTP server in Node that pays once, however often it is asked: by asking Onceward first.
//
//     ONCEWARD_URL=http://127.0.0.1:8080 LEDGER=payments.txt node payments.mjs
//
// Nothing but what Node has. It listens on a free port, and says on which.

import { createHash } from "node:crypto";
import { appendFile } from "node:fs/promises";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const { ONCEWARD_URL, ONCEWARD_API_KEY, LEDGER } = process.env;
const LEASE = 2000; // milliseconds; renewed three times in each

/** Posts to Onceward. If that cannot be reached, nothing is known, and nothing runs. */
async function ask(path, body) {
  const headers = { "content-type": "application/json" };
  if (ONCEWARD_API_KEY) headers.authorization = `Bearer ${ONCEWARD_API_KEY}`;
  try {
    const signal = AbortSignal.timeout(5000);
    return await fetch(ONCEWARD_URL + path, { method: "POST", headers, body: JSON.stringify(body), signal });
  } catch {
    return new Response('{"code":"store_unavailable"}', { status: 503, headers: { "retry-after": "1" } });
  }
}

/** The right to run under a key, renewed until the run has ended and Onceward has heard how. */
class Claim {
  #lastWord;
  #over = false;
  #turn = Promise.resolve();

  constructor(pass) {
    this.pass = pass;
    this.#keep();
  }

  async #keep() {
    for (; !this.#over; await this.#say()) await sleep(LEASE / 3);
  }

  /** Says how the run has ended. As long as that is not heard, or not known, says that the claim is still held. */
  #say() {
    return (this.#turn = this.#turn.then(async () => {
      if (this.#over) return;
      if (this.#lastWord && (await ask(...this.#lastWord)).status < 500) this.#over = true;
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
  const key = request.headers["idempotency-key"];
  if (!key) return { status: 400, headers: [], body: '{"code":"key_missing"}' };
  const told = await ask("/claim", {
    key,
    action: "POST /payments",
    subject: request.headers["x-user"] ?? "anonymous",
    fingerprint: createHash("sha256").update(body).digest("hex"),
    lease: `${LEASE}ms`,
  });
  if (told.status !== 200) {
    const wait = told.headers.get("retry-after");
    return { status: told.status, headers: wait ? [["retry-after", wait]] : [], body: await told.text() };
  }
  const { outcome, pass, reply } = await told.json();
  if (outcome === "replay") {
    const headers = [...reply.headers, ["idempotent-replayed", "true"]];
    return { status: reply.status, headers, body: Buffer.from(reply.body, "base64") };
  }
  return run(new Claim(pass), () => pay(JSON.parse(body)));
}

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const { status, headers, body } = await handle(request, Buffer.concat(chunks));
  response.writeHead(status, headers.flat());
  response.end(body);
});
server.listen(0, "127.0.0.1", 128, () => console.log(`http://127.0.0.1:${server.address().port}`));

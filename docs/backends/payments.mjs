// An HTTP server in Node that makes each payment once: it claims each request at Onceward before it pays.
//
//     ONCEWARD_URL=http://127.0.0.1:8080 LEDGER=payments.txt node docs/backends/payments.mjs
//
// A program sends an Idempotency-Key. A page sends the Onceward-Token that it fetched before, and its second click receives the first
// response. The package renews the claim while the server works. If the server crashes, the outcome of the payment is unknown, and the
// payment is not made again until an operator settles it. With RETRYABLE=1 it is made again once the lease has expired, and may then be
// made twice. It listens on a free port, and prints its URL.

import { appendFile } from "node:fs/promises";
import { createServer } from "node:http";
import { json } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
// In a project of yours: "onceward-node/express".
import { NotApplied, Onceward, protectKey, protectToken } from "../../client-sdk/node/dist/esm/express.js";

const { ONCEWARD_URL, ONCEWARD_API_KEY, LEDGER, RETRYABLE } = process.env;
const onceward = new Onceward(ONCEWARD_URL, { apiKey: ONCEWARD_API_KEY });
// In a project of yours: the user that your authentication has found. Any client can send this header.
const options = { lease: 2000, subject: (request) => request.headers["x-user"] ?? "anonymous" };
const byKey = protectKey(onceward, { ...options, atMostOnce: !RETRYABLE });
const byToken = protectToken(onceward, options);

/** Reads the payment. A body without one has no effect: the key or token is free again, and the client may correct the body. */
async function read(request) {
  try {
    const { order, takes = 0 } = await json(request);
    if (typeof order !== "string") throw new TypeError("the order is not a string");
    return { order, takes };
  } catch (error) {
    throw new NotApplied("the body is not a payment", { cause: error });
  }
}

/** The effect that must happen once. */
async function pay(request, response) {
  const { order, takes } = await read(request);
  await sleep(1000 * takes);
  await appendFile(LEDGER, `${order}\n`);
  response.writeHead(201, { "content-type": "application/json" }).end(JSON.stringify({ paid: order }));
}

const server = createServer((request, response) => {
  const protect = request.headers["onceward-token"] ? byToken : byKey;
  const fail = (error) => response.writeHead(error instanceof NotApplied ? 400 : 500).end();
  protect(request, response, (error) => (error ? fail(error) : pay(request, response).catch(fail)));
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));

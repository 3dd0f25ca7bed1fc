// The contract shop on Fastify 5.

import { Readable } from "node:stream";
import Fastify from "fastify";
import { anonymous, protectKey, protectToken } from "onceward-node/fastify";
import { onceward, order, orders, port, routes } from "./order.mjs";

const options = routes((request) => request.headers["x-user"] ?? "anonymous", anonymous);
const app = Fastify({ forceCloseConnections: true });
// The shop compares any content.
app.addContentTypeParser(["*", "application/json", "text/plain"], { parseAs: "buffer" }, (_, body, done) => done(null, body));

function handler(isProtected) {
  return async (request, reply) => {
    const { status, headers, body, chunks } = await order((name) => request.headers[name], isProtected);
    return reply.code(status).headers(headers).send(chunks ? Readable.from(chunks) : body);
  };
}

app.post("/orders", protectKey(onceward, options.orders), handler(true));
app.post("/retryable", protectKey(onceward, options.retryable), handler(true));
app.post("/forms", protectToken(onceward, options.forms), handler(true));
app.post("/open", handler(false));
app.post("/token", async (_, reply) => reply.code(201).send(await onceward.issue()));
app.get("/orders", async (_, reply) => reply.type("text/plain").send(orders()));

console.log(await app.listen({ port, host: "127.0.0.1" }));

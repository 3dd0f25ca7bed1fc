// The contract shop on Fastify 5.

import { Readable } from "node:stream";
import Fastify from "fastify";
import { anonymous, protectKey, protectToken } from "onceward-node/fastify";
import { isProtected, onceward, order, orders, port, routes } from "./order.mjs";

const options = routes((request) => request.headers["x-user"] ?? "anonymous", anonymous);
const app = Fastify({ forceCloseConnections: true });
// The shop compares any content.
app.addContentTypeParser(["*", "application/json", "text/plain"], { parseAs: "buffer" }, (_, body, done) => done(null, body));
const protect = (hooks) => (isProtected ? hooks : {});

// The shop's own timeout responds while the handler goes on.
app.addHook("onRequest", (request, reply, next) => {
  const limit = request.headers["x-timeout"];
  if (limit) setTimeout(() => reply.sent || reply.code(503).send("too slow"), Number(limit));
  next();
});

function handler(statesEffect) {
  return async (request, reply) => {
    const { status, headers, body, chunks } = await order((name) => request.headers[name], statesEffect);
    if (reply.sent) return reply;
    return reply.code(status).headers(headers).send(chunks ? Readable.from(chunks) : body);
  };
}

app.post("/orders", protect(protectKey(onceward, options.orders)), handler(isProtected));
app.post("/retryable", protect(protectKey(onceward, options.retryable)), handler(isProtected));
app.post("/forms", protect(protectToken(onceward, options.forms)), handler(isProtected));
app.post("/open", handler(false));
app.post("/token", async (_, reply) => reply.code(201).send(await onceward.issue()));
app.get("/orders", async (_, reply) => reply.type("text/plain").send(orders()));

console.log(await app.listen({ port, host: "127.0.0.1" }));

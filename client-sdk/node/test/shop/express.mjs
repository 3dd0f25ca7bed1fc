// The contract shop on Express 5.

import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import express from "express";
import { anonymous, protectKey, protectToken, Unknown } from "onceward-node/express";
import { isProtected, onceward, order, orders, port, routes } from "./order.mjs";

const options = routes((request) => request.get("x-user") ?? "anonymous", anonymous);
const app = express();
const protect = (middleware) => (isProtected ? [middleware] : []);

// The shop's own timeout responds while the handler goes on.
app.use((request, response, next) => {
  const limit = request.get("x-timeout");
  if (limit) setTimeout(() => response.headersSent || response.status(503).send("too slow"), Number(limit));
  next();
});

function handler(statesEffect) {
  return async (request, response) => {
    const { status, headers, body, chunks } = await order((name) => request.get(name), statesEffect);
    if (response.headersSent) return;
    response.status(status).set(headers);
    if (chunks) await pipeline(Readable.from(chunks), response);
    else response.send(body);
  };
}

app.post("/orders", protect(protectKey(onceward, options.orders)), handler(isProtected));
app.post("/retryable", protect(protectKey(onceward, options.retryable)), handler(isProtected));
app.post("/forms", protect(protectToken(onceward, options.forms)), handler(isProtected));
app.post("/open", handler(false));
app.post("/token", async (_, response) => response.status(201).json(await onceward.issue()));
app.get("/orders", (_, response) => response.type("text/plain").send(orders()));

// A middleware of Express does not see the errors of handlers, so an error handler has to say that a timeout is unknown.
app.use((error, _request, _response, next) => {
  next(error.name === "TimeoutError" ? new Unknown("a call timed out", { cause: error }) : error);
});

const server = app.listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));

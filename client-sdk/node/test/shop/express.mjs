// The contract shop on Express 5.

import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import express from "express";
import { anonymous, protectKey, protectToken } from "onceward-node/express";
import { onceward, order, orders, port, routes } from "./order.mjs";

const options = routes((request) => request.get("x-user") ?? "anonymous", anonymous);
const app = express();

function handler(isProtected) {
  return async (request, response) => {
    const { status, headers, body, chunks } = await order((name) => request.get(name), isProtected);
    response.status(status).set(headers);
    if (chunks) await pipeline(Readable.from(chunks), response);
    else response.send(body);
  };
}

app.post("/orders", protectKey(onceward, options.orders), handler(true));
app.post("/retryable", protectKey(onceward, options.retryable), handler(true));
app.post("/forms", protectToken(onceward, options.forms), handler(true));
app.post("/open", handler(false));
app.post("/token", async (_, response) => response.status(201).json(await onceward.issue()));
app.get("/orders", (_, response) => response.type("text/plain").send(orders()));

const server = app.listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));

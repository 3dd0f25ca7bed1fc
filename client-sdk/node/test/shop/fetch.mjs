// The contract shop on handlers of the Fetch API, served by `node:http`.

import { createServer } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { anonymous, protectKey, protectToken } from "onceward-node/fetch";
import { onceward, order, orders, port, routes } from "./order.mjs";

const options = routes((request) => request.headers.get("x-user") ?? "anonymous", anonymous);
for (const each of Object.values(options)) each.onError = internalError;

function internalError(error) {
  console.error(error);
  return new Response("internal error", { status: 500 });
}

function handler(isProtected) {
  return async (request) => {
    const { status, headers, body, chunks } = await order((name) => request.headers.get(name), isProtected);
    return new Response(chunks ? Readable.toWeb(Readable.from(chunks)) : body, { status, headers });
  };
}

const table = {
  "POST /orders": protectKey(onceward, options.orders, handler(true)),
  "POST /retryable": protectKey(onceward, options.retryable, handler(true)),
  "POST /forms": protectToken(onceward, options.forms, handler(true)),
  "POST /open": handler(false),
  "POST /token": async () => Response.json(await onceward.issue(), { status: 201 }),
  "GET /orders": () => new Response(orders()),
};

/** Returns the request of `node:http` as one of the Fetch API. */
function toFetch(request) {
  const { method, url, headersDistinct } = request;
  const headers = Object.entries(headersDistinct).flatMap(([name, values]) => values.map((value) => [name, value]));
  const body = method === "POST" ? Readable.toWeb(request) : undefined;
  return new Request(new URL(url, "http://127.0.0.1"), { method, headers, body, duplex: "half" });
}

async function respond(request) {
  const route = table[`${request.method} ${new URL(request.url).pathname}`];
  if (!route) return new Response("", { status: 404 });
  return route(request);
}

async function serve(request, response) {
  const answer = await respond(toFetch(request)).catch(internalError);
  for (const [name, value] of answer.headers) response.appendHeader(name, value);
  response.writeHead(answer.status);
  if (answer.body) await pipeline(Readable.fromWeb(answer.body), response);
  else response.end();
}

const server = createServer((request, response) => serve(request, response).catch(() => response.destroy()));
server.listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));

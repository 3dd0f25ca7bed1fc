// The contract shop on handlers of the Fetch API, served by `node:http`.

import { createServer } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { anonymous, protectKey, protectToken } from "onceward-node/fetch";
import { isProtected, onceward, order, orders, port, routes } from "./order.mjs";

const options = routes((request) => request.headers.get("x-user") ?? "anonymous", anonymous);
for (const each of Object.values(options)) each.onError = internalError;

function internalError(error) {
  console.error(error);
  return new Response("internal error", { status: 500 });
}

function handler(statesEffect) {
  return (request) => {
    const answer = respondTo(request, statesEffect);
    const limit = request.headers.get("x-timeout");
    return limit ? Promise.race([answer, tooSlow(Number(limit))]) : answer;
  };
}

async function respondTo({ headers: named }, statesEffect) {
  const { status, headers, body, chunks } = await order((name) => named.get(name), statesEffect);
  const lines = Object.entries(headers).flatMap(([name, values]) => [values].flat().map((value) => [name, value]));
  return new Response(chunks ? Readable.toWeb(Readable.from(chunks)) : body, { status, headers: lines });
}

/** The shop's own timeout responds while the handler goes on. A 504, because a 503 of the handler says that nothing took effect. */
async function tooSlow(limit) {
  await sleep(limit);
  return new Response("too slow", { status: 504 });
}

function protect(wrap, options) {
  return isProtected ? wrap(onceward, options, handler(true)) : handler(false);
}

const table = {
  "POST /orders": protect(protectKey, options.orders),
  "POST /retryable": protect(protectKey, options.retryable),
  "POST /forms": protect(protectToken, options.forms),
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

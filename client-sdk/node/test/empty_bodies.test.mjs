// Responses without a body are stored, and a duplicate receives the same.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import express from "express";
import Fastify from "fastify";
import * as forExpress from "onceward-node/express";
import * as forFastify from "onceward-node/fastify";
import * as forFetch from "onceward-node/fetch";
import { client, listen, post, serve } from "./stage/app.mjs";

const OPTIONS = { subject: forExpress.anonymous };
const MADE = { location: "/orders/1" };

/** Serves the handlers, each at a path of its own. Returns the URL. */
const STACKS = {
  async express(t, onceward, handlers) {
    const app = express();
    for (const [path, handler] of Object.entries(handlers)) app.post(path, forExpress.protectKey(onceward, OPTIONS), handler);
    return serve(t, app);
  },
  async fastify(t, onceward, handlers) {
    const app = Fastify();
    for (const [path, handler] of Object.entries(handlers)) app.post(path, forFastify.protectKey(onceward, OPTIONS), handler);
    return listen(t, app);
  },
  async fetch(t, onceward, handlers) {
    const routes = Object.fromEntries(Object.entries(handlers).map(([path, handler]) => [path, forFetch.protectKey(onceward, OPTIONS, handler)]));
    return serve(t, createServer(async ({ method, url, headers }, response) => {
      const { status, headers: named } = await routes[url](new Request(`http://shop${url}`, { method, headers }));
      response.writeHead(status, Object.fromEntries(named)).end();
    }));
  },
};

/** Handlers without a body. */
const HANDLERS = {
  express: {
    "/204": (_, response) => response.sendStatus(204),
    "/204-with-headers": (_, response) => response.status(204).set(MADE).end(),
    "/205": (_, response) => response.status(205).end(),
    "/201": (_, response) => response.status(201).set(MADE).end(),
    "/200-with-empty-text": (_, response) => response.send(""),
  },
  fastify: {
    "/204": async (_, reply) => reply.code(204).send(),
    "/204-with-headers": async (_, reply) => reply.code(204).headers(MADE).send(null),
    "/205": async (_, reply) => reply.code(205).send(),
    "/201": (_, reply) => void reply.code(201).headers(MADE).send(),
    "/200-with-empty-text": async () => "",
  },
  fetch: {
    "/204": () => new Response(null, { status: 204 }),
    "/204-with-headers": () => new Response(undefined, { status: 204, headers: MADE }),
    "/205": () => new Response(null, { status: 205 }),
    "/201": () => new Response(null, { status: 201, headers: MADE }),
    "/200-with-empty-text": () => new Response(""),
  },
};

for (const [stack, start] of Object.entries(STACKS)) {
  test(`${stack}: response without a body is stored and replayed`, async (t) => {
    const runs = [];
    const counted = ([path, handler]) => [path, (...rest) => (runs.push(path), handler(...rest))];
    const url = await start(t, await client(t), Object.fromEntries(Object.entries(HANDLERS[stack]).map(counted)));
    for (const path of Object.keys(HANDLERS[stack])) {
      const send = () => post(url + path, undefined, {}, path.slice(1));
      const [first, again] = [await send(), await send()];
      const status = Number(path.slice(1, 4));
      assert.deepEqual([...first.summary, ...again.summary], [status, "executed", status, "replayed"], path);
      assert.deepEqual([first.body.length, again.body.length, again.headers.get("idempotent-replayed")], [0, 0, "true"], path);
      for (const name of ["content-length", "content-type", "etag", "location"]) assert.equal(again.headers.get(name), first.headers.get(name), `${path} ${name}`);
    }
    assert.deepEqual(runs, Object.keys(HANDLERS[stack]));
  });
}

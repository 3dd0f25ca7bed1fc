// Applications in the test's own process, beside a real service.

import { Onceward } from "onceward-node";
import { API_KEY, startService } from "./service.mjs";
import { read } from "./shop.mjs";

/** Starts a service, and returns its client. */
export async function client(t) {
  const service = await startService(t);
  return new Onceward(service.url, { apiKey: API_KEY, log: () => undefined });
}

/** Serves an Express application. Returns its URL. */
export async function serve(t, app) {
  const server = await new Promise((go) => {
    const started = app.listen(0, "127.0.0.1", () => go(started));
  });
  t.after(() => server.close().closeAllConnections());
  return `http://127.0.0.1:${server.address().port}`;
}

/** Serves a Fastify application. Returns its URL. */
export async function listen(t, app) {
  t.after(() => app.close());
  return app.listen({ port: 0, host: "127.0.0.1" });
}

/** Sends a request under a key. `summary` is its status and outcome. */
export async function post(url, body, headers = {}, key = "k", signal = undefined) {
  const request = { method: "POST", headers: { "idempotency-key": key, ...headers }, body, duplex: "half", signal };
  const response = await read(await fetch(url, request));
  return { ...response, summary: [response.status, response.outcome] };
}

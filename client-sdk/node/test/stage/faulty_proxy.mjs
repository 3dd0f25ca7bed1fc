// A proxy in front of the service that fails as planned.

import { createServer, request as send } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

/**
 * Starts a proxy. `plan(path, count)` decides about each request, by its path and the number of earlier requests with that path:
 * `undefined` forwards it; `drop` closes the connection before it is forwarded, `lose` closes it instead of the response, `cut` in the middle
 * of the response; `{ delay }` waits before it is forwarded; a number is the status of a response of the proxy itself;
 * `{ problem }` is a problem, as of the service.
 */
export async function startProxy(test, target, plan = () => undefined) {
  const proxy = new FaultyProxy(target, plan);
  const server = createServer((request, response) => proxy.serve(request, response).catch(() => response.destroy()));
  await new Promise((go) => server.listen(0, "127.0.0.1", go));
  test.after(() => server.close().closeAllConnections());
  proxy.url = `http://127.0.0.1:${server.address().port}`;
  return proxy;
}

class FaultyProxy {
  seen = [];

  constructor(target, plan) {
    Object.assign(this, { target, plan });
  }

  count(path) {
    return this.seen.filter((each) => each.path === path).length;
  }

  async serve(request, response) {
    const body = await read(request);
    const fault = this.plan(request.url, this.count(request.url));
    this.seen.push({ path: request.url, body: body.toString() });
    if (fault === "drop") return response.destroy();
    if (typeof fault === "number") return response.writeHead(fault).end();
    if (fault?.problem) return response.writeHead(fault.problem.status, { "content-type": "application/problem+json" }).end(JSON.stringify(fault.problem));
    if (fault?.delay) await sleep(fault.delay);
    const answer = await this.forward(request, body);
    if (fault === "lose") return response.destroy();
    response.writeHead(answer.status, answer.headers);
    if (fault !== "cut") return response.end(answer.body);
    response.flushHeaders();
    response.write(answer.body.subarray(0, answer.body.length / 2), () => response.destroy());
  }

  async forward({ method, url, headers }, body) {
    const response = await new Promise((resolve, reject) => send(this.target + url, { method, headers }, resolve).on("error", reject).end(body));
    return { status: response.statusCode, headers: response.headers, body: await read(response) };
  }
}

async function read(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

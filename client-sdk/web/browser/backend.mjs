// A shop without a guard: it redeems tokens at the real service, or runs behind the real nginx, which redeems them.

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { until } from "./stage.mjs";

const ROOT = new URL("../../..", import.meta.url).pathname;
const KEY = "a-key-of-the-backend";

/** The service, on a free port. */
export class Service {
  static async start(...settings) {
    const service = new Service();
    const metadata = execFileSync("cargo", ["metadata", "--no-deps", "--offline", "--format-version", "1"], { cwd: ROOT });
    const program = join(JSON.parse(metadata).target_directory, "debug", "onceward");
    const always = ["--listen", "127.0.0.1:0", "--log", "json", "--api-key", KEY];
    service.process = spawn(program, [...always, ...settings], { stdio: ["ignore", "pipe", "inherit"] });
    const lines = createInterface(service.process.stdout);
    const line = await new Promise((go) => lines.once("line", go));
    service.url = `http://${JSON.parse(line).address}`;
    return service;
  }

  /** Redeems a token: returns whether it was accepted, and the response if not. */
  async redeem(token) {
    const headers = { "content-type": "application/json", authorization: `Bearer ${KEY}` };
    const answer = await fetch(`${this.url}/token/redeem`, { method: "POST", headers, body: JSON.stringify({ token }) });
    return { isGood: answer.ok, status: answer.status, text: await answer.text() };
  }

  close() {
    this.process.kill("SIGKILL");
  }
}

/** The shop. It counts submissions and orders. */
export class Backend {
  static async open() {
    const backend = new Backend();
    Object.assign(backend, { runs: [], orders: [], tokens: [], failures: [], policy: "", patience: 3 });
    backend.server = createServer((request, response) => backend.answer(request, response));
    await new Promise((go) => backend.server.listen(0, "127.0.0.1", go));
    backend.url = `http://127.0.0.1:${backend.server.address().port}`;
    return backend;
  }

  /** Sets the service that issues tokens; with `redeems` the shop redeems them itself. */
  serve(service, redeems) {
    Object.assign(this, { service, redeems });
  }

  /** From now on, pages load the script without settings. */
  bare() {
    this.isBare = true;
  }

  /** Fails the next submissions with these statuses, after their token was redeemed. A bare response has no script. */
  fail(...failures) {
    this.failures = failures;
  }

  async answer(request, response) {
    const { pathname, searchParams } = new URL(request.url, this.url);
    let body = "";
    for await (const bytes of request) body += bytes;
    if (pathname == "/sdk/onceward.js") return response.setHeader("content-type", "text/javascript").end(readFileSync(join(ROOT, "client-sdk/web/dist/onceward.js")));
    const say = (status, title, text, isBare) => {
      response.writeHead(status, { "content-type": "text/html", ...(this.policy && { "content-security-policy": this.policy }) });
      const base = this.isBare ? "" : ` data-base="${this.service.url}" data-patience="${this.patience}"`;
      const script = `<script src="/sdk/onceward.js"${base} defer></script>`;
      response.end(`<!doctype html><title>${title}</title>${isBare ? "" : script}${text}`);
    };
    if (pathname == "/form") return say(200, "form", form(this.redeems ? "" : "query"));
    if (request.method != "POST") return response.writeHead(404).end();
    const fields = new URLSearchParams(body);
    const token = searchParams.get("_onceward") ?? fields.get("_onceward");
    this.tokens.push(token);
    const redeemed = this.redeems && (await this.service.redeem(token));
    if (redeemed && !redeemed.isGood) return say(redeemed.status, "rejected", redeemed.text);
    this.runs.push(fields.get("item"));
    const failure = this.failures.shift();
    if (failure) return say(failure.status, "failed", "<p>Something went wrong.</p>", failure.isBare);
    this.orders.push(fields.get("item"));
    say(200, "receipt", '<p id="receipt">thanks</p>');
  }

  /** The number of orders of an item, and the number of its submissions that reached the handler. */
  count(item) {
    const of = (list) => list.filter((line) => line == item).length;
    return [of(this.orders), of(this.runs)];
  }

  close() {
    this.server.closeAllConnections();
    this.server.close();
  }
}

function form(how) {
  return `<form method="post" action="/orders" data-onceward="${how}"><input name="item"><button>Order</button></form>`;
}

/** nginx with deploy/nginx.conf, except for addresses and paths. */
export class Nginx {
  static async before(backend, service, port) {
    const nginx = new Nginx();
    nginx.folder = mkdtempSync(join(tmpdir(), "onceward-nginx-"));
    const at = (name) => join(nginx.folder, name);
    const given = {
      "server 127.0.0.1:8080;": `server ${new URL(service.url).host};`,
      "server 127.0.0.1:3000;": `server ${new URL(backend.url).host};`,
      "listen 80;": `listen 127.0.0.1:${port};`,
      "/var/log/nginx/onceward.log": at("access.log"),
      "change-me": KEY,
    };
    let site = readFileSync(join(ROOT, "deploy/nginx.conf"), "utf8");
    for (const [from, to] of Object.entries(given)) {
      if (site.split(from).length != 2) throw new Error(`the recipe does not contain ${from} exactly once`);
      site = site.replace(from, to);
    }
    writeFileSync(at("site.conf"), site);
    const places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((kind) => `${kind}_temp_path ${at(kind)};`).join(" ");
    const main = `daemon off; worker_processes 1; pid ${at("pid")}; error_log stderr;\nevents {}\nhttp { ${places} include ${at("site.conf")}; }\n`;
    writeFileSync(at("nginx.conf"), main);
    nginx.process = spawn("nginx", ["-p", nginx.folder, "-c", at("nginx.conf")], { stdio: ["ignore", "ignore", "inherit"] });
    nginx.url = `http://127.0.0.1:${port}`;
    await until("nginx responds", () => fetch(nginx.url).then(() => true, () => false));
    return nginx;
  }

  async close() {
    const ended = new Promise((go) => this.process.once("exit", go));
    this.process.kill("SIGTERM");
    await ended;
    rmSync(this.folder, { recursive: true });
  }
}

/** A port that nothing listens on. */
export async function freePort() {
  const server = net.createServer();
  await new Promise((go) => server.listen(0, "127.0.0.1", go));
  const { port } = server.address();
  await new Promise((go) => server.close(go));
  return port;
}

// The test environment: the shop as a separate process with its ledger, a proxy that can lose responses, and Chromium.

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const ROOT = new URL("../../..", import.meta.url).pathname;
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Polls until the condition is true. */
export async function until(what, isSo, limit = 10_000) {
  const deadline = Date.now() + limit;
  while (!(await isSo())) {
    if (Date.now() > deadline) throw new Error(`${what}: not within ${limit} ms`);
    await new Promise((go) => setTimeout(go, 20));
  }
}

/** The shop, its ledger, the proxy and the browser. */
export class Stage {
  static async open() {
    const stage = new Stage();
    stage.folder = mkdtempSync(join(tmpdir(), "onceward-browser-"));
    stage.ledger = join(stage.folder, "ledger");
    writeFileSync(stage.ledger, "");
    stage.shop = spawn(peer(), ["onceward", "memory:", stage.ledger], { stdio: ["ignore", "pipe", "inherit"] });
    const [line] = await once(createInterface(stage.shop.stdout), "line");
    stage.proxy = await Proxy.before(Number(new URL(line).port));
    stage.browser = await chromium.launch({
      executablePath: CHROMIUM,
      args: FLAGS,
      // Some tests need the back/forward cache.
      ignoreDefaultArgs: ["--disable-back-forward-cache"],
    });
    return stage;
  }

  /** The URL of the shop. */
  get url() {
    return this.proxy.url;
  }

  /** The orders: lines of the ledger that start with this text. */
  orders(begin) {
    return readFileSync(this.ledger, "utf8").split("\n").filter((line) => line.startsWith(begin));
  }

  async close() {
    await this.browser.close();
    this.proxy.close();
    this.shop.kill("SIGKILL");
    rmSync(this.folder, { recursive: true });
  }
}

function peer() {
  const metadata = execFileSync("cargo", ["metadata", "--no-deps", "--offline", "--format-version", "1"], { cwd: ROOT });
  return join(JSON.parse(metadata).target_directory, "debug", "peer");
}

function once(emitter, name) {
  return new Promise((go) => emitter.once(name, (...what) => go(what)));
}

/** A proxy between browser and shop that can lose responses, delay requests, or refuse connections. */
class Proxy {
  static async before(port) {
    const proxy = new Proxy();
    proxy.fates = [];
    proxy.sockets = new Set();
    proxy.port = port;
    proxy.server = net.createServer((client) => proxy.connect(client));
    await new Promise((go) => proxy.server.listen(0, "127.0.0.1", go));
    proxy.url = `http://127.0.0.1:${proxy.server.address().port}`;
    return proxy;
  }

  /** Delays the next request whose first line contains `part`, by `millis` milliseconds. */
  delay(part, millis) {
    this.fates.push({ part, millis });
  }

  /** Loses the responses to all such requests, also if the browser retries one itself, until `well` is called. */
  lose(part) {
    this.fates.push({ part });
  }

  /** From now on, loses and delays nothing. */
  well() {
    this.fates = [];
  }

  connect(client) {
    const shop = net.connect(this.port, "127.0.0.1");
    let loses = false;
    let held = Promise.resolve();
    for (const socket of [client, shop]) {
      this.sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        this.sockets.delete(socket);
        client.destroy();
        shop.destroy();
      });
    }
    client.on("data", (bytes) => {
      const line = bytes.toString("latin1").split("\r\n", 1)[0];
      const at = this.fates.findIndex(({ part }) => line.includes(part) && line.endsWith("HTTP/1.1"));
      const fate = this.fates[at];
      if (fate?.millis) {
        this.fates.splice(at, 1);
        held = held.then(() => new Promise((go) => setTimeout(go, fate.millis)));
      } else if (fate) loses = true;
      held = held.then(() => shop.writable && shop.write(bytes));
    });
    shop.on("data", (bytes) => (loses ? client.destroy() : client.writable && client.write(bytes)));
  }

  /** Refuses new connections, and closes the open ones. */
  async down() {
    const closed = new Promise((go) => this.server.close(go));
    this.sockets.forEach((socket) => socket.destroy());
    await closed;
  }

  /** Accepts connections again, at the same address. */
  up() {
    return new Promise((go) => this.server.listen(Number(new URL(this.url).port), "127.0.0.1", go));
  }

  close() {
    this.server.close();
    this.sockets.forEach((socket) => socket.destroy());
  }
}

/** A user of a browser. Records every error and every request that leaves the origin. */
export class Visitor {
  static async come(stage, options = {}) {
    const visitor = new Visitor();
    visitor.stage = stage;
    visitor.wrong = [];
    visitor.context = await stage.browser.newContext(options);
    visitor.context.setDefaultTimeout(10_000);
    visitor.sent = [];
    visitor.context.on("request", (request) => {
      if (request.isNavigationRequest() && request.method() == "POST") visitor.sent.push(new URLSearchParams(request.postData()));
      if (!request.url().startsWith(stage.url)) visitor.wrong.push(`left the origin: ${request.url()}`);
    });
    visitor.context.on("console", (message) => {
      // The browser's own messages about a status or a server that is down are not errors of the page.
      const isNetwork = message.text().startsWith("Failed to load resource");
      if (message.type() == "error" && !isNetwork) visitor.wrong.push(message.text());
    });
    visitor.context.on("weberror", (error) => visitor.wrong.push(String(error.error())));
    visitor.page = await visitor.context.newPage();
    return visitor;
  }

  /** Opens a page of the shop. */
  async open(path) {
    await this.page.goto(`${this.stage.url}${path}`);
    return this.page;
  }

  /** Runs a function in the page while its form is being sent. Chromium does not allow `evaluate` at that time. */
  async meanwhile(act) {
    await this.page.evaluate(`addEventListener("submit", () => setTimeout(${act}, 500), { once: true })`);
  }

  /** Goes back, and waits for the page there by its title, if one is given. */
  async back(title) {
    await until("going back", () => this.goBack());
    if (title) await this.at(title);
  }

  /** Goes back. Returns false if a navigation is in progress: then there is no history, and nothing was done. */
  async goBack() {
    try {
      // A page from the back/forward cache fires no load event.
      await this.page.goBack({ waitUntil: "commit" });
      return true;
    } catch (error) {
      if (String(error).includes("(Page.getNavigationHistory): Not attached to an active page")) return false;
      throw error;
    }
  }

  /** Waits for a page by its title. During a navigation there is no title. */
  async at(title) {
    await until(`the page ${title}`, async () => (await this.page.title().catch(() => "")) == title);
  }

  /** Closes the browser context, and returns the recorded errors. */
  async leave() {
    await this.context.close();
    return this.wrong;
  }
}

// The test environment of the proxy: an application that knows nothing of Onceward, with its ledger, proxies in front of it, and Chromium.

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Stage, until } from "../../client-sdk/web/browser/stage.mjs";
import { startService } from "../../web-demo/browser/shop.mjs";

const PROGRAM = new URL("../../tests/legacy/shop.py", import.meta.url).pathname;

/** The application, and the proxies in front of it. */
export class LegacyShop {
  static async open() {
    const shop = new LegacyShop();
    shop.proxies = [];
    shop.folder = mkdtempSync(join(tmpdir(), "onceward-proxy-"));
    shop.ledger = join(shop.folder, "orders.jsonl");
    const port = await freePort();
    shop.upstream = `http://127.0.0.1:${port}`;
    shop.process = spawn("python3", [PROGRAM, String(port), shop.ledger], { stdio: ["ignore", "ignore", "inherit"] });
    await until("the application listens", () => isOpen(port));
    shop.stage = await Stage.open();
    return shop;
  }

  /** Starts a proxy with these additional settings. Returns its URL and the browser. */
  async proxy(...settings) {
    const { url, stop } = await startService(["proxy", "--upstream", this.upstream, ...settings]);
    this.proxies.push(stop);
    return { url, browser: this.stage.browser };
  }

  /** The orders in the ledger. */
  orders() {
    try {
      return readFileSync(this.ledger, "utf8").split("\n").filter((line) => line !== "").map((line) => JSON.parse(line));
    } catch (error) {
      if (error.code === "ENOENT") return [];
      throw error;
    }
  }

  async close() {
    await this.stage.close();
    this.proxies.forEach((stop) => stop());
    this.process.kill("SIGKILL");
    rmSync(this.folder, { recursive: true });
  }
}

function freePort() {
  const server = net.createServer();
  return new Promise((go) => server.listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => go(port));
  }));
}

function isOpen(port) {
  return new Promise((go) => {
    const socket = net.connect(port, "127.0.0.1", () => {
      socket.destroy();
      go(true);
    });
    socket.on("error", () => go(false));
  });
}

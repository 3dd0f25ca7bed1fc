// The real service, on a free port, stopped by its process id.

import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createInterface } from "node:readline";

export const API_KEY = "an-api-key-of-the-tests-canary";

/** Returns the path of the service's binary. */
function binary() {
  const { ONCEWARD_BIN, CARGO_TARGET_DIR } = process.env;
  const built = `${CARGO_TARGET_DIR ?? new URL("../../../../target", import.meta.url).pathname}/debug/onceward`;
  const path = ONCEWARD_BIN ?? built;
  if (!existsSync(path)) throw new Error(`${path} is missing. Build it with: cargo build -p onceward-server --locked`);
  return path;
}

/** Starts the service. `test` stops it at its end. */
export async function startService(test, { apiKey = API_KEY, settings = [] } = {}) {
  const child = spawn(binary(), ["--listen", "127.0.0.1:0", "--log", "json", ...(apiKey ? ["--api-key", apiKey] : []), ...settings], { stdio: ["ignore", "pipe", "inherit"] });
  test.after(() => child.kill("SIGKILL"));
  for await (const line of createInterface(child.stdout)) {
    const { message, address } = JSON.parse(line);
    if (message === "listening") return new Service(child, `http://${address}`);
  }
  throw new Error("the service ended before it listened");
}

class Service {
  constructor(child, url) {
    Object.assign(this, { child, url });
    child.stdout.resume();
  }

  stop() {
    this.child.kill("SIGKILL");
  }

  /** Returns the state of a key, as an operator sees it. */
  async state(key, { action = "POST /orders", subject = "anonymous" } = {}) {
    const headers = { "content-type": "application/json", authorization: `Bearer ${API_KEY}` };
    const response = await fetch(`${this.url}/outcome`, { method: "POST", headers, body: JSON.stringify({ key, action, subject }) });
    return (await response.json()).state;
  }
}

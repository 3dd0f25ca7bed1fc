// A contract shop in a process of its own, and the ledger of its effects.

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { API_KEY } from "./service.mjs";

export const STACKS = ["express", "fastify", "fetch"];

/** Creates a ledger. */
export function createLedger(test) {
  const folder = mkdtempSync(join(tmpdir(), "onceward-node-"));
  test.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "ledger");
  const lines = () => (existsSync(path) ? readFileSync(path, "utf8").split("\n").slice(0, -1) : []);
  return { path, lines, clear: () => rmSync(path, { force: true }) };
}

/** Starts a program that prints its URL. Returns its URL, log and process. */
export async function startProgram(test, file, env, cwd) {
  const child = spawn(process.execPath, [file], { cwd, env: { PATH: process.env.PATH, NODE_ENV: "test", ...env }, stdio: ["ignore", "pipe", "pipe"] });
  test.after(() => child.kill("SIGKILL"));
  const program = { child, log: "" };
  child.stderr.on("data", (data) => (program.log += data));
  for await (const line of createInterface(child.stdout)) return Object.assign(program, { url: line.trim() });
  throw new Error(`${file} ended: ${program.log}`);
}

/** Starts the shop of a stack. */
export async function startShop(test, stack, url, ledger, env = {}) {
  const file = new URL(`../shop/${stack}.mjs`, import.meta.url).pathname;
  const program = await startProgram(test, file, { ONCEWARD_URL: url, ONCEWARD_API_KEY: API_KEY, LEDGER: ledger.path, ...env });
  return new Shop(program);
}

class Shop {
  constructor({ child, url, log }) {
    Object.assign(this, { child, url, log });
    child.stderr.on("data", (data) => (this.log += data));
  }

  /** Sends an order. */
  async order(key, headers = {}, { path = "/orders", body = "tea", signal } = {}) {
    const named = { "content-type": "text/plain", ...(key && { "idempotency-key": key }), ...headers };
    return read(await fetch(this.url + path, { method: "POST", headers: named, body, signal, redirect: "manual" }));
  }

  async token() {
    const { status, text } = await read(await fetch(`${this.url}/token`, { method: "POST" }));
    if (status !== 201) throw new Error(text);
    return JSON.parse(text).token;
  }
}

export async function read(response) {
  const { status, headers } = response;
  const body = Buffer.from(await response.arrayBuffer());
  return { status, headers, body, text: body.toString("latin1"), outcome: headers.get("onceward-outcome") };
}

/** Waits until a condition holds. */
export async function until(what, condition, limit = 10_000) {
  for (const end = Date.now() + limit; Date.now() < end; await sleep(20)) {
    if (await condition()) return;
  }
  throw new Error(`${what}: not within ${limit} ms`);
}

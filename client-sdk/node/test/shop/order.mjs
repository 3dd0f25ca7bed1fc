// The handler of every shop: the headers of the request decide what happens.

import { randomUUID } from "node:crypto";
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { NotApplied, Onceward, stateEffect, Unknown } from "onceward-node";

const { ONCEWARD_URL, ONCEWARD_API_KEY, LEDGER, LEASE, WAIT, PORT, PROTECTION } = process.env;

export const onceward = new Onceward(ONCEWARD_URL, { apiKey: ONCEWARD_API_KEY });
export const port = Number(PORT ?? 0);
/** False runs the shop without the middleware. */
export const isProtected = PROTECTION !== "off";
const times = { ...(LEASE && { lease: Number(LEASE) }), ...(WAIT && { wait: Number(WAIT) }) };

/** Returns the options of each protected route. `subject` is the stack's own function. */
export function routes(subject, anonymous) {
  return {
    orders: { ...times, subject },
    retryable: { ...times, subject, atMostOnce: false },
    forms: { ...times, subject: anonymous },
  };
}

export function orders() {
  return existsSync(LEDGER) ? String(readFileSync(LEDGER, "utf8").split("\n").length - 1) : "0";
}

/** Appends one line, with one write. */
function append(line) {
  appendFileSync(LEDGER, `${line}\n`);
}

/**
 * Runs one order. `header` returns a header of the request; `statesEffect` is false on a route without protection. Returns the status,
 * headers and body of the response; the body is bytes, or the chunks of a stream. A 204 has no body.
 */
export async function order(header, statesEffect) {
  const raise = header("x-raise");
  if (header("x-takes")) {
    append("begun");
    await sleep(Number(header("x-takes")));
  }
  if (raise === "before") throw new Error("before the effect");
  if (raise === "not-applied") throw new NotApplied("nothing was ordered");
  append(header("x-order") ?? "order");
  if (raise === "after") throw new Error("after the effect");
  if (raise === "unknown") throw new Unknown("the order may have been placed");
  if (raise === "timeout") throw new DOMException("the response of a call is lost", "TimeoutError");
  if (header("x-then")) await sleep(Number(header("x-then")));
  if (header("x-effect") && statesEffect) stateEffect(header("x-effect").replace("-", "_"));
  return answer(header);
}

function answer(header) {
  const status = Number(header("x-status") ?? 201);
  if (header("x-stream")) {
    const chunks = stream(Number(header("x-stream")), header("x-fail-stream") === "yes");
    return { status, headers: { "content-type": "text/plain" }, chunks };
  }
  const run = randomUUID();
  const body = Buffer.concat([Buffer.from([...Array(256).keys()]), Buffer.from(run), Buffer.alloc(Number(header("x-size") ?? 0), "x")]);
  const headers = {
    location: `/orders/${run}`,
    "content-type": "application/octet-stream",
    "x-run": run,
    link: ['</orders>; rel="collection"', `</orders/${run}>; rel="self"`],
    "set-cookie": [`run=${run}`, "visited=yes"],
  };
  return { status, headers, body: status === 204 ? undefined : body };
}

async function* stream(count, fails) {
  for (let at = 0; at < count; at += 1) {
    yield Buffer.from(`chunk ${at}\n`);
    await sleep(20);
    if (fails) throw new Error("the stream broke");
  }
}

// Fetches a token, with retries until a deadline.

import { RETRY_AFTER, type IssuedToken, type TokenRequest } from "./wire_contract.js";

/** A token and its expiry, on this machine's clock. */
export interface TimedToken {
  token: string;
  until: number;
  /** Its lifetime, in milliseconds. */
  life: number;
}

/** Returns true if there is a token with more than a fifth of its lifetime left. */
export function isFresh(timed: TimedToken | undefined): timed is TimedToken {
  return !!timed && Date.now() < timed.until - timed.life / 5;
}

/** Waits for this many milliseconds. */
export function sleep(millis: number): Promise<void> {
  return new Promise((go) => setTimeout(go, millis));
}

/** Returns the delay before the next attempt, in milliseconds: `Retry-After`, or exponential backoff with full jitter. */
export function backoff(response: Response | undefined, attempts: number): number {
  return +response?.headers.get(RETRY_AFTER)! * 1000 || Math.random() * 250 * 2 ** attempts;
}

/** Returns a signal that aborts after `limit` milliseconds, or when another signal aborts. */
export function timeoutSignal(limit: number, ...others: AbortSignal[]): AbortSignal {
  return AbortSignal.any([AbortSignal.timeout(limit), ...others]);
}

/**
 * Fetches a token, with retries until the deadline. The error has the reason. If CORS does not allow the request, it fails without further
 * retries, and the `cause` names the setting.
 */
export async function fetchToken(
  fetch: typeof globalThis.fetch,
  url: URL,
  action: string | undefined,
  limit: number,
  ...outer: AbortSignal[]
): Promise<TimedToken> {
  const deadline = Date.now() + limit;
  const signal = timeoutSignal(limit, ...outer);
  const init: RequestInit = { method: "POST", signal };
  if (action) {
    init.headers = { "content-type": "application/json" };
    init.body = JSON.stringify({ action } satisfies TokenRequest);
  }
  const here = globalThis.location?.origin;
  /** The origin of the page and the CORS setting that does not contain it. */
  let cause: string | undefined;
  let isReached: unknown;
  for (let attempts = 1; ; attempts++) {
    let response: Response | undefined;
    try {
      response = await fetch(url, init);
      isReached = 0;
      const { token, expires_in }: IssuedToken = await response.json();
      const life = expires_in * 1000;
      if (token && life > 0) return { token, until: Date.now() + life, life };
    } catch {
      // No response, or one without a token: retried until the deadline.
      outer[0]?.throwIfAborted();
      // A script cannot distinguish a CORS failure from a network failure. If a request without CORS succeeds and the next one with it fails, it is CORS.
      if (isReached) cause ??= `${here} is not in cors_origins`;
      else if (here && here != url.origin && !response) isReached = await fetch(url, { mode: "no-cors", signal }).catch(() => {});
    }
    const status = response?.status ?? 503;
    const wait = backoff(response, attempts);
    const isHopeless = cause || (status < 500 && status != 429) || globalThis.navigator?.onLine === false;
    if (isHopeless || Date.now() + wait > deadline) {
      const error = Error(`Onceward: no token from ${url}: ${cause ?? status}`, { cause });
      if (cause) console.error(error);
      throw error;
    }
    await sleep(wait);
  }
}

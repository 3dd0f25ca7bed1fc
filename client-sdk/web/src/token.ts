// Fetching a token, with a limit to the waiting.

import { RETRY_AFTER, type IssuedToken, type TokenRequest } from "./wire_contract.js";

/** A token and until when it is good, by this machine's clock. */
export interface TimedToken {
  token: string;
  until: number;
  /** How long it lives, in milliseconds. */
  life: number;
}

/** Whether there is a token that has not yet come into the last fifth of its life. */
export function isFresh(timed: TimedToken | undefined): timed is TimedToken {
  return !!timed && Date.now() < timed.until - timed.life / 5;
}

/** Waits. */
export function sleep(millis: number): Promise<void> {
  return new Promise((go) => setTimeout(go, millis));
}

/** How long to wait after a response that says so, or else a little, each time more and never all at once. */
export function backoff(response: Response | undefined, attempts: number): number {
  return +response?.headers.get(RETRY_AFTER)! * 1000 || Math.random() * 250 * 2 ** attempts;
}

/** A signal that gives up after so many milliseconds, or when another one does. */
export function timeoutSignal(limit: number, ...others: AbortSignal[]): AbortSignal {
  return AbortSignal.any([AbortSignal.timeout(limit), ...others]);
}

/**
 * Asks for a token until there is one or the time is over. Fails with a sentence that says why there is none. Where CORS does not allow the
 * request, it fails at once, and its `cause` names the setting.
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
  /** The setting that keeps the page from fetching, and the origin that it lacks. */
  let cause: string | undefined;
  let isReached = false;
  for (let attempts = 1; ; attempts++) {
    let response: Response | undefined;
    try {
      response = await fetch(url, init);
      isReached = false;
      const { token, expires_in }: IssuedToken = await response.json();
      const life = expires_in * 1000;
      if (token && life > 0) return { token, until: Date.now() + life, life };
    } catch {
      // A response without a token, or none, is retried until the deadline.
      outer[0]?.throwIfAborted();
      // A script cannot tell a CORS failure from a network failure. If a request without CORS succeeds and the next one with it fails, it is CORS.
      if (isReached) cause ??= `${here} is not in cors_origins`;
      else if (here && here != url.origin && !response) isReached = await fetch(url, { mode: "no-cors", signal }).then(() => true, () => false);
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

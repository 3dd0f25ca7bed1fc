// Fetching a token, with a limit to the waiting.

import { HEADER, type IssuedToken, type TokenRequest } from "./wire.js";

/** A token and until when it is good, by this machine's clock. */
export interface Held {
  token: string;
  until: number;
  /** How long it lives, in milliseconds. */
  life: number;
}

/** Whether a token still has time enough to be sent. */
export function isGood(held: Held | undefined): held is Held {
  return !!held && Date.now() < held.until - Math.min(2000, held.life / 10);
}

/** Waits. */
export function pause(millis: number): Promise<void> {
  return new Promise((go) => setTimeout(go, millis));
}

/** How long to wait after an answer that says so, or else a little, each time more and never all at once. */
export function waitAfter(response: Response | undefined, tries: number): number {
  return +(response?.headers.get(HEADER.retryAfter) ?? 0) * 1000 || Math.random() * 250 * 2 ** tries;
}

/** A signal that gives up after so many milliseconds, or when the other one does. */
export function within(limit: number, outer = new AbortController().signal): AbortSignal {
  return AbortSignal.any([AbortSignal.timeout(limit), outer]);
}

/** Asks for a token until there is one or the time is over. Fails with a sentence that says why there is none. */
export async function fetchToken(
  fetch: typeof globalThis.fetch,
  url: URL,
  asked: TokenRequest | undefined,
  limit: number,
  outer?: AbortSignal,
): Promise<Held> {
  const deadline = Date.now() + limit;
  const init: RequestInit = { method: "POST", cache: "no-store", signal: within(limit, outer) };
  if (asked) {
    init.headers = { "content-type": "application/json" };
    init.body = JSON.stringify(asked);
  }
  for (let tries = 1; ; tries++) {
    let response: Response | undefined;
    try {
      response = await fetch(url, init);
      const { token, expires_in }: IssuedToken = await response.json();
      const life = expires_in * 1000;
      if (token && life > 0) return { token, until: Date.now() + life, life };
    } catch {
      // What is no token, and who does not answer, is asked again while there is time.
      outer?.throwIfAborted();
    }
    const status = response?.status ?? 503;
    const wait = waitAfter(response, tries);
    if ((status < 500 && status != 429) || Date.now() + wait > deadline) throw new Error(`Onceward: no token from ${url}: ${status}`);
    await pause(wait);
  }
}

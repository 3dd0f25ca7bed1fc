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
  return Number(response?.headers.get(HEADER.retryAfter)) * 1000 || Math.random() * 250 * 2 ** tries;
}

/** A signal that gives up at the deadline, or when the other one does. */
export function before(deadline: number, signal?: AbortSignal): AbortSignal {
  const timeout = AbortSignal.timeout(Math.max(0, deadline - Date.now()));
  return signal ? AbortSignal.any([timeout, signal]) : timeout;
}

/** Asks for a token until there is one or the time is over. Fails with a sentence that says why there is none. */
export async function fetchToken(
  fetch: typeof globalThis.fetch,
  url: URL,
  asked: TokenRequest,
  deadline: number,
  signal?: AbortSignal,
): Promise<Held> {
  const init: RequestInit = { method: "POST", cache: "no-store" };
  if (asked.action) {
    init.headers = { "content-type": "application/json" };
    init.body = JSON.stringify(asked);
  }
  for (let tries = 1; ; tries++) {
    let response: Response | undefined;
    try {
      response = await fetch(url, { ...init, signal: before(deadline, signal) });
      const { token, expires_in }: IssuedToken = await response.json();
      const life = expires_in * 1000;
      if (token && life > 0) return { token, until: Date.now() + life, life };
    } catch {
      signal?.throwIfAborted();
    }
    const status = response?.status ?? 503;
    const wait = waitAfter(response, tries);
    if ((status < 500 && status != 429) || Date.now() + wait > deadline) {
      throw new Error(`Onceward: no token from ${url}${response ? `, but ${status}` : ""}`);
    }
    await pause(wait);
  }
}

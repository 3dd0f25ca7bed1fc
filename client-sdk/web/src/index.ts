// A form or a fetch that takes effect once, however often it is sent. Importing this does nothing by itself.

import { messages, type Messages } from "./notice.js";
import { page } from "./page.js";
import { submit, type Result, type SubmissionInit } from "./submission.js";
import { fetchToken } from "./token.js";

export type { Messages, State } from "./notice.js";
export type { Result, SubmissionInit } from "./submission.js";
export type { Code, IssuedToken, Problem, Retry, TokenRequest } from "./wire.js";

/** Settings, all of them optional. */
export interface Options {
  /** Where tokens come from: `token` below this. The page's own origin if nothing is said. */
  baseUrl?: string;
  /** Other origins that tokens may be sent to, beside the page's own and that of `baseUrl`. */
  origins?: string[];
  /** Another `fetch`. */
  fetch?: typeof globalThis.fetch;
  /** How long all tries of one `fetch` may take together, in milliseconds: a minute. */
  limit?: number;
  /** How long a submit waits for a token, and a form for an answer, in milliseconds: 10 seconds. */
  patience?: number;
}

/** What makes submissions take effect once. */
export interface Onceward {
  /** Like `fetch`, with a token of its own or your key, the same over all tries. */
  fetch(url: string | URL, init?: SubmissionInit): Promise<Result>;
  /** Guards every `form[data-onceward]` of the page, also those that are added later. */
  watch(): void;
  /** For a page that sends a guarded form by itself: how it ended, or `null` if no answer came. */
  answered(form: HTMLFormElement, response: Response | null): void;
  /** What is told to people. Change it to tell it in other words. */
  messages: Messages;
}

/** Makes one. */
export function createOnceward(options: Options = {}): Onceward {
  const { limit = 60_000, patience = 10_000, origins = [] } = options;
  const here = globalThis.location?.href;
  const tokens = new URL((options.baseUrl ?? "").replace(/\/?$/, "/token"), here);
  const named = [here ?? tokens, tokens, ...origins].map((url) => new URL(url).origin);
  // Looked up when it is called, so that whoever replaces it is heard.
  const fetch: typeof globalThis.fetch = options.fetch ?? ((...call) => globalThis.fetch(...call));
  const token = (action?: string, ...signal: AbortSignal[]) =>
    fetchToken(fetch, tokens, action ? { action } : {}, patience, ...signal);
  const isNamed = (origin: string) => named.includes(origin);
  const forms = page({ token, isNamed, patience });
  const underWay = new Map<string, Promise<Result>>();

  return {
    messages,
    watch: forms.watch,
    answered: (form, response) => forms.of(form).answered(response),
    async fetch(url, init = {}) {
      const target = new URL(url, here ?? tokens);
      if (!isNamed(target.origin)) throw new Error(`Onceward: ${target.origin} is not in origins`);
      // A redirect to another origin would take the token along.
      const mode = init.mode ?? (target.origin == named[0] ? "same-origin" : "cors");
      const request = new Request(target, { ...init, mode });
      const send = () => submit({ fetch, token, limit }, request, init);
      if (!init.key) return send();
      const name = [request.method, target, init.key, init.body].join(" ");
      let result = underWay.get(name);
      if (!result) underWay.set(name, (result = send().finally(() => underWay.delete(name))));
      // The body of an answer can be read once: everybody gets a copy, and the answer itself is left unread for the others.
      const shared = await result;
      return { ...shared, response: shared.response?.clone() } as Result;
    },
  };
}

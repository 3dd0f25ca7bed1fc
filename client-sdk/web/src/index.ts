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
  baseUrl?: string | undefined;
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
  // `fetch` is looked up when it is called, so that whoever replaces it is heard.
  const { baseUrl = "", origins = [], fetch = (...call) => globalThis.fetch(...call), limit = 60_000, patience = 10_000 } = options;
  const tokens = new URL(baseUrl.replace(/\/?$/, "/token"), globalThis.location?.href);
  const here = globalThis.location?.href ?? tokens;
  const named = [here, tokens, ...origins].map((url) => new URL(url).origin);
  const token = (action?: string, ...signal: AbortSignal[]) =>
    fetchToken(fetch, tokens, action, patience, ...signal);
  const isNamed = (origin: string) => named.includes(origin);
  const forms = page({ token, isNamed, patience });
  const underWay = new Map<string, Promise<Result>>();

  return {
    messages,
    watch: forms.watch,
    answered: (form, response) => forms.of(form).answered(response),
    async fetch(url, init = {}) {
      const target = new URL(url, here);
      if (!isNamed(target.origin)) throw Error(`Onceward: ${target.origin} is not in origins`);
      // A redirect to another origin would take the token along. Only from the page's own can the browser tell which do.
      const stay: RequestInit = target.origin == named[0] ? { mode: "same-origin" } : { redirect: "error" };
      const request = new Request(target, { ...stay, ...init });
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

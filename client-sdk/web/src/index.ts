// A form or a fetch that takes effect once, however often it is sent. Importing this does nothing by itself.

import { digest } from "./digest.js";
import { messages, type Messages } from "./form_status.js";
import { pageForms } from "./page_forms.js";
import { sharedCalls } from "./shared_calls.js";
import { submit, type Result, type SubmissionInit } from "./submission.js";
import { fetchToken } from "./token.js";
import { FIELD } from "./wire_contract.js";

export type { FormState, Messages } from "./form_status.js";
export type { Result, SubmissionInit } from "./submission.js";
export type { Code, IssuedToken, Problem, Retry, TokenRequest } from "./wire_contract.js";

/** Settings, all of them optional. */
export interface Options {
  /** Where tokens come from: `token` below this. The page's own origin if nothing is said. */
  baseUrl?: string | undefined;
  /** Other origins that tokens may be sent to, beside the page's own and that of `baseUrl`. */
  origins?: string[];
  /** Another `fetch`. */
  fetch?: typeof globalThis.fetch;
  /** How long all attempts of one `fetch` may take together, in milliseconds: a minute. */
  limit?: number;
  /** How long a submit waits for a token, and a form for a response, in milliseconds: 10 seconds. */
  patience?: number;
}

/** What makes submissions take effect once. */
export interface Onceward {
  /**
   * Like `fetch`, with a token of its own or your key, the same over all attempts. Each call is one submission: two calls are two orders, unless
   * both name the same `key`, or the same `form` with the same content, while the first is in flight or, for a form, within a second.
   */
  fetch(url: string | URL, init?: SubmissionInit): Promise<Result>;
  /** Guards every `form[data-onceward]` of the page, also those that are added later. */
  watch(): void;
  /** For a page that sends a guarded form by itself: how its last submit ended, or `null` if no response came. Another form is not affected. */
  answered(form: HTMLFormElement, response: Response | null): void;
  /**
   * Fetches a token for code that sends by itself, in the header `Onceward-Token` or the field `_onceward`. Each call returns a new token, good
   * for one submission. With a form, calls for the same content within a second return the same token, unless the form is edited or reset in
   * between; in the submit handler of a guarded form it is the token that the form's data contains.
   */
  token(form?: HTMLFormElement): Promise<string>;
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
  const isAllowedOrigin = (origin: string) => named.includes(origin);
  const forms = pageForms({ token, isAllowedOrigin, patience });
  const share = sharedCalls();

  return {
    messages,
    watch: forms.watch,
    answered: (form, response) => forms.all.get(form)?.answered(response),
    async token(form) {
      const fresh = () => token(form?.dataset.oncewardAction);
      return (form && forms.all.get(form)?.attemptToken()) || (await share(form ?? fresh, digest(new FormData(form), 0), fresh, form)).token;
    },
    async fetch(url, given = {}) {
      // A member that is undefined is one that is not there.
      const init: SubmissionInit = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
      const target = new URL(url, here);
      if (!isAllowedOrigin(target.origin)) throw Error(`Onceward: ${target.origin} is not in origins`);
      // A redirect to another origin would take the token along. Only from the page's own can the browser tell which do.
      const stay: RequestInit = target.origin == named[0] ? { mode: "same-origin" } : { redirect: "error" };
      const { form, key } = init;
      const body = init.body ?? (form && new FormData(form));
      // The token goes into a header, and a server rejects a request with two different tokens.
      if (form) (body as FormData).delete?.(FIELD);
      const request = new Request(target, { ...stay, ...(form && { method: "POST", body }), ...init });
      const send = () => submit({ fetch, token, limit }, request, init);
      if (!form && !key) return send();
      const name = [request.method, target, key, body].join(" ");
      // The body of a response can be read once: each caller gets a copy, and the response itself is left unread for the others.
      const content = digest(body instanceof FormData ? body : new FormData(form), name);
      const shared = await share(key ? name : form, content, send, form);
      return { ...shared, response: shared.response?.clone() } as Result;
    },
  };
}

// Forms and `fetch` calls that take effect once, also across retries. Importing this module has no side effects.

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

/** Optional settings. */
export interface Options {
  /** Base URL for tokens: they are fetched from `baseUrl` + `/token`. Default: the page's own origin. */
  baseUrl?: string | undefined;
  /** `"all"`: `watch` guards every POST form, also without `data-onceward`. Default: only forms with `data-onceward`. */
  forms?: "all" | undefined;
  /** Further origins that tokens may be sent to, besides the page's own and that of `baseUrl`. */
  origins?: string[];
  /** A replacement for the global `fetch`. */
  fetch?: typeof globalThis.fetch;
  /** Deadline for all attempts of one `fetch`, in milliseconds. Default: one minute. */
  limit?: number;
  /** Maximum time that a submit waits for a token, and a form for a response, in milliseconds. Default: 10 seconds. */
  patience?: number;
}

/** The API of this package. */
export interface Onceward {
  /**
   * Like `fetch`, with retries that all carry the same token or key. Each call is one submission: two calls are two orders, unless both have the
   * same `key`, or the same `form` with the same content, while the first is in flight or, for a form, within a second.
   */
  fetch(url: string | URL, init?: SubmissionInit): Promise<Result>;
  /** Guards every `form[data-onceward]` of the page, or every POST form (see `Options.forms`), also those that are added later. */
  watch(): void;
  /** Reports the response to the last submit of a guarded form that the page sends itself, or `null` if none came. */
  answered(form: HTMLFormElement, response: Response | null): void;
  /**
   * Fetches a token for code that sends it itself, in the header `Onceward-Token` or the field `_onceward`. Each call returns a new token, valid
   * for one submission. With a form, calls for the same content within a second return the same token, unless the form is edited or reset in
   * between; in the submit handler of a guarded form it is the token in the form's data.
   */
  token(form?: HTMLFormElement): Promise<string>;
  /** The messages shown to users. Assign your own texts to change or translate them. */
  messages: Messages;
}

/** Creates the API. It guards no form until `watch` is called. */
export function createOnceward(options: Options = {}): Onceward {
  // The global `fetch` is looked up on each call, since a page may replace it.
  const { baseUrl = "", origins = [], fetch = (...call) => globalThis.fetch(...call), limit = 60_000, patience = 10_000 } = options;
  const tokens = new URL(baseUrl.replace(/\/?$/, "/token"), globalThis.location?.href);
  const here = globalThis.location?.href ?? tokens;
  const named = [here, tokens, ...origins].map((url) => new URL(url).origin);
  const token = (action?: string, ...signal: AbortSignal[]) =>
    fetchToken(fetch, tokens, action, patience, ...signal);
  const isAllowedOrigin = (origin: string) => named.includes(origin);
  const forms = pageForms({ token, isAllowedOrigin, patience }, options.forms == "all");
  const share = sharedCalls();

  return {
    messages,
    watch: forms.watch,
    answered: (form, response) => forms.all.get(form)?.answered(response),
    async token(form) {
      const fresh = () => token(form?.dataset.oncewardAction);
      return (form && forms.all.get(form)?.attemptToken()) || (await share(form ?? fresh, digest(new FormData(form), 0), fresh, form)).token;
    },
    async fetch(url, init = {}) {
      const target = new URL(url, here);
      if (!isAllowedOrigin(target.origin)) throw Error(`Onceward: ${target.origin} is not in origins`);
      // A redirect to another origin would carry the token. The browser can only prevent that for the page's own origin.
      const [member, stay] = target.origin == named[0] ? (["mode", "same-origin"] as const) : (["redirect", "error"] as const);
      const { form, key } = init;
      const body = init.body ?? (form && new FormData(form));
      // The token is sent in a header, and a server rejects a request with two different tokens.
      if (form) (body as FormData).delete?.(FIELD);
      const request = new Request(target, { ...init, [member]: init[member] ?? stay, method: init.method ?? (form && "POST"), body } as RequestInit);
      const send = () => submit({ fetch, token, limit }, request, init);
      // Blobs, buffers and streams have no text to compare. A typed array has: its numbers.
      if (!key && (!form || /^\[object (?!Fo)/.test(body as string))) return send();
      const name = request.method + target + key + body;
      // A body can be read once: each caller receives a clone, and the shared response stays unread.
      const content = digest(body instanceof FormData ? body : new FormData(form), name);
      const shared = await share(key ? name : form, content, send, form);
      return { ...shared, response: shared.response?.clone() } as Result;
    },
  };
}

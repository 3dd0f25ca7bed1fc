// The submissions of one component, for the hooks: at most one is in flight, and one with an unknown outcome keeps its token.

import { digest } from "./digest.js";
import { createOnceward, type Onceward, type Options, type Result } from "./index.js";
import { sharedCalls } from "./shared_calls.js";
import { FIELD, TOKEN } from "./wire_contract.js";

/** The state that a component shows. */
export interface SubmissionState {
  /** True while a submission is in flight. */
  pending: boolean;
  /** The result of the last submission. */
  result?: Result | undefined;
}

/** The settings of `createOnceward`, and those of the request. */
export interface SubmitOptions extends Options {
  /** Default: POST. */
  method?: string;
  headers?: HeadersInit;
  /** The action that the token is bound to, as in `POST /orders`. */
  action?: string;
}

/** An event of a form or a button, as of the browser or of a framework. */
export interface SubmitLikeEvent {
  preventDefault(): void;
  currentTarget: EventTarget | null;
  target: EventTarget | null;
  nativeEvent?: unknown;
}

/** What is sent: the form of an event, a body, or an object or array as JSON. Without it, or with a button's event, the body is empty. */
export type Submittable = SubmitLikeEvent | BodyInit | object;

/** Sends a submission, or returns the result of the one in flight. Never rejects. */
export type ComponentSubmit = (url: string | URL, options: SubmitOptions, given?: Submittable) => Promise<Result>;

/** Creates the `submit` of one component. `show` receives each new state. */
export function componentSubmit(show: (state: SubmissionState) => void): ComponentSubmit {
  const share = sharedCalls();
  let onceward: Onceward | undefined;
  let inFlight: Promise<Result> | undefined;
  /** The token of the last attempt; the content of the last submission, if its outcome is unknown. */
  let token: string | null = null;
  let open: number | undefined;

  async function run(url: string | URL, { method = "POST", headers, action, ...settings }: SubmitOptions, body: BodyInit | undefined, content: number, type?: string) {
    const { fetch = (...call) => globalThis.fetch(...call) } = settings;
    const seen: typeof fetch = (request, init) => {
      token = (request as Request).headers?.get(TOKEN) ?? token;
      return fetch(request, init);
    };
    onceward ??= createOnceward({ ...settings, fetch: seen });
    const sent = new Headers(headers);
    if (type && !sent.has("content-type")) sent.set("content-type", type);
    const isRepeated = open == content && token;
    if (isRepeated) sent.set(TOKEN, isRepeated);
    const init = { method, headers: sent, body: body ?? null, ...(action && { action }) };
    // Only a wrong argument is thrown: nothing was sent.
    const result = await onceward.fetch(url, init).catch((error): Result => ({ outcome: "rejected", error }));
    open = result.outcome == "unknown" ? content : undefined;
    // If a repeated attempt is rejected, an earlier one may have run.
    if (isRepeated && result.outcome == "rejected") result.outcome = "unknown";
    return result;
  }

  return (url, options, given) => {
    const event = given && "preventDefault" in (given as object) ? (given as SubmitLikeEvent) : undefined;
    event?.preventDefault();
    // A framework clears `currentTarget` after the handler.
    const element = event?.currentTarget ?? event?.target ?? undefined;
    const { body, type } = event ? { body: fieldsOf(element, event), type: undefined } : bodyOf(given);
    const content = digest(isEntries(body) ? body : new FormData(), [`${url}`, isEntries(body) ? "" : body]);
    const begin = () => {
      show({ pending: true });
      return (inFlight = run(url, options, body, content, type).then((result) => {
        inFlight = undefined;
        show({ pending: false, result: copyOf(result) });
        return result;
      }));
    };
    // A click that follows within a second, with the same content, belongs to the same double click, also after the response.
    return (inFlight ?? share(element ?? begin, content, begin, element)).then(copyOf);
  };
}

/** Returns the fields of a form with its pressed button, without the token of a guarded form: it is sent in a header. */
function fieldsOf(form: EventTarget | undefined, event: SubmitLikeEvent): FormData | undefined {
  if (!(form instanceof HTMLFormElement)) return;
  const { submitter } = (event.nativeEvent ?? event) as SubmitEvent;
  const data = new FormData(form, submitter);
  data.delete(FIELD);
  return data;
}

/** Returns the body, and its type if the browser does not set it. */
function bodyOf(given: Submittable | undefined): { body: BodyInit | undefined; type?: string } {
  const isJson = given && [Object.prototype, Array.prototype, null].includes(Object.getPrototypeOf(given));
  return isJson ? { body: JSON.stringify(given), type: "application/json" } : { body: given as BodyInit | undefined };
}

function isEntries(body: unknown): body is FormData {
  return body instanceof FormData || body instanceof URLSearchParams;
}

/** A body can be read once: each caller receives a copy of the response. */
function copyOf(result: Result): Result {
  return { ...result, response: result.response?.clone() } as Result;
}

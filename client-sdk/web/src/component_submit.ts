// The submissions of one component, for the hooks: one is in flight at a time, and those with an unknown outcome keep their token.

import { digestOf } from "./body_digest.js";
import { createOnceward, type Options, type Result } from "./index.js";
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

/**
 * What is sent: the form of an event, a body, or any other object as JSON. Without it, or with a button's event, the body is empty. Two calls
 * have the same content if URL, method and fields, text or bytes are the same. A stream is never the same.
 */
export type Submittable = SubmitLikeEvent | BodyInit | object;

/** Sends a submission, or returns the result of one with the same content. Never rejects. */
export type ComponentSubmit = (url: string | URL, options: SubmitOptions, given?: Submittable) => Promise<Result>;

/** A request that is compared, and sent. */
interface Sent {
  body: BodyInit | undefined;
  /** The type of the body, if the browser does not set it. */
  type?: string | undefined;
  content: number;
}

/** Creates the `submit` of one component. `show` receives each new state. */
export function componentSubmit(show: (state: SubmissionState) => void): ComponentSubmit {
  const share = sharedCalls();
  /** Stands in for the element of an event. */
  const component = new EventTarget();
  /** The submissions that have no result yet, by content: the first is in flight, and the others follow one by one. */
  const open = new Map<number, Promise<Result>>();
  let last: Promise<unknown> = Promise.resolve();
  /** The tokens of submissions with an unknown outcome, by content: another call continues the same submission. */
  const tokens = new Map<number, string>();

  async function run(url: string | URL, { method = "POST", headers, action, ...settings }: SubmitOptions, { body, type, content }: Sent): Promise<Result> {
    const { fetch = (...call) => globalThis.fetch(...call) } = settings;
    const earlier = tokens.get(content);
    let token: string | null = null;
    const seen: typeof fetch = (request, init) => {
      token = (request as Request).headers?.get(TOKEN) ?? token;
      return fetch(request, init);
    };
    let result: Result;
    try {
      const sent = new Headers(headers);
      if (type && !sent.has("content-type")) sent.set("content-type", type);
      if (earlier) sent.set(TOKEN, earlier);
      const init = { method, headers: sent, body: body ?? null, ...(action && { action }) };
      result = await createOnceward({ ...settings, fetch: seen }).fetch(url, init);
    } catch (error) {
      // Only a wrong argument is thrown: nothing was sent.
      result = { outcome: "rejected", error };
    }
    // If a repeated attempt is rejected, an earlier one may have run.
    if (earlier && result.outcome == "rejected") result.outcome = "unknown";
    const kept = token ?? earlier;
    if (result.outcome == "unknown" && kept) tokens.set(content, kept);
    else tokens.delete(content);
    return result;
  }

  /** Sends a submission after those before it. */
  function begin(send: () => Promise<Result>, content: number): Promise<Result> {
    show({ pending: true });
    const result = last.then(send).then((result) => {
      open.delete(content);
      show({ pending: open.size > 0, result: copyOf(result) });
      return result;
    });
    open.set(content, result);
    last = result;
    return result;
  }

  return async (url, options, given) => {
    const event = eventOf(given);
    event?.preventDefault();
    // A framework clears `currentTarget` after the handler.
    const element = event?.currentTarget ?? event?.target ?? undefined;
    let sent: Sent;
    try {
      const { body, type } = event ? { body: fieldsOf(element, event), type: undefined } : bodyOf(given);
      const content = digestOf(body, [options.method, `${url}`]);
      // Only the bytes of a blob are awaited: a component shows at once that a submission is in flight.
      sent = { body, type, content: content instanceof Promise ? await content : content };
    } catch (error) {
      // JSON cannot be written for a cycle. Nothing was sent.
      const result: Result = { outcome: "rejected", error };
      show({ pending: open.size > 0, result });
      return result;
    }
    const start = () => begin(() => run(url, options, sent), sent.content);
    // A click that follows within a second, with the same content, belongs to the same double click, also after the response.
    const owner = element ?? component;
    return copyOf(await (open.get(sent.content) ?? share(owner, sent.content, start, owner)));
  };
}

function eventOf(given: Submittable | undefined): SubmitLikeEvent | undefined {
  return typeof given == "object" && given && "preventDefault" in given ? (given as SubmitLikeEvent) : undefined;
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
  if (given === undefined || given === null) return { body: undefined };
  // `fetch` sends these as they are.
  const isBody = typeof given == "string" || ArrayBuffer.isView(given) || [FormData, URLSearchParams, Blob, ArrayBuffer, ReadableStream].some((type) => given instanceof type);
  return isBody ? { body: given as BodyInit } : { body: JSON.stringify(given), type: "application/json" };
}

/** A body can be read once: each caller receives a copy of the response. */
function copyOf(result: Result): Result {
  return { ...result, response: result.response?.clone() } as Result;
}

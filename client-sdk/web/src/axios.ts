// Requests sent by axios. Importing this module has no side effects.

import { getAdapter, type AxiosInstance, type AxiosResponse, type InternalAxiosRequestConfig } from "axios";
import { digestOf } from "./body_digest.js";
import { reportResponse } from "./form_response.js";
import { createOnceward, type Onceward, type Options, type Result } from "./index.js";
import { sharedCalls, type ShareCall } from "./shared_calls.js";
import { FIELD, TOKEN } from "./wire_contract.js";

declare global {
  /** Defined by the script of this package. */
  var onceward: Onceward;
}

declare module "axios" {
  interface AxiosRequestConfig {
    onceward?: RequestSettings | undefined;
  }
}

/** The settings of one request, and its outcome: `axios.post(url, data, { onceward: { key: "order-4711" } })`. */
export interface RequestSettings {
  /** Your own idempotency key, sent instead of a token. */
  key?: string;
  /** The action that the token is bound to, as in `POST /orders`. */
  action?: string;
  /** Set on `response.config` and `error.config`. */
  outcome?: Result["outcome"];
}

/** The settings of `createOnceward`, and the instance that guards the page's forms. Default: that of the script. */
export interface AxiosOptions extends Options {
  onceward?: Onceward;
}

/** A result, and the token that was sent. */
interface Sent {
  result: Result;
  token: string | undefined;
}

/**
 * Sends each request except GET, HEAD and OPTIONS with a token or key, and with retries, as `fetch` of this package does. `axios(error.config)`
 * repeats the same submission. Requests to other origins are not changed.
 */
export function guardAxios<T extends AxiosInstance>(instance: T, { onceward, ...options }: AxiosOptions = {}): T {
  const clicks = new WeakMap<HTMLFormElement, ShareCall>();

  instance.interceptors.request.use(
    (config) => {
      // A function is a mock or the application's own, or it was set below: for `axios(error.config)`.
      if (!globalThis.location || /^(get|head|options)$/i.test(config.method!) || typeof config.adapter == "function") return config;
      const origins = [location.href, options.baseUrl ?? "", ...(options.origins ?? [])].map(originOf);
      if (!origins.includes(originOf(instance.getUri(config)))) return config;
      const form = formOf(config.data);
      config.adapter = (config) => adapt(config, form);
      return config;
    },
    null,
    // Called in the submit event.
    { synchronous: true },
  );

  function adapt({ ...config }: InternalAxiosRequestConfig, form: HTMLFormElement | undefined): Promise<AxiosResponse> {
    const { data, headers, onceward: settings, method } = config;
    const field: string | undefined = data?.get?.(FIELD);
    // The token of a guarded form.
    if (field) headers.set(TOKEN, field);
    const call = async (request: Request) => {
      const begin = () => send(options, request, settings);
      const { result, token } = await (form ? clicksOf(form)(`${method} ${request.url}`, await digestOf(data, []), begin, form) : begin());
      // If a repeated attempt is rejected, the earlier one may have run.
      if (settings?.outcome == "unknown" && result.outcome == "rejected") result.outcome = "unknown";
      config.onceward = { ...settings, outcome: result.outcome };
      // The caller may repeat the submission with this config. If nothing ran, it uses a new token.
      if (token && result.outcome != "rejected") headers.set(TOKEN, token);
      const response = result.response?.clone();
      const page: Onceward | undefined = onceward ?? globalThis.onceward;
      if (field && page) reportResponse(page, form, data, response ?? null);
      if (!response) throw (result as { error?: unknown }).error;
      return response;
    };
    config.fetchOptions = { ...config.fetchOptions, call };
    return getAdapter("fetch", { env: { ...config.env, fetch: callOf } })(config);
  }

  /** Returns the calls of a form: the same request within a double click is sent once. */
  function clicksOf(form: HTMLFormElement): ShareCall {
    let share = clicks.get(form);
    if (!share) clicks.set(form, (share = sharedCalls()));
    return share;
  }

  return instance;
}

/** The `fetch` for axios, which keeps each function that it receives. */
function callOf(request: unknown, init: unknown): Promise<Response> {
  return (init as { call: (request: unknown) => Promise<Response> }).call(request);
}

/** Sends a request, and records its token. */
async function send(options: Options, request: Request, { key, action }: RequestSettings = {}): Promise<Sent> {
  const { fetch = (...call) => globalThis.fetch(...call) } = options;
  let token: string | null = null;
  let isSent = false;
  const seen: typeof fetch = (attempt, init) => {
    token = (attempt as Request).headers?.get(TOKEN) ?? token;
    // A token is fetched by its URL, and the request itself is a `Request`.
    isSent ||= attempt instanceof Request;
    return fetch(attempt, init);
  };
  const { url, method, headers, credentials, signal } = request;
  const body = await request.blob();
  const init = { method, headers, credentials, signal, body: body.size ? body : null, ...(key && { key }), ...(action && { action }) };
  const result = await createOnceward({ ...options, fetch: seen }).fetch(url, init).catch((error): Result => {
    // The caller's signal, or the timeout of axios: nothing ran if the token, or the key, was not sent.
    return { outcome: isSent ? "unknown" : "rejected", error };
  });
  return { result, token: token ?? undefined };
}

/** Returns the form that is sent: as the data, or in its submit event. */
function formOf(data: unknown): HTMLFormElement | undefined {
  const { type, target } = globalThis.event ?? {};
  const form = data instanceof HTMLFormElement ? data : type == "submit" && target;
  return form instanceof HTMLFormElement ? form : undefined;
}

function originOf(url: string): string {
  return new URL(url, location.href).origin;
}

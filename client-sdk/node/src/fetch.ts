// Handlers of the Fetch API, `(request) => Promise<Response>`, as in Hono, Next.js, Deno and Bun.
//
//     export const POST = protectKey(new Onceward(url), { subject: (request) => userOf(request) }, createOrder);

import { setImmediate } from "node:timers/promises";
import type { Onceward } from "./onceward.js";
import { type BodyFacts, isClaimed, type KeyOptions, type OwnResponse, Protection, type RequestFacts, type TokenOptions } from "./protection.js";
import { ProtectedRun } from "./protected_run.js";
import type { Header } from "./reply.js";

export * from "./index.js";

/** A handler. Frameworks pass more arguments, such as a context. */
export type Handler<A extends unknown[] = []> = (request: Request, ...more: A) => Response | Promise<Response>;

/** Options of handlers of the Fetch API. */
export interface FetchOptions {
  /** Turns an error of the handler into a response, which then reports the outcome. By default the error is thrown again. */
  onError?: (error: unknown) => Response | Promise<Response>;
}

/** A handler that runs once. */
export type Protected<A extends unknown[]> = (request: Request, ...more: A) => Promise<Response>;

/** Runs the handler once per `Idempotency-Key`; a duplicate receives the stored response. */
export function protectKey<A extends unknown[]>(onceward: Onceward, options: KeyOptions<Request> & FetchOptions, handler: Handler<A>): Protected<A> {
  return protect(new Protection(onceward, "key", options), options, handler);
}

/** Runs the handler once per token, from the header `Onceward-Token` or the form field `_onceward`. */
export function protectToken<A extends unknown[]>(onceward: Onceward, options: TokenOptions<Request> & FetchOptions, handler: Handler<A>): Protected<A> {
  return protect(new Protection(onceward, "token", options), options, handler);
}

function protect<A extends unknown[]>(protection: Protection<Request>, { onError }: FetchOptions, handler: Handler<A>): Protected<A> {
  return async (request, ...more) => {
    if (!isClaimed(request.method)) return handler(request, ...more);
    const admitted = await protection.admit(request, factsOf(request), () => readBody(request, protection.bodyLimit));
    if (!(admitted instanceof ProtectedRun)) return ownResponse(admitted);
    return respond(admitted, protection.replyLimit, await runHandler(admitted, onError, async () => handler(request, ...more)));
  };
}

async function runHandler(run: ProtectedRun, onError: FetchOptions["onError"], handler: () => Promise<Response>): Promise<Response> {
  try {
    return await run.enter(handler);
  } catch (error) {
    run.noteError(error);
    if (onError) return onError(error);
    await run.settleError();
    throw error;
  }
}

/** Settles the run by its response. */
async function respond(run: ProtectedRun, limit: number, response: Response): Promise<Response> {
  const { status, headers } = response;
  const body = response.body ? await readWhole(response.clone().body, limit) : new Uint8Array();
  return withHeaders(response, await run.settle({ status, headers, body }));
}

function factsOf({ method, url, headers }: Request): RequestFacts {
  const { pathname, search } = new URL(url);
  const contentType = headers.get("content-type") ?? "";
  return { method, path: pathname, query: search.slice(1), contentType, header: (name) => headers.get(name) ?? undefined };
}

/** Reads the body from a copy, so that the handler receives the request as it was. */
async function readBody(request: Request, limit: number): Promise<BodyFacts | undefined> {
  if (!request.body) return { bytes: new Uint8Array() };
  if (Number(request.headers.get("content-length") ?? 0) > limit) return undefined;
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of request.clone().body as AsyncIterable<Uint8Array>) {
    size += chunk.length;
    if (size > limit) return undefined;
    chunks.push(chunk);
  }
  return { bytes: Buffer.concat(chunks) };
}

/**
 * Reads a body that is there as a whole. Returns `undefined` for one that is streamed, or larger than `limit`.
 *
 * The Fetch API does not tell text or bytes from a stream. Their chunks are there at once; those of a stream are awaited.
 */
async function readWhole(body: ReadableStream<Uint8Array> | null, limit: number): Promise<Uint8Array | undefined> {
  const reader = body?.getReader();
  if (!reader) return new Uint8Array();
  const chunks: Uint8Array[] = [];
  for (let size = 0; size <= limit; ) {
    const next = await Promise.race([reader.read(), setImmediate("streamed" as const)]).catch(() => "streamed" as const);
    if (next === "streamed") break;
    if (next.done) return Buffer.concat(chunks);
    chunks.push(next.value);
    size += next.value.length;
  }
  // The other branch of the body goes on to the client.
  void reader.cancel().catch(() => undefined);
  return undefined;
}

/** Returns the response with more headers. Those of some responses, such as redirects, cannot be changed in place. */
function withHeaders(response: Response, added: Header[]): Response {
  const headers = new Headers(response.headers);
  for (const [name, value] of added) headers.append(name, value);
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}

const WITHOUT_BODY = [204, 205, 304];

function ownResponse({ status, headers, body }: OwnResponse): Response {
  const list = headers.map(([name, value]): [string, string] => [name, value]);
  return new Response(WITHOUT_BODY.includes(status) ? null : (body as Uint8Array<ArrayBuffer>), { status, headers: list });
}

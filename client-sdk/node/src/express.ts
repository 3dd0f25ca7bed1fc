// Middleware for Express 5, and for anything else with `(req, res, next)` on `node:http`.
//
//     app.post("/orders", protectKey(new Onceward(url), { subject: (req) => req.user.id }), createOrder);

import type { ServerResponse } from "node:http";
import { captureResponse } from "./captured_response.js";
import { boundary, canonicalJson } from "./fingerprint.js";
import { Aborted, type NodeRequest, readBody } from "./node_body.js";
import { factsOf, isOver, sendOwn } from "./node_exchange.js";
import type { Onceward } from "./onceward.js";
import { type BodyFacts, isClaimed, type KeyOptions, Protection, type TokenOptions } from "./protection.js";
import { ProtectedRun } from "./protected_run.js";
import { FIELD } from "./token_field.js";

export * from "./index.js";

/** The request of Express, as far as a `subject` usually needs it. For the rest, name its type: `protectKey<express.Request>(…)`. */
export type ExpressRequest = NodeRequest & { get(name: string): string | undefined };

type Next = (error?: unknown) => void;
export type Middleware<R> = (request: R, response: ServerResponse, next: Next) => void;

/** Runs the handlers behind it once per `Idempotency-Key`; a duplicate receives the stored response. */
export function protectKey<R extends NodeRequest = ExpressRequest>(onceward: Onceward, options: KeyOptions<R>): Middleware<R> {
  return middleware(new Protection(onceward, "key", options));
}

/** Runs the handlers behind it once per token, from the header `Onceward-Token` or the form field `_onceward`. */
export function protectToken<R extends NodeRequest = ExpressRequest>(onceward: Onceward, options: TokenOptions<R>): Middleware<R> {
  return middleware(new Protection(onceward, "token", options));
}

function middleware<R extends NodeRequest>(protection: Protection<R>): Middleware<R> {
  return (request, response, next) => {
    if (!isClaimed(request.method ?? "")) return next();
    protect(protection, request, response, next).catch((error: unknown) => {
      if (error instanceof Aborted) return;
      if (!isOver(request, response)) return next(error);
      // An error handler would close the connection, on which another request may have arrived.
      protection.log(`a request failed after its response was sent, or its client left: ${error}`);
    });
  };
}

async function protect<R extends NodeRequest>(protection: Protection<R>, request: R, response: ServerResponse, next: Next): Promise<void> {
  const admitted = await protection.admit(request, factsOf(request), () => bodyOf(request, protection.bodyLimit));
  const isRun = admitted instanceof ProtectedRun;
  // A parser would wait for the body, and the claim with it.
  if (isOver(request, response)) return void (isRun && (await admitted.settleUnentered()));
  if (!isRun) return sendOwn(response, admitted);
  captureResponse(response, protection.replyLimit, (captured) => admitted.settle(captured));
  admitted.enter(next);
}

async function bodyOf(request: NodeRequest, limit: number): Promise<BodyFacts | undefined> {
  if (isRead(request)) return parsedBody(request);
  const bytes = await readBody(request, limit);
  return bytes && { bytes };
}

/** Whether a parser before this middleware has read the body. */
function isRead(request: NodeRequest): boolean {
  return request.readableDidRead && request.readableEnded;
}

/** Returns a body that a parser has read before: its bytes, or the JSON of the parsed value, which is what the handler receives. */
function parsedBody({ body, headers }: NodeRequest): BodyFacts {
  // The files of a form would not be compared.
  if (body === undefined || boundary(headers["content-type"] ?? "")) throw new Error("another middleware has read the body: put Onceward before it");
  if (body instanceof Uint8Array) return { bytes: body };
  const field = typeof body === "object" && body !== null ? (body as Record<string, unknown>)[FIELD] : undefined;
  return { bytes: Buffer.from(canonicalJson(body)), field: typeof field === "string" ? field : undefined };
}

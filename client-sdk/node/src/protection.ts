// The protection of a route, for every framework: which requests are claimed, and what the client receives.

import type { ClaimOptions, Intent } from "./intent.js";
import { Claim } from "./claim.js";
import { fingerprint } from "./fingerprint.js";
import { parseKey } from "./key_header.js";
import { isLook } from "./look_header.js";
import type { Onceward } from "./onceward.js";
import { BackendRejected, createProblem, type OwnCode, type Problem, Rejected } from "./problem.js";
import type { Header, Reply } from "./reply.js";
import { ProtectedRun } from "./protected_run.js";
import type { Log } from "./service.js";
import { outcomeHeaders } from "./outcome.js";
import { type Subject, subjectText } from "./subject.js";
import { tokenField } from "./token_field.js";

/** Options of a protected route. `R` is the framework's request. */
export interface ProtectOptions<R> extends ClaimOptions {
  /**
   * The client, as the application knows it, such as the id of its user. One client never receives the response to another. `undefined`
   * rejects the request with 401. `anonymous` makes all clients one. Take it from your authentication: a client can choose what a header says.
   */
  subject: (request: R) => Subject | null | undefined | Promise<Subject | null | undefined>;
  /** The operation. Default: method and path, such as `POST /orders`. */
  action?: string;
  /** The maximum size of a request body. Default: 256 KiB. */
  bodyLimit?: number;
  /** The maximum size of a response body that is stored. Default: 1 MiB. */
  replyLimit?: number;
  /** Names of more response headers to store. */
  keepHeaders?: readonly string[];
}

export interface KeyOptions<R> extends ProtectOptions<R> {
  /** `false`: after a crash the key is free when its lease expires, so the handler may run again. Default: `true`. */
  atMostOnce?: boolean;
}

export interface TokenOptions<R> extends ProtectOptions<R> {
  /** Accept only a token that was issued for this action and subject. Default: `false`. */
  bound?: boolean;
}

/** A subject for routes without users: all clients are one. */
export function anonymous(): string {
  return "anonymous";
}

/** A request, as every framework shows it. */
export interface RequestFacts {
  readonly method: string;
  /** The path, as sent, without the query. */
  readonly path: string;
  /** The query, as sent, without the question mark. */
  readonly query: string;
  readonly contentType: string;
  /** Returns a header, by its name in lower case. It may be empty; `undefined` if it was not sent. */
  readonly header: (name: string) => string | undefined;
}

/** The whole body of a request, and the token in its form if another parser has read that. */
export interface BodyFacts {
  readonly bytes: Uint8Array;
  readonly field?: string | undefined;
}

/** A response of this package, in place of the handler's. */
export interface OwnResponse {
  readonly status: number;
  readonly headers: readonly Header[];
  readonly body: Uint8Array;
}

const UNTOUCHED = ["GET", "HEAD", "OPTIONS"];

/** Returns whether requests with this method are claimed. */
export function isClaimed(method: string): boolean {
  return !UNTOUCHED.includes(method.toUpperCase());
}

/** The protection of a route. */
export class Protection<R> {
  readonly bodyLimit: number;
  readonly replyLimit: number;
  readonly keepHeaders: readonly string[];
  readonly log: Log;
  #onceward: Onceward;
  #source: "key" | "token";
  #options: KeyOptions<R> & TokenOptions<R>;

  constructor(onceward: Onceward, source: "key" | "token", options: KeyOptions<R> & TokenOptions<R>) {
    if (typeof options?.subject !== "function") {
      throw new Error("subject is required: a function that returns the id of the client, or `anonymous`");
    }
    this.bodyLimit = options.bodyLimit ?? 256 * 1024;
    this.replyLimit = options.replyLimit ?? 1024 * 1024;
    this.keepHeaders = (options.keepHeaders ?? []).map((name) => name.toLowerCase());
    this.log = onceward.log;
    this.#onceward = onceward;
    this.#source = source;
    this.#options = options;
  }

  /**
   * Claims a request. Returns the run of its handler, or the response in place of it. A request that only looks is not claimed. `body` reads
   * the body, and returns `undefined` if it is too large.
   */
  async admit(request: R, facts: RequestFacts, body: () => Promise<BodyFacts | undefined>): Promise<ProtectedRun | OwnResponse> {
    try {
      const intent = await this.#intent(request, facts, body);
      if (isLook(facts.header("onceward-look"))) return replayed(await this.#onceward.lookUp(intent));
      const verdict = await this.#onceward.claim(intent);
      return verdict instanceof Claim ? new ProtectedRun(verdict, this.keepHeaders, this.log) : replayed(verdict.reply);
    } catch (error) {
      // The log has the reason.
      if (error instanceof BackendRejected) return rejection(createProblem("store_unavailable"));
      if (error instanceof Rejected) return rejection(error.problem);
      throw error;
    }
  }

  async #intent(request: R, facts: RequestFacts, body: () => Promise<BodyFacts | undefined>): Promise<Intent> {
    const { subject: subjectOf, action = `${facts.method} ${facts.path}`, lease, wait, retain, atMostOnce, bound } = this.#options;
    const key = this.#source === "key" ? keyOf(facts) : "";
    const subject = subjectText(await subjectOf(request)) || reject("unauthorized");
    const read = (await body()) ?? reject("body_too_large");
    const shared = { action, subject, fingerprint: fingerprint({ ...facts, body: read.bytes }), ...given({ lease, wait, retain }) };
    if (key) return { ...shared, key, ...given({ atMostOnce }) };
    return { ...shared, token: tokenOf(facts, read), ...given({ bound }) };
  }
}

/** Leaves out the options that were not given. */
function given<T extends object>(options: T): { [K in keyof T]: NonNullable<T[K]> } {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as { [K in keyof T]: NonNullable<T[K]> };
}

function keyOf({ header }: RequestFacts): string {
  const value = header("idempotency-key") || reject("key_missing");
  return parseKey(value) ?? reject("key_malformed");
}

function tokenOf({ header, contentType }: RequestFacts, { bytes, field = tokenField(contentType, bytes) }: BodyFacts): string {
  const sent = header("onceward-token");
  if (sent && field && sent !== field) reject("token_malformed", "The request carries two different tokens. Send one, in the header or in the form.");
  return sent || field || reject("token_missing");
}

function reject(code: OwnCode, detail?: string): never {
  throw new Rejected(createProblem(code, detail));
}

/** Returns the response to a rejected request. */
export function rejection({ status, code, retry, body, contentType, retryAfter }: Problem): OwnResponse {
  const headers: Header[] = [["content-type", contentType], ["cache-control", "no-store"], ["onceward-retry", retry], ...outcomeHeaders(code)];
  if (retryAfter) headers.push(["retry-after", retryAfter]);
  return { status, headers, body: Buffer.from(body) };
}

function replayed({ status, headers, body }: Required<Reply>): OwnResponse {
  return { status, headers: [...headers, ["idempotent-replayed", "true"], ...outcomeHeaders("replayed")], body };
}

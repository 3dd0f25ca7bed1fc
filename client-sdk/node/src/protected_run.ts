// One run of a handler under a claim, from its start to its response.

import type { Claim, Settled } from "./claim.js";
import type { Effect } from "./effect.js";
import { outcomeHeaders, outcomeOf } from "./outcome.js";
import { type Header, isReply, keptHeaders, type Reply } from "./reply.js";
import type { Log } from "./service.js";
import { current, judge, Statement } from "./statement.js";

/** The response of a handler. The body is `undefined` if it was streamed, or is too large to store. */
export interface HandlerResponse {
  readonly status: number;
  readonly headers: Iterable<Header>;
  readonly body: Uint8Array | undefined;
}

/** One run of a handler under a claim. */
export class ProtectedRun {
  #claim: Claim;
  #keepHeaders: readonly string[];
  #log: Log;
  readonly statement = new Statement();
  #hasError = false;

  constructor(claim: Claim, keepHeaders: readonly string[], log: Log) {
    this.#claim = claim;
    this.#keepHeaders = keepHeaders;
    this.#log = log;
  }

  /** Calls the handler, which may state its effect. */
  enter<T>(handler: () => T): T {
    return current.run(this.statement, handler);
  }

  /**
   * Settles the claim by the response, before the client receives it. Returns the headers that report the outcome. Call it where the
   * response was created: outside of the handler's context, it may be that of a timeout.
   */
  async settle(response: HandlerResponse): Promise<Header[]> {
    const isHandlers = current.getStore() === this.statement;
    const effect = judge(this.#claim.policy, this.statement, response.status, isHandlers);
    return outcomeHeaders(outcomeOf(effect, await this.#record(effect, response)));
  }

  /** Settles the claim of a request that was rejected before its handler was called. */
  async settleUnentered(): Promise<Header[]> {
    return outcomeHeaders(outcomeOf("not_applied", await this.#claim.release()));
  }

  /** Settles the claim by the error that was noted, where the framework responds elsewhere. */
  async settleError(): Promise<void> {
    const effect = judge(this.#claim.policy, this.statement, undefined);
    await this.#record(effect, { status: 500, headers: [], body: undefined });
  }

  /** Leaves the effect unknown: the claim is not renewed any more. */
  leave(): void {
    this.#claim.leave();
  }

  /** Notes the error that the framework turns into a response. The first one counts: another is that of the error page. */
  noteError(error: unknown): void {
    if (this.#hasError) return;
    this.#hasError = true;
    this.statement.error = error;
  }

  async #record(effect: Effect, response: HandlerResponse): Promise<Settled | undefined> {
    if (effect === "applied") return this.#claim.complete(this.#reply(response));
    if (effect === "not_applied") return this.#claim.release();
    this.#claim.leave();
    return undefined;
  }

  #reply({ status, headers, body }: HandlerResponse): Reply | undefined {
    const reply = body && { status, headers: keptHeaders(headers, this.#keepHeaders), body };
    if (!reply || isReply(reply)) return reply;
    this.#log(`a response is not stored, since its status is ${status}: duplicates are rejected as reply_not_kept`);
    return undefined;
  }
}

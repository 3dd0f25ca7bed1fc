// One run of a handler under a claim, from its start to its response.
import { outcomeHeaders, outcomeOf } from "./outcome.js";
import { isReply, keptHeaders } from "./reply.js";
import { current, judge, Statement } from "./statement.js";
/** One run of a handler under a claim. */
export class ProtectedRun {
    #claim;
    #keepHeaders;
    #log;
    statement = new Statement();
    #hasError = false;
    constructor(claim, keepHeaders, log) {
        this.#claim = claim;
        this.#keepHeaders = keepHeaders;
        this.#log = log;
    }
    /** Calls the handler, which may state its effect. */
    enter(handler) {
        return current.run(this.statement, handler);
    }
    /**
     * Settles the claim by the response, before the client receives it. Returns the headers that report the outcome. Call it where the
     * response was created: outside of the handler's context, it may be that of a timeout.
     */
    async settle(response) {
        const isHandlers = current.getStore() === this.statement;
        const effect = judge(this.#claim.policy, this.statement, response.status, isHandlers);
        return outcomeHeaders(outcomeOf(effect, await this.#record(effect, response)));
    }
    /** Settles the claim of a request that was rejected before its handler was called. */
    async settleUnentered() {
        return outcomeHeaders(outcomeOf("not_applied", await this.#claim.release()));
    }
    /** Settles the claim by the error that was noted, where the framework responds elsewhere. */
    async settleError() {
        const effect = judge(this.#claim.policy, this.statement, undefined);
        await this.#record(effect, { status: 500, headers: [], body: undefined });
    }
    /** Leaves the effect unknown: the claim is not renewed any more. */
    leave() {
        this.#claim.leave();
    }
    /** Notes the error that the framework turns into a response. The first one counts: another is that of the error page. */
    noteError(error) {
        if (this.#hasError)
            return;
        this.#hasError = true;
        this.statement.error = error;
    }
    async #record(effect, response) {
        if (effect === "applied")
            return this.#claim.complete(this.#reply(response));
        if (effect === "not_applied")
            return this.#claim.release();
        this.#claim.leave();
        return undefined;
    }
    #reply({ status, headers, body }) {
        const reply = body && { status, headers: keptHeaders(headers, this.#keepHeaders), body };
        if (!reply || isReply(reply))
            return reply;
        this.#log(`a response is not stored, since its status is ${status}: duplicates are rejected as reply_not_kept`);
        return undefined;
    }
}

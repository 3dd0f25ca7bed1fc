"use strict";
// One run of a handler under a claim, from its start to its response.
Object.defineProperty(exports, "__esModule", { value: true });
exports.ProtectedRun = void 0;
const outcome_js_1 = require("./outcome.js");
const reply_js_1 = require("./reply.js");
const statement_js_1 = require("./statement.js");
/** One run of a handler under a claim. */
class ProtectedRun {
    #claim;
    #keepHeaders;
    #log;
    statement = new statement_js_1.Statement();
    #hasError = false;
    constructor(claim, keepHeaders, log) {
        this.#claim = claim;
        this.#keepHeaders = keepHeaders;
        this.#log = log;
    }
    /** Calls the handler, which may state its effect. */
    enter(handler) {
        return statement_js_1.current.run(this.statement, handler);
    }
    /**
     * Settles the claim by the response, before the client receives it. Returns the headers that report the outcome. Call it where the
     * response was created: outside of the handler's context, it may be that of a timeout.
     */
    async settle(response) {
        const isHandlers = statement_js_1.current.getStore() === this.statement;
        const effect = (0, statement_js_1.judge)(this.#claim.policy, this.statement, response.status, isHandlers);
        return (0, outcome_js_1.outcomeHeaders)((0, outcome_js_1.outcomeOf)(effect, await this.#record(effect, response)));
    }
    /** Settles the claim of a request that was rejected before its handler was called. */
    async settleUnentered() {
        return (0, outcome_js_1.outcomeHeaders)((0, outcome_js_1.outcomeOf)("not_applied", await this.#claim.release()));
    }
    /** Settles the claim by the error that was noted, where the framework responds elsewhere. */
    async settleError() {
        const effect = (0, statement_js_1.judge)(this.#claim.policy, this.statement, undefined);
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
        const reply = body && { status, headers: (0, reply_js_1.keptHeaders)(headers, this.#keepHeaders), body };
        if (!reply || (0, reply_js_1.isReply)(reply))
            return reply;
        this.#log(`a response is not stored, since its status is ${status}: duplicates are rejected as reply_not_kept`);
        return undefined;
    }
}
exports.ProtectedRun = ProtectedRun;

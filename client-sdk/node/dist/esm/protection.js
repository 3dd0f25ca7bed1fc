// The protection of a route, for every framework: which requests are claimed, and what the client receives.
import { Claim } from "./claim.js";
import { fingerprint } from "./fingerprint.js";
import { parseKey } from "./key_header.js";
import { isLook } from "./look_header.js";
import { BackendRejected, createProblem, Rejected } from "./problem.js";
import { ProtectedRun } from "./protected_run.js";
import { outcomeHeaders } from "./outcome.js";
import { subjectText } from "./subject.js";
import { tokenField } from "./token_field.js";
/** A subject for routes without users: all clients are one. */
export function anonymous() {
    return "anonymous";
}
const UNTOUCHED = ["GET", "HEAD", "OPTIONS"];
/** Returns whether requests with this method are claimed. */
export function isClaimed(method) {
    return !UNTOUCHED.includes(method.toUpperCase());
}
/** The protection of a route. */
export class Protection {
    bodyLimit;
    replyLimit;
    keepHeaders;
    log;
    #onceward;
    #source;
    #options;
    constructor(onceward, source, options) {
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
    async admit(request, facts, body) {
        try {
            const intent = await this.#intent(request, facts, body);
            if (isLook(facts.header("onceward-look")))
                return replayed(await this.#onceward.lookUp(intent));
            const verdict = await this.#onceward.claim(intent);
            return verdict instanceof Claim ? new ProtectedRun(verdict, this.keepHeaders, this.log) : replayed(verdict.reply);
        }
        catch (error) {
            // The log has the reason.
            if (error instanceof BackendRejected)
                return rejection(createProblem("store_unavailable"));
            if (error instanceof Rejected)
                return rejection(error.problem);
            throw error;
        }
    }
    async #intent(request, facts, body) {
        const { subject: subjectOf, action = `${facts.method} ${facts.path}`, lease, wait, retain, atMostOnce, bound } = this.#options;
        const key = this.#source === "key" ? keyOf(facts) : "";
        const subject = subjectText(await subjectOf(request)) || reject("unauthorized");
        const read = (await body()) ?? reject("body_too_large");
        const shared = { action, subject, fingerprint: fingerprint({ ...facts, body: read.bytes }), ...given({ lease, wait, retain }) };
        if (key)
            return { ...shared, key, ...given({ atMostOnce }) };
        return { ...shared, token: tokenOf(facts, read), ...given({ bound }) };
    }
}
/** Leaves out the options that were not given. */
function given(options) {
    return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}
function keyOf({ header }) {
    const value = header("idempotency-key") || reject("key_missing");
    return parseKey(value) ?? reject("key_malformed");
}
function tokenOf({ header, contentType }, { bytes, field = tokenField(contentType, bytes) }) {
    const sent = header("onceward-token");
    if (sent && field && sent !== field)
        reject("token_malformed", "The request carries two different tokens. Send one, in the header or in the form.");
    return sent || field || reject("token_missing");
}
function reject(code, detail) {
    throw new Rejected(createProblem(code, detail));
}
/** Returns the response to a rejected request. */
export function rejection({ status, code, retry, body, contentType, retryAfter }) {
    const headers = [["content-type", contentType], ["cache-control", "no-store"], ["onceward-retry", retry], ...outcomeHeaders(code)];
    if (retryAfter)
        headers.push(["retry-after", retryAfter]);
    return { status, headers, body: Buffer.from(body) };
}
function replayed({ status, headers, body }) {
    return { status, headers: [...headers, ["idempotent-replayed", "true"], ...outcomeHeaders("replayed")], body };
}

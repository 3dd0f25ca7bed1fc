"use strict";
// The client of the service.
Object.defineProperty(exports, "__esModule", { value: true });
exports.Redeemed = exports.Onceward = void 0;
const node_crypto_1 = require("node:crypto");
const promises_1 = require("node:timers/promises");
const claim_js_1 = require("./claim.js");
const duration_js_1 = require("./duration.js");
const effect_js_1 = require("./effect.js");
const intent_js_1 = require("./intent.js");
const lookup_js_1 = require("./lookup.js");
const problem_js_1 = require("./problem.js");
const reply_js_1 = require("./reply.js");
const retries_js_1 = require("./retries.js");
const service_js_1 = require("./service.js");
const statement_js_1 = require("./statement.js");
const subject_js_1 = require("./subject.js");
/** A client of the Onceward service. Create one per process. */
class Onceward {
    /** Writes one line of the log. */
    log;
    #service;
    #timeout;
    constructor(url, { apiKey, timeout = 5000, log = console.error } = {}) {
        this.#service = new service_js_1.Service(url, apiKey, log);
        this.#timeout = timeout;
        this.log = this.#service.log;
    }
    /** Issues a token. */
    async issue({ action, subject, ttl } = {}) {
        const wire = { action, subject: subject === undefined ? undefined : (0, subject_js_1.subjectText)(subject), ttl: ttl && (0, duration_js_1.duration)(ttl) };
        const answer = await this.#repeat("/token", wire, this.#timeout, this.#timeout);
        return this.#service.verdict(answer);
    }
    /** Uses a token up. Throws `Rejected` if it is not valid, or was used before. */
    async redeem(intent) {
        const wire = { ...intent, subject: (0, subject_js_1.subjectText)(intent.subject), attempt: (0, node_crypto_1.randomUUID)() };
        const answer = await this.#repeat("/token/redeem", wire, this.#timeout, this.#timeout);
        // A try whose answer was lost may have used the token: with another attempt it would be rejected as used.
        const { run_id } = this.#service.verdict(answer, answer.isOpen ? "redeem_unknown" : "store_unavailable");
        return new Redeemed(async () => {
            const release = { token: intent.token, attempt: wire.attempt, run_id };
            const answer = await this.#repeat("/token/release", release, this.#timeout, this.#timeout);
            return (0, service_js_1.isProcessed)(answer) && answer.status < 300;
        });
    }
    /**
     * Returns the stored reply of a submission, and changes nothing. Throws `Rejected` if there is none. A run may begin at any moment: to run
     * the work once, claim instead.
     */
    async lookUp(intent) {
        return (0, lookup_js_1.replyOfRecord)(this.#service.verdict(await this.#repeat("/outcome", (0, lookup_js_1.lookupToWire)(intent), this.#timeout, this.#timeout)));
    }
    async claim(intent, work) {
        const verdict = await this.#claim(intent);
        if (!work)
            return verdict;
        return verdict instanceof claim_js_1.Replay ? (0, reply_js_1.valueOfReply)(verdict.reply) : this.#run(verdict, work);
    }
    /** Wraps a function, such as the consumer of a queue: it runs once per key, and returns the stored value afterwards. */
    once(intent, work) {
        return (...args) => this.claim(intent(...args), () => work(...args));
    }
    async #claim(intent) {
        const lease = intent.lease ?? intent_js_1.DEFAULT_LEASE;
        // A stuck call leaves time for another within the lease.
        const timeout = Math.min(this.#timeout, lease / 3);
        const wire = (0, intent_js_1.intentToWire)(intent);
        const answer = await this.#repeat("/claim", wire, timeout + (intent.wait ?? 0), lease);
        if (answer.isOpen && !(0, service_js_1.isVerdict)(answer))
            void this.#abandon(wire, lease, timeout);
        const verdict = this.#service.verdict(answer);
        if (verdict.outcome === "replay")
            return new claim_js_1.Replay((0, reply_js_1.replyFromWire)(verdict.reply));
        return new claim_js_1.Claim(this.#service, (0, intent_js_1.policyOf)(intent), verdict, timeout);
    }
    async #run(claim, work) {
        const statement = new statement_js_1.Statement();
        let value;
        try {
            value = await statement_js_1.current.run(statement, () => work(claim));
        }
        catch (error) {
            if (!claim.isSettled)
                await this.#settle(claim, statement.effect ?? (0, effect_js_1.effectOfError)(claim.policy, error));
            throw error;
        }
        if (!claim.isSettled)
            await this.#settle(claim, statement.effect ?? "applied", value);
        return value;
    }
    async #settle(claim, effect, value) {
        if (effect === "applied")
            await claim.complete(this.#stored(value));
        else if (effect === "not_applied")
            await claim.release();
        else
            claim.leave();
    }
    #stored(value) {
        try {
            return (0, reply_js_1.replyOfValue)(value);
        }
        catch {
            this.#service.log("a value is not stored, since it cannot be written as JSON: duplicates are rejected as reply_not_kept");
            return undefined;
        }
    }
    /**
     * Releases a claim whose answers were lost, if it was granted: nothing ran. For as long as it may exist, the same attempt is sent again. The
     * pauses between do not keep the process alive, a call does until it ends.
     */
    async #abandon({ wait: _, ...wire }, lease, timeout) {
        const end = performance.now() + lease;
        for (let pause = 100; performance.now() < end; pause = Math.min(pause * 2, 1000)) {
            await (0, promises_1.setTimeout)(pause, undefined, { ref: false });
            const answer = await this.#service.post("/claim", wire, timeout);
            // Another attempt holds the key or token. Other rejections may be a gateway's.
            if (answer.status === 409 && (0, service_js_1.isProcessed)(answer))
                return;
            if (!(0, service_js_1.isVerdict)(answer))
                continue;
            const verdict = (0, problem_js_1.parseObject)(answer.body);
            if (verdict?.["pass"])
                await new claim_js_1.Claim(this.#service, "token", verdict, timeout).release();
            return;
        }
    }
    /** Posts, and repeats the same body while no verdict arrives. */
    async #repeat(path, body, timeout, patience) {
        const retries = new retries_js_1.Retries(patience);
        for (let wasOpen = false;;) {
            const answer = await this.#service.post(path, body, timeout);
            wasOpen ||= (0, service_js_1.isOpen)(answer);
            const delay = retries.delayAfter(answer);
            if (delay === undefined)
                return { ...answer, isOpen: wasOpen };
            await (0, promises_1.setTimeout)(delay);
        }
    }
}
exports.Onceward = Onceward;
/** A token that was used up. */
class Redeemed {
    #release;
    constructor(release) {
        this.#release = release;
    }
    /** Makes the token valid again if nothing took effect. Returns whether the service has recorded that. */
    release() {
        return this.#release();
    }
}
exports.Redeemed = Redeemed;

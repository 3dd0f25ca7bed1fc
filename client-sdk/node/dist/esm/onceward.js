// The client of the service.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Claim, Replay } from "./claim.js";
import { duration } from "./duration.js";
import { effectOfError } from "./effect.js";
import { DEFAULT_LEASE, intentToWire, policyOf } from "./intent.js";
import { lookupToWire, replyOfRecord } from "./lookup.js";
import { parseObject } from "./problem.js";
import { replyFromWire, replyOfValue, valueOfReply } from "./reply.js";
import { Retries } from "./retries.js";
import { isOpen, isProcessed, isVerdict, Service } from "./service.js";
import { current, Statement } from "./statement.js";
import { subjectText } from "./subject.js";
/** A client of the Onceward service. Create one per process. */
export class Onceward {
    /** Writes one line of the log. */
    log;
    #service;
    #timeout;
    constructor(url, { apiKey, timeout = 5000, log = console.error } = {}) {
        this.#service = new Service(url, apiKey, log);
        this.#timeout = timeout;
        this.log = this.#service.log;
    }
    /** Issues a token. */
    async issue({ action, subject, ttl } = {}) {
        const wire = { action, subject: subject === undefined ? undefined : subjectText(subject), ttl: ttl && duration(ttl) };
        const answer = await this.#repeat("/token", wire, this.#timeout, this.#timeout);
        return this.#service.verdict(answer);
    }
    /** Uses a token up. Throws `Rejected` if it is not valid, or was used before. */
    async redeem(intent) {
        const wire = { ...intent, subject: subjectText(intent.subject), attempt: randomUUID() };
        const answer = await this.#repeat("/token/redeem", wire, this.#timeout, this.#timeout);
        // A try whose answer was lost may have used the token: with another attempt it would be rejected as used.
        const { run_id } = this.#service.verdict(answer, answer.isOpen ? "redeem_unknown" : "store_unavailable");
        return new Redeemed(async () => {
            const release = { token: intent.token, attempt: wire.attempt, run_id };
            const answer = await this.#repeat("/token/release", release, this.#timeout, this.#timeout);
            return isProcessed(answer) && answer.status < 300;
        });
    }
    /**
     * Returns the stored reply of a submission, and changes nothing. Throws `Rejected` if there is none. A run may begin at any moment: to run
     * the work once, claim instead.
     */
    async lookUp(intent) {
        return replyOfRecord(this.#service.verdict(await this.#repeat("/outcome", lookupToWire(intent), this.#timeout, this.#timeout)));
    }
    async claim(intent, work) {
        const verdict = await this.#claim(intent);
        if (!work)
            return verdict;
        return verdict instanceof Replay ? valueOfReply(verdict.reply) : this.#run(verdict, work);
    }
    /** Wraps a function, such as the consumer of a queue: it runs once per key, and returns the stored value afterwards. */
    once(intent, work) {
        return (...args) => this.claim(intent(...args), () => work(...args));
    }
    async #claim(intent) {
        const lease = intent.lease ?? DEFAULT_LEASE;
        // A stuck call leaves time for another within the lease.
        const timeout = Math.min(this.#timeout, lease / 3);
        const wire = intentToWire(intent);
        const answer = await this.#repeat("/claim", wire, timeout + (intent.wait ?? 0), lease);
        if (answer.isOpen && !isVerdict(answer))
            void this.#abandon(wire, lease, timeout);
        const verdict = this.#service.verdict(answer);
        if (verdict.outcome === "replay")
            return new Replay(replyFromWire(verdict.reply));
        return new Claim(this.#service, policyOf(intent), verdict, timeout);
    }
    async #run(claim, work) {
        const statement = new Statement();
        let value;
        try {
            value = await current.run(statement, () => work(claim));
        }
        catch (error) {
            if (!claim.isSettled)
                await this.#settle(claim, statement.effect ?? effectOfError(claim.policy, error));
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
            return replyOfValue(value);
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
            await sleep(pause, undefined, { ref: false });
            const answer = await this.#service.post("/claim", wire, timeout);
            // Another attempt holds the key or token. Other rejections may be a gateway's.
            if (answer.status === 409 && isProcessed(answer))
                return;
            if (!isVerdict(answer))
                continue;
            const verdict = parseObject(answer.body);
            if (verdict?.["pass"])
                await new Claim(this.#service, "token", verdict, timeout).release();
            return;
        }
    }
    /** Posts, and repeats the same body while no verdict arrives. */
    async #repeat(path, body, timeout, patience) {
        const retries = new Retries(patience);
        for (let wasOpen = false;;) {
            const answer = await this.#service.post(path, body, timeout);
            wasOpen ||= isOpen(answer);
            const delay = retries.delayAfter(answer);
            if (delay === undefined)
                return { ...answer, isOpen: wasOpen };
            await sleep(delay);
        }
    }
}
/** A token that was used up. */
export class Redeemed {
    #release;
    constructor(release) {
        this.#release = release;
    }
    /** Makes the token valid again if nothing took effect. Returns whether the service has recorded that. */
    release() {
        return this.#release();
    }
}

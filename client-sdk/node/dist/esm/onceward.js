// The client of the service.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Claim, Replay } from "./claim.js";
import { duration } from "./duration.js";
import { effectOfError } from "./effect.js";
import { DEFAULT_LEASE, intentToWire, policyOf } from "./intent.js";
import { lookupToWire, replyOfRecord } from "./lookup.js";
import { replyFromWire, replyOfValue, valueOfReply } from "./reply.js";
import { Retries } from "./retries.js";
import { Service } from "./service.js";
import { current, Statement } from "./statement.js";
/** A client of the Onceward service. Create one per process. */
export class Onceward {
    /** Writes one line of the log. */
    log;
    #service;
    #timeout;
    constructor(url, { apiKey, timeout = 5000, log = console.error } = {}) {
        this.#service = new Service(url, apiKey, log);
        this.#timeout = timeout;
        this.log = log;
    }
    /** Issues a token. */
    async issue({ ttl, ...options } = {}) {
        const answer = await this.#repeat("/token", { ...options, ttl: ttl && duration(ttl) }, this.#timeout, this.#timeout);
        return this.#service.verdict(answer);
    }
    /** Uses a token up. Throws `Rejected` if it is not valid, or was used before. */
    async redeem(intent) {
        const wire = { ...intent, attempt: randomUUID() };
        const answer = await this.#repeat("/token/redeem", wire, this.#timeout, this.#timeout);
        const { run_id } = this.#service.verdict(answer);
        return new Redeemed(async () => {
            const release = { token: intent.token, attempt: wire.attempt, run_id };
            return (await this.#repeat("/token/release", release, this.#timeout, this.#timeout)).status < 300;
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
        const answer = await this.#repeat("/claim", intentToWire(intent), timeout + (intent.wait ?? 0), lease);
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
    /** Posts, and repeats the same body while no verdict arrives. */
    async #repeat(path, body, timeout, patience) {
        const retries = new Retries(patience);
        for (;;) {
            const answer = await this.#service.post(path, body, timeout);
            const delay = retries.delayAfter(answer);
            if (delay === undefined)
                return answer;
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

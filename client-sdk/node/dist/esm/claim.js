// A claim: the permission to run once, renewed in the background until the run is settled.
import { setTimeout as sleep } from "node:timers/promises";
import { milliseconds } from "./duration.js";
import { replyToWire } from "./reply.js";
import { isProcessed } from "./service.js";
/** Milliseconds for which a claim is renewed at most. */
const CEILING = 3_600_000;
/** Milliseconds for which a result that the service does not record is sent again before the client receives its response. */
const PATIENCE = 1000;
/** The verdict that the work must run now. */
export class Claim {
    outcome = "run";
    policy;
    #service;
    #pass;
    #interval;
    #timeout;
    #ceiling = performance.now() + CEILING;
    #result;
    #state = "held";
    #lost = new AbortController();
    #timer;
    /** Calls run one after another: a renewal that overtakes a release claims the key again. */
    #queue = Promise.resolve();
    constructor(service, policy, verdict, timeout) {
        this.policy = policy;
        this.#service = service;
        this.#pass = verdict.pass;
        this.#timeout = timeout;
        // Twice as often as the service requires, because one renewal may time out.
        this.#interval = milliseconds(verdict.renew_every) / 2;
        this.#schedule();
    }
    /** Aborted once the claim is lost: another request may run the same, so stop if that is safe. */
    get signal() {
        return this.#lost.signal;
    }
    /** Whether the work has settled the claim itself. */
    get isSettled() {
        return this.#result !== undefined || this.#state !== "held";
    }
    /** Records that the work took effect. Duplicates receive the reply from now on. */
    async complete(reply) {
        return this.#settle({ path: "/claim/complete", reply: reply && replyToWire(reply) });
    }
    /** Records that the work had no effect: the key or token is free again. */
    release() {
        return this.#settle({ path: "/claim/release" });
    }
    /** Stops renewing the claim: it is unknown whether the work took effect. */
    leave() {
        if (!this.isSettled)
            this.#stop("left");
    }
    /** At the end of `await using`: if the work did not settle the claim, its effect is unknown. */
    async [Symbol.asyncDispose]() {
        this.leave();
    }
    async #settle(result) {
        if (this.#result)
            throw new Error("the claim is settled already");
        this.#result = result;
        this.#ceiling = performance.now() + CEILING;
        if (this.#state === "left")
            this.#hold();
        await this.#enqueue(() => this.#report());
        if (this.#state === "held")
            this.#service.log(`could not record a result at Onceward (${result.path}); repeating it in the background`);
        return this.#verdict();
    }
    /** Holds a claim again that was not renewed any more: a claim that is at most once can still be settled. */
    #hold() {
        this.#state = "held";
        this.#schedule();
    }
    #verdict() {
        if (this.#state === "held")
            return "pending";
        return this.#state === "settled" ? "recorded" : "lost";
    }
    /** Sends the result, and again for a moment: a lost response is repaired before the client waits for long. */
    async #report() {
        const deadline = performance.now() + PATIENCE;
        for (let pause = 50; this.#state === "held"; pause *= 2) {
            await this.#beat();
            if (this.#state !== "held" || performance.now() + pause > deadline)
                return;
            await sleep(pause);
        }
    }
    /** Sends the result, if there is one, and renews the claim if the service has not recorded it. */
    async #beat() {
        await this.#send();
        // A release may have been recorded although its response was lost. A renewal would then claim the key again.
        if (this.#state === "held" && this.#result?.path !== "/claim/release")
            await this.#renew();
    }
    /** Sends the result once. */
    async #send() {
        const result = this.#result;
        if (!result)
            return;
        const reply = "reply" in result ? result.reply : undefined;
        let answer = await this.#post(result.path, reply && { reply });
        // The service does not store this reply: it is too large, for example. The work did take effect. A gateway has a limit for bodies too, and
        // its other answers say nothing about the reply.
        if (reply && (answer.status === 413 || (answer.status === 400 && isProcessed(answer))))
            answer = await this.#post(result.path);
        if (isProcessed(answer))
            this.#stop(answer.status < 300 ? "settled" : "lost");
    }
    async #renew() {
        const answer = await this.#post("/claim/renew");
        if (answer.status === 409 && isProcessed(answer) && !this.#result) {
            this.#service.log("a claim was lost: it was not renewed in time, and another request may run the same");
            this.#stop("lost");
        }
    }
    #post(path, more = {}) {
        return this.#service.post(path, { pass: this.#pass, ...more }, this.#timeout);
    }
    #enqueue(call) {
        const next = this.#queue.then(call);
        // A call that fails does not end those behind it.
        this.#queue = next.catch(() => undefined);
        return next;
    }
    /** Does not keep the process alive: a process that ends leaves its claims to their lease. */
    #schedule() {
        this.#timer = setTimeout(() => void this.#enqueue(() => this.#keep()), this.#interval).unref();
    }
    async #keep() {
        if (this.#state === "held" && performance.now() > this.#ceiling)
            this.#stop("left");
        if (this.#state === "held")
            await this.#beat();
        if (this.#state === "held")
            this.#schedule();
    }
    #stop(state) {
        this.#state = state;
        clearTimeout(this.#timer);
        if (state === "lost")
            this.#lost.abort(new Error("the claim was lost"));
    }
}
/** The verdict that the work ran before. */
export class Replay {
    outcome = "replay";
    /** The stored response of the first run. */
    reply;
    constructor(reply) {
        this.reply = reply;
    }
    /** Does nothing: there is nothing to settle. */
    async [Symbol.asyncDispose]() { }
}

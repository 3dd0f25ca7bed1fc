// Decides whether a claim without a verdict is sent again, with the same attempt.
/** Milliseconds for which a service that refuses connections is tried. Nothing was sent, so there is nothing to find out. */
const REFUSED = 1000;
/** Milliseconds for which a service that responds with a fault is tried. */
const FAULTY = 3000;
/** Returns for how long a claim that received this answer is tried. A claim whose answer was lost may exist for its lease. */
export function patience({ status, wasSent }, lease) {
    if (status > 0)
        return Math.min(FAULTY, lease);
    return wasSent ? lease : Math.min(REFUSED, lease);
}
/** The retries of one claim. */
export class Retries {
    #lease;
    #started = performance.now();
    #patience = 0;
    #pause = 25;
    constructor(lease) {
        this.#lease = lease;
    }
    /** Returns the delay before the next try, `undefined` if the answer is final or the time is over. */
    delayAfter(answer) {
        if (answer.status > 0 && answer.status < 500)
            return undefined;
        this.#patience = Math.max(this.#patience, patience(answer, this.#lease));
        this.#pause = Math.min(this.#pause * 2, 500);
        const delay = this.#pause * (0.5 + Math.random() / 2);
        return performance.now() - this.#started + delay < this.#patience ? delay : undefined;
    }
}

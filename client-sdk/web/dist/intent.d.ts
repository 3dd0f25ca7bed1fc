/**
 * How the last try of a form ended, as far as the page can know.
 *
 * - `none`: without an answer. It may have run.
 * - `doubt`: an answer came, after a try without one, or it did not say how it ended.
 * - `seen`: the person was shown an answer, but nobody told the page which.
 * - `again`: an answer after which the same may be sent again; or the page sends by itself.
 * - `final`: an answer that ends the submission.
 */
export type Ended = "none" | "doubt" | "seen" | "again" | "final";
/** `keep` the token, take a `fresh` one, or `ask` the person first. */
export type Choice = "keep" | "fresh" | "ask";
/** Which token the next try of a form takes. */
export declare function choose(ended: Ended, isSame: boolean, isExpired: boolean): Choice;
/** How a try ended, by the status of its answer. `wasLost` if an earlier try of the same token has no answer. */
export declare function learned(status: number, wasLost?: boolean): Ended;
/**
 * What one try of a submission came to.
 *
 * - `answered`: the handler's answer, now or again.
 * - `lost`: no answer, or a gateway's. It may have run.
 * - `new_token`, `same`: a problem that says so. This try ran nothing.
 * - `running`: the same is being carried out.
 * - `used`: the token was used before. `not_kept`: it was carried out, and its answer is gone.
 * - `unsettled`: it began, and nobody knows how it ended.
 * - `refused`: any other problem. This try ran nothing.
 */
export type Tried = "answered" | "lost" | "new_token" | "same" | "running" | "used" | "not_kept" | "unsettled" | "refused";
/** What to do next: send the `same` again, fetch a `new_token` and send, or end the submission with an outcome. */
export type Step = "same" | "new_token" | "answered" | "duplicate" | "unknown" | "refused";
/**
 * The next step after these tries. `new_token` is obeyed only while every earlier try was answered by a problem that says
 * the same: after a try without an answer the submission ends as unknown, since the lost one may have run.
 */
export declare function nextStep(tries: Tried[], mayRepeat: boolean): Step;

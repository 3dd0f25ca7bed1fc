// The intent rule: what another try is, the same submission or a new one. Plain functions over plain data.

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

/** For the same content, for edited content, and for the same content with a token that has expired since. */
const CHOICES: Record<Ended, [same: Choice, edited: Choice, expired: Choice]> = {
  none: ["keep", "ask", "ask"],
  doubt: ["ask", "ask", "ask"],
  seen: ["ask", "fresh", "ask"],
  again: ["keep", "fresh", "fresh"],
  final: ["fresh", "fresh", "fresh"],
};

/** Which token the next try of a form takes. */
export function choose(ended: Ended, isSame: boolean, isExpired: boolean): Choice {
  return CHOICES[ended][isSame ? (isExpired ? 2 : 0) : 1];
}

/** How a try ended, by the status of its answer. `wasLost` if an earlier try of the same token has no answer. */
export function learned(status: number, wasLost?: boolean): Ended {
  if (status < 400) return "final";
  if (status >= 500) return wasLost ? "none" : "again";
  return wasLost || status == 409 ? "doubt" : "final";
}

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
export function nextStep(tries: Tried[], mayRepeat: boolean): Step {
  const last = tries[tries.length - 1];
  const isOpen = tries.slice(0, -1).some((tried) => tried == "lost" || tried == "running");
  const nothingRan = isOpen ? "unknown" : "refused";
  switch (last) {
    case "answered":
      return last;
    case "not_kept":
      return "duplicate";
    case "used":
      return isOpen ? "unknown" : "duplicate";
    case "lost":
    case "running":
      return mayRepeat ? "same" : "unknown";
    case "same":
      return mayRepeat ? last : nothingRan;
    case "new_token":
      return mayRepeat && tries.every((tried) => tried == last) ? last : nothingRan;
    case "refused":
      return nothingRan;
    default:
      return "unknown";
  }
}

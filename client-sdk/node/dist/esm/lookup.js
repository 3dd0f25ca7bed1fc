// A lookup: asks for the record of a submission, and changes nothing.
import { createProblem, Rejected } from "./problem.js";
import { subjectText } from "./subject.js";
import { replyFromWire } from "./reply.js";
/** Returns the body of `POST /outcome`. The content does not count. */
export function lookupToWire(intent) {
    const { action } = intent;
    const subject = subjectText(intent.subject);
    return { action, subject, ...("token" in intent ? { token: intent.token } : { key: intent.key }) };
}
/** The rejection of a lookup without a stored reply, by the state of the record. */
const REJECTIONS = { running: "in_progress", unknown: "outcome_unknown", done: "reply_not_kept" };
/** Returns the stored reply of a record. Throws `Rejected` if there is none. */
export function replyOfRecord({ state, reply }) {
    if (reply)
        return replyFromWire(reply);
    throw new Rejected(createProblem(REJECTIONS[state] ?? "not_found"));
}

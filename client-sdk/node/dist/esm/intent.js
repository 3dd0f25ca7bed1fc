// What a request asks for: the body of `POST /claim`.
import { createHash, randomUUID } from "node:crypto";
import { duration } from "./duration.js";
import { subjectText } from "./subject.js";
/** The lease that the service uses if the claim names none, in milliseconds. */
export const DEFAULT_LEASE = 15_000;
/** The number of characters up to which a fingerprint is sent as it is: the service limits the size of a claim. */
const LONGEST_FINGERPRINT = 256;
function short(fingerprint) {
    return fingerprint.length > LONGEST_FINGERPRINT ? createHash("sha256").update(fingerprint).digest("hex") : fingerprint;
}
export function policyOf(intent) {
    if ("token" in intent)
        return "token";
    return intent.atMostOnce === false ? "retryable" : "at_most_once";
}
/** Returns the body of the claim. It names a new attempt: create it once, and send the same again. */
export function intentToWire(intent) {
    const subject = subjectText(intent.subject);
    if (!subject)
        throw new Error("subject is required: pass the id of the client as the application knows it, such as a user's id");
    const { action, fingerprint } = intent;
    const wire = { action, subject, fingerprint: fingerprint && short(fingerprint), attempt: randomUUID() };
    if ("token" in intent)
        Object.assign(wire, { token: intent.token, bound: intent.bound });
    else
        Object.assign(wire, { key: intent.key, at_most_once: intent.atMostOnce ?? true });
    for (const name of ["lease", "wait", "retain"]) {
        if (intent[name])
            wire[name] = duration(intent[name]);
    }
    return wire;
}

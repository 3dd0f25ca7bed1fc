"use strict";
// What a request asks for: the body of `POST /claim`.
Object.defineProperty(exports, "__esModule", { value: true });
exports.DEFAULT_LEASE = void 0;
exports.policyOf = policyOf;
exports.intentToWire = intentToWire;
const node_crypto_1 = require("node:crypto");
const duration_js_1 = require("./duration.js");
const subject_js_1 = require("./subject.js");
/** The lease that the service uses if the claim names none, in milliseconds. */
exports.DEFAULT_LEASE = 15_000;
/** The number of characters up to which a fingerprint is sent as it is: the service limits the size of a claim. */
const LONGEST_FINGERPRINT = 256;
function short(fingerprint) {
    return fingerprint.length > LONGEST_FINGERPRINT ? (0, node_crypto_1.createHash)("sha256").update(fingerprint).digest("hex") : fingerprint;
}
function policyOf(intent) {
    if ("token" in intent)
        return "token";
    return intent.atMostOnce === false ? "retryable" : "at_most_once";
}
/** Returns the body of the claim. It names a new attempt: create it once, and send the same again. */
function intentToWire(intent) {
    const subject = (0, subject_js_1.subjectText)(intent.subject);
    if (!subject)
        throw new Error("subject is required: pass the id of the client as the application knows it, such as a user's id");
    const { action, fingerprint } = intent;
    const wire = { action, subject, fingerprint: fingerprint && short(fingerprint), attempt: (0, node_crypto_1.randomUUID)() };
    if ("token" in intent)
        Object.assign(wire, { token: intent.token, bound: intent.bound });
    else
        Object.assign(wire, { key: intent.key, at_most_once: intent.atMostOnce ?? true });
    for (const name of ["lease", "wait", "retain"]) {
        if (intent[name])
            wire[name] = (0, duration_js_1.duration)(intent[name]);
    }
    return wire;
}

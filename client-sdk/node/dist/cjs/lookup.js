"use strict";
// A lookup: asks for the record of a submission, and changes nothing.
Object.defineProperty(exports, "__esModule", { value: true });
exports.lookupToWire = lookupToWire;
exports.replyOfRecord = replyOfRecord;
const problem_js_1 = require("./problem.js");
const subject_js_1 = require("./subject.js");
const reply_js_1 = require("./reply.js");
/** Returns the body of `POST /outcome`. The content does not count. */
function lookupToWire(intent) {
    const { action } = intent;
    const subject = (0, subject_js_1.subjectText)(intent.subject);
    return { action, subject, ...("token" in intent ? { token: intent.token } : { key: intent.key }) };
}
/** The rejection of a lookup without a stored reply, by the state of the record. */
const REJECTIONS = { running: "in_progress", unknown: "outcome_unknown", done: "reply_not_kept" };
/** Returns the stored reply of a record. Throws `Rejected` if there is none. */
function replyOfRecord({ state, reply }) {
    if (reply)
        return (0, reply_js_1.replyFromWire)(reply);
    throw new problem_js_1.Rejected((0, problem_js_1.createProblem)(REJECTIONS[state] ?? "not_found"));
}

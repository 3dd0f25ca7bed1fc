// A lookup: asks for the record of a submission, and changes nothing.

import { createProblem, type OwnCode, Rejected } from "./problem.js";
import { type Subject, subjectText } from "./subject.js";
import { type Reply, replyFromWire, type WireReply } from "./reply.js";

/** What a lookup names: a key or a token, with the action and the subject that it was sent with. */
export type LookupIntent = { action: string; subject: Subject } & ({ key: string } | { token: string });

/** Returns the body of `POST /outcome`. The content does not count. */
export function lookupToWire(intent: LookupIntent): Record<string, string> {
  const { action } = intent;
  const subject = subjectText(intent.subject);
  return { action, subject, ...("token" in intent ? { token: intent.token } : { key: intent.key }) };
}

/** The rejection of a lookup without a stored reply, by the state of the record. */
const REJECTIONS: Record<string, OwnCode> = { running: "in_progress", unknown: "outcome_unknown", done: "reply_not_kept" };

/** Returns the stored reply of a record. Throws `Rejected` if there is none. */
export function replyOfRecord({ state, reply }: Record<string, unknown>): Required<Reply> {
  if (reply) return replyFromWire(reply as WireReply);
  throw new Rejected(createProblem(REJECTIONS[state as string] ?? "not_found"));
}

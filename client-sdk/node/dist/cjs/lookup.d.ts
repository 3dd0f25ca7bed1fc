import { type Subject } from "./subject.js";
import { type Reply } from "./reply.js";
/** What a lookup names: a key or a token, with the action and the subject that it was sent with. */
export type LookupIntent = {
    action: string;
    subject: Subject;
} & ({
    key: string;
} | {
    token: string;
});
/** Returns the body of `POST /outcome`. The content does not count. */
export declare function lookupToWire(intent: LookupIntent): Record<string, string>;
/** Returns the stored reply of a record. Throws `Rejected` if there is none. */
export declare function replyOfRecord({ state, reply }: Record<string, unknown>): Required<Reply>;

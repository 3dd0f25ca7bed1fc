/** The id of a client: text, or the number of its row. */
export type Subject = string | number | bigint;
/** Returns a subject as text, empty if there is none. Throws a `TypeError` for anything else: `[object Object]` would make all clients one. */
export declare function subjectText(subject: unknown): string;

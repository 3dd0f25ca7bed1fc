// The subject of a submission: the client, as the application knows it.

/** The id of a client: text, or the number of its row. */
export type Subject = string | number | bigint;

/** Returns a subject as text, empty if there is none. Throws a `TypeError` for anything else: `[object Object]` would make all clients one. */
export function subjectText(subject: unknown): string {
  if (subject === undefined || subject === null || subject === false) return "";
  if (typeof subject === "string" || typeof subject === "bigint" || Number.isFinite(subject)) return String(subject);
  throw new TypeError(`a subject has to be text or a number, such as the id of a user, and this is of type ${typeof subject}`);
}

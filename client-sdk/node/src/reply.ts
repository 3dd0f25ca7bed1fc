// A response that is stored for duplicates.

/** The headers that describe the body of a response. They are stored by default. */
export const KEPT: ReadonlySet<string> = new Set([
  "cache-control",
  "content-disposition",
  "content-encoding",
  "content-language",
  "content-type",
  "etag",
  "link",
  "location",
  "vary",
]);

/** Headers that are never stored, even if they are named: they reveal a client's credentials, or break the connection of the replay. */
export const NEVER_KEPT: ReadonlySet<string> = new Set([
  "authorization",
  "connection",
  "content-length",
  "date",
  "idempotent-replayed",
  "keep-alive",
  "set-cookie",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "www-authenticate",
]);

export type Header = readonly [name: string, value: string];

/** The status, headers and body of a response that duplicates receive. */
export interface Reply {
  readonly status: number;
  readonly headers?: readonly Header[];
  readonly body?: Uint8Array;
}

/** A reply on the wire. */
export interface WireReply {
  status: number;
  headers?: [string, string][];
  body?: string;
}

/** Returns the headers that are stored: those that describe the body, and those that the application names (in lower case). */
export function keptHeaders(headers: Iterable<Header>, named: readonly string[] = []): Header[] {
  const lower = [...headers].map(([name, value]): Header => [name.toLowerCase(), value]);
  return lower.filter(([name]) => !isNeverKept(name) && (KEPT.has(name) || named.includes(name)));
}

function isNeverKept(name: string): boolean {
  return NEVER_KEPT.has(name) || name.startsWith("onceward-") || name.startsWith("proxy-");
}

/** Returns the reply that stores a value as JSON. */
export function replyOfValue(value: unknown): Reply {
  if (value === undefined) return { status: 204 };
  return { status: 200, headers: [["content-type", "application/json"]], body: Buffer.from(JSON.stringify(value)) };
}

/** Returns the value that a reply stores as JSON. */
export function valueOfReply(reply: Reply): unknown {
  return reply.body?.length ? JSON.parse(Buffer.from(reply.body).toString()) : undefined;
}

/** Returns whether the status is a number, and the headers are pairs. */
export function isReply({ status, headers = [] }: Reply): boolean {
  const isPairs = Array.isArray(headers) && headers.every((pair) => Array.isArray(pair) && pair.length === 2 && pair.every((text) => typeof text === "string"));
  return Number.isInteger(status) && isPairs;
}

/** Returns a reply as the service receives it. Throws a `TypeError` if it is not one. */
export function replyToWire(reply: Reply): WireReply {
  const { status, headers = [], body = new Uint8Array() } = reply;
  if (!isReply(reply)) throw new TypeError('a reply has a number as its status, and pairs as its headers, such as [["location", "/1"]]');
  return { status, headers: headers.map(([name, value]) => [name, value]), body: Buffer.from(body).toString("base64") };
}

export function replyFromWire({ status, headers = [], body = "" }: WireReply): Required<Reply> {
  return { status, headers, body: Buffer.from(body, "base64") };
}

// A response that is stored for duplicates.
/** The headers that describe the body of a response. They are stored by default. */
export const KEPT = new Set([
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
export const NEVER_KEPT = new Set([
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
/** Returns the headers that are stored: those that describe the body, and those that the application names (in lower case). */
export function keptHeaders(headers, named = []) {
    const lower = [...headers].map(([name, value]) => [name.toLowerCase(), value]);
    return lower.filter(([name]) => !isNeverKept(name) && (KEPT.has(name) || named.includes(name)));
}
function isNeverKept(name) {
    return NEVER_KEPT.has(name) || name.startsWith("onceward-") || name.startsWith("proxy-");
}
/** Returns the reply that stores a value as JSON. */
export function replyOfValue(value) {
    if (value === undefined)
        return { status: 204 };
    return { status: 200, headers: [["content-type", "application/json"]], body: Buffer.from(JSON.stringify(value)) };
}
/** Returns the value that a reply stores as JSON. */
export function valueOfReply(reply) {
    return reply.body?.length ? JSON.parse(Buffer.from(reply.body).toString()) : undefined;
}
/** Returns whether the status is a number, and the headers are pairs. */
export function isReply({ status, headers = [] }) {
    const isPairs = Array.isArray(headers) && headers.every((pair) => Array.isArray(pair) && pair.length === 2 && pair.every((text) => typeof text === "string"));
    return Number.isInteger(status) && isPairs;
}
/** Returns a reply as the service receives it. Throws a `TypeError` if it is not one. */
export function replyToWire(reply) {
    const { status, headers = [], body = new Uint8Array() } = reply;
    if (!isReply(reply))
        throw new TypeError('a reply has a number as its status, and pairs as its headers, such as [["location", "/1"]]');
    return { status, headers: headers.map(([name, value]) => [name, value]), body: Buffer.from(body).toString("base64") };
}
export function replyFromWire({ status, headers = [], body = "" }) {
    return { status, headers, body: Buffer.from(body, "base64") };
}

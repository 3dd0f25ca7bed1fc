"use strict";
// A response that is stored for duplicates.
Object.defineProperty(exports, "__esModule", { value: true });
exports.NEVER_KEPT = exports.KEPT = void 0;
exports.keptHeaders = keptHeaders;
exports.replyOfValue = replyOfValue;
exports.valueOfReply = valueOfReply;
exports.isReply = isReply;
exports.replyToWire = replyToWire;
exports.replyFromWire = replyFromWire;
/** The headers that describe the body of a response. They are stored by default. */
exports.KEPT = new Set([
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
exports.NEVER_KEPT = new Set([
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
function keptHeaders(headers, named = []) {
    const lower = [...headers].map(([name, value]) => [name.toLowerCase(), value]);
    return lower.filter(([name]) => !isNeverKept(name) && (exports.KEPT.has(name) || named.includes(name)));
}
function isNeverKept(name) {
    return exports.NEVER_KEPT.has(name) || name.startsWith("onceward-") || name.startsWith("proxy-");
}
/** Returns the reply that stores a value as JSON. */
function replyOfValue(value) {
    if (value === undefined)
        return { status: 204 };
    return { status: 200, headers: [["content-type", "application/json"]], body: Buffer.from(JSON.stringify(value)) };
}
/** Returns the value that a reply stores as JSON. */
function valueOfReply(reply) {
    return reply.body?.length ? JSON.parse(Buffer.from(reply.body).toString()) : undefined;
}
/** Returns whether the status is a number, and the headers are pairs. */
function isReply({ status, headers = [] }) {
    const isPairs = Array.isArray(headers) && headers.every((pair) => Array.isArray(pair) && pair.length === 2 && pair.every((text) => typeof text === "string"));
    return Number.isInteger(status) && isPairs;
}
/** Returns a reply as the service receives it. Throws a `TypeError` if it is not one. */
function replyToWire(reply) {
    const { status, headers = [], body = new Uint8Array() } = reply;
    if (!isReply(reply))
        throw new TypeError('a reply has a number as its status, and pairs as its headers, such as [["location", "/1"]]');
    return { status, headers: headers.map(([name, value]) => [name, value]), body: Buffer.from(body).toString("base64") };
}
function replyFromWire({ status, headers = [], body = "" }) {
    return { status, headers, body: Buffer.from(body, "base64") };
}

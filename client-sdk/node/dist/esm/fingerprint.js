// The fingerprint of a request: a digest that shows whether two requests under one key have the same content.
import { createHash } from "node:crypto";
/** Returns a content type without its parameters, in lower case. */
export function mediaType(contentType) {
    return (contentType.split(";")[0] ?? "").trim().toLowerCase();
}
/** Returns the boundary of a multipart body, empty if there is none. */
export function boundary(contentType) {
    if (!mediaType(contentType).startsWith("multipart/"))
        return "";
    const [, quoted, bare] = /;\s*boundary=(?:"([^"]+)"|([^;\s]+))/i.exec(contentType) ?? [];
    return quoted ?? bare ?? "";
}
/**
 * Returns the SHA-256 digest of method, path, query, media type and body, each after its length.
 *
 * The body is compared by its bytes, also JSON. Only the boundary of a multipart body is left out: browsers create another one for each
 * attempt.
 */
export function fingerprint({ method, path, query, contentType, body }) {
    const mark = boundary(contentType);
    const bytes = mark ? withoutBoundary(body, mark) : body;
    const digest = createHash("sha256");
    for (const part of [method, path, query, mediaType(contentType), bytes]) {
        digest.update(`${Buffer.byteLength(part)}:`).update(part);
    }
    return digest.digest("hex");
}
function withoutBoundary(body, mark) {
    // latin1 maps each byte to one character and back.
    return Buffer.from(Buffer.from(body).toString("latin1").replaceAll(`--${mark}`, "--"), "latin1");
}
/**
 * Returns the JSON of a body that was parsed before, with the members of each object in order. The parsed value is compared, which is what
 * the handler receives: `1.0` and `1` are the same content, and so are two fractions that are rounded to the same number.
 *
 * Throws if the value has a number above 2^53: two account numbers of 20 digits may be the same number after parsing.
 */
export function canonicalJson(value) {
    return JSON.stringify(value, (_, member) => (isPlainObject(member) ? Object.fromEntries(Object.entries(member).sort(([one], [other]) => (one < other ? -1 : 1))) : exact(member))) ?? "";
}
function exact(value) {
    if (typeof value === "number" && Math.abs(value) > Number.MAX_SAFE_INTEGER) {
        throw new Error("another middleware has read a body with a number above 2^53, whose digits are lost: put Onceward before it");
    }
    return value;
}
function isPlainObject(value) {
    return typeof value === "object" && value !== null && !Array.isArray(value);
}

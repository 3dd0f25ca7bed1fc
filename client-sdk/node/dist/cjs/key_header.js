"use strict";
// The value of an `Idempotency-Key` header.
Object.defineProperty(exports, "__esModule", { value: true });
exports.parseKey = parseKey;
/**
 * Parses the header: a quoted string (RFC 9651) or the bare text, which give the same key. Returns `undefined` if it is malformed. A bare
 * key has no quote, comma or semicolon: a proxy may merge two headers into `a, b`.
 */
function parseKey(header) {
    const value = header.trim();
    const key = value.startsWith('"') ? unquote(value) : bare(value);
    return key !== undefined && /^[!-~]{1,255}$/.test(key) ? key : undefined;
}
function bare(value) {
    return /[",;]/.test(value) ? undefined : value;
}
function unquote(value) {
    const [, text] = /^"((?:[^"\\]|\\["\\])*)"$/.exec(value) ?? [];
    return text?.replace(/\\(["\\])/g, "$1");
}

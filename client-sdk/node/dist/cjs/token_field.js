"use strict";
// The form field that carries a token.
Object.defineProperty(exports, "__esModule", { value: true });
exports.FIELD = void 0;
exports.tokenField = tokenField;
const fingerprint_js_1 = require("./fingerprint.js");
/** The name of the form field. */
exports.FIELD = "_onceward";
/** Returns the token in the body of a form, `undefined` if there is none. */
function tokenField(contentType, body) {
    if ((0, fingerprint_js_1.mediaType)(contentType) === "application/x-www-form-urlencoded") {
        return new URLSearchParams(Buffer.from(body).toString()).get(exports.FIELD) || undefined;
    }
    const mark = (0, fingerprint_js_1.boundary)(contentType);
    return mark ? multipartField(Buffer.from(body).toString("latin1"), mark) : undefined;
}
function multipartField(body, mark) {
    for (const part of `\r\n${body}`.split(`\r\n--${mark}`)) {
        const end = part.indexOf("\r\n\r\n");
        if (end >= 0 && isTokenPart(part.slice(0, end)))
            return part.slice(end + 4) || undefined;
    }
    return undefined;
}
function isTokenPart(head) {
    const disposition = head.split("\r\n").find((line) => /^content-disposition:/i.test(line)) ?? "";
    return /;\s*name="?([^";]*)"?/i.exec(disposition)?.[1] === exports.FIELD;
}

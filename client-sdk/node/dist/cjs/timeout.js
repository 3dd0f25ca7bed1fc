"use strict";
// Errors of calls that were cut off: what such a call asked for may have happened.
Object.defineProperty(exports, "__esModule", { value: true });
exports.isTimeout = isTimeout;
/** The number of errors that are read of a chain of causes, which may be a cycle. */
const LENGTH = 20;
/** Returns whether an error, or one in the chain of its causes, is that of a timeout or of an abort. */
function isTimeout(error) {
    let each = error;
    for (let count = 0; count < LENGTH && isObject(each); count += 1) {
        if (showsTimeout(each))
            return true;
        each = each["cause"];
    }
    return false;
}
function showsTimeout({ name, code }) {
    return name === "AbortError" || [name, code].some((text) => typeof text === "string" && /timeout|timedout/i.test(text));
}
function isObject(value) {
    return typeof value === "object" && value !== null;
}

"use strict";
// Requests and responses of `node:http`, as the protection sees them.
Object.defineProperty(exports, "__esModule", { value: true });
exports.factsOf = factsOf;
exports.isOver = isOver;
exports.sendOwn = sendOwn;
exports.headersOf = headersOf;
/** Returns the facts about a request. A router may have changed its URL, so the original one counts. */
function factsOf(request) {
    const [path = "", ...query] = (request.originalUrl ?? request.url ?? "").split("?");
    return {
        method: request.method ?? "",
        path,
        query: query.join("?"),
        contentType: request.headers["content-type"] ?? "",
        header: (name) => merged(request.headers[name]),
    };
}
/** Returns the values of a header as one. */
function merged(values) {
    return Array.isArray(values) ? values.join(", ") : values;
}
/** Whether nothing can read the body or send a response any more: the client has closed its connection, or a timeout has responded. */
function isOver(request, response) {
    return response.destroyed || response.headersSent || (request.destroyed && !request.readableEnded);
}
/** Sends a response of this package. */
function sendOwn(response, { status, headers, body }) {
    response.statusCode = status;
    for (const [name, value] of headers)
        response.appendHeader(name, value);
    response.end(body);
}
/** Returns headers as pairs. */
function headersOf(headers) {
    return Object.entries(headers).flatMap(([name, value]) => [value ?? []].flat().map((each) => [name, String(each)]));
}

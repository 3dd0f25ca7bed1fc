"use strict";
// Middleware for Express 5, and for anything else with `(req, res, next)` on `node:http`.
//
//     app.post("/orders", protectKey(new Onceward(url), { subject: (req) => req.user.id }), createOrder);
var __createBinding = (this && this.__createBinding) || (Object.create ? (function(o, m, k, k2) {
    if (k2 === undefined) k2 = k;
    var desc = Object.getOwnPropertyDescriptor(m, k);
    if (!desc || ("get" in desc ? !m.__esModule : desc.writable || desc.configurable)) {
      desc = { enumerable: true, get: function() { return m[k]; } };
    }
    Object.defineProperty(o, k2, desc);
}) : (function(o, m, k, k2) {
    if (k2 === undefined) k2 = k;
    o[k2] = m[k];
}));
var __exportStar = (this && this.__exportStar) || function(m, exports) {
    for (var p in m) if (p !== "default" && !Object.prototype.hasOwnProperty.call(exports, p)) __createBinding(exports, m, p);
};
Object.defineProperty(exports, "__esModule", { value: true });
exports.protectKey = protectKey;
exports.protectToken = protectToken;
const captured_response_js_1 = require("./captured_response.js");
const fingerprint_js_1 = require("./fingerprint.js");
const node_body_js_1 = require("./node_body.js");
const node_exchange_js_1 = require("./node_exchange.js");
const protection_js_1 = require("./protection.js");
const protected_run_js_1 = require("./protected_run.js");
const token_field_js_1 = require("./token_field.js");
__exportStar(require("./index.js"), exports);
/** Runs the handlers behind it once per `Idempotency-Key`; a duplicate receives the stored response. */
function protectKey(onceward, options) {
    return middleware(new protection_js_1.Protection(onceward, "key", options));
}
/** Runs the handlers behind it once per token, from the header `Onceward-Token` or the form field `_onceward`. */
function protectToken(onceward, options) {
    return middleware(new protection_js_1.Protection(onceward, "token", options));
}
function middleware(protection) {
    return (request, response, next) => {
        if (!(0, protection_js_1.isClaimed)(request.method ?? ""))
            return next();
        protect(protection, request, response, next).catch((error) => {
            if (error instanceof node_body_js_1.Aborted)
                return;
            if (!(0, node_exchange_js_1.isOver)(request, response))
                return next(error);
            // An error handler would close the connection, on which another request may have arrived.
            protection.log(`a request failed after its response was sent, or its client left: ${error}`);
        });
    };
}
async function protect(protection, request, response, next) {
    const admitted = await protection.admit(request, (0, node_exchange_js_1.factsOf)(request), () => bodyOf(request, protection.bodyLimit));
    const isRun = admitted instanceof protected_run_js_1.ProtectedRun;
    // A parser would wait for the body, and the claim with it.
    if ((0, node_exchange_js_1.isOver)(request, response))
        return void (isRun && (await admitted.settleUnentered()));
    if (!isRun)
        return (0, node_exchange_js_1.sendOwn)(response, admitted);
    (0, captured_response_js_1.captureResponse)(response, protection.replyLimit, (captured) => admitted.settle(captured));
    admitted.enter(next);
}
async function bodyOf(request, limit) {
    if (isRead(request))
        return parsedBody(request);
    const bytes = await (0, node_body_js_1.readBody)(request, limit);
    return bytes && { bytes };
}
/** Whether a parser before this middleware has read the body. */
function isRead(request) {
    return request.readableDidRead && request.readableEnded;
}
/** Returns a body that a parser has read before: its bytes, or the JSON of the parsed value, which is what the handler receives. */
function parsedBody({ body, headers }) {
    // The files of a form would not be compared.
    if (body === undefined || (0, fingerprint_js_1.boundary)(headers["content-type"] ?? ""))
        throw new Error("another middleware has read the body: put Onceward before it");
    if (body instanceof Uint8Array)
        return { bytes: body };
    const field = typeof body === "object" && body !== null ? body[token_field_js_1.FIELD] : undefined;
    return { bytes: Buffer.from((0, fingerprint_js_1.canonicalJson)(body)), field: typeof field === "string" ? field : undefined };
}

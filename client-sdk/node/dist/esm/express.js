// Middleware for Express 5, and for anything else with `(req, res, next)` on `node:http`.
//
//     app.post("/orders", protectKey(new Onceward(url), { subject: (req) => req.user.id }), createOrder);
import { captureResponse } from "./captured_response.js";
import { boundary, canonicalJson } from "./fingerprint.js";
import { Aborted, readBody } from "./node_body.js";
import { factsOf, isOver, sendOwn } from "./node_exchange.js";
import { isClaimed, Protection } from "./protection.js";
import { ProtectedRun } from "./protected_run.js";
import { FIELD } from "./token_field.js";
export * from "./index.js";
/** Runs the handlers behind it once per `Idempotency-Key`; a duplicate receives the stored response. */
export function protectKey(onceward, options) {
    return middleware(new Protection(onceward, "key", options));
}
/** Runs the handlers behind it once per token, from the header `Onceward-Token` or the form field `_onceward`. */
export function protectToken(onceward, options) {
    return middleware(new Protection(onceward, "token", options));
}
function middleware(protection) {
    return (request, response, next) => {
        if (!isClaimed(request.method ?? ""))
            return next();
        protect(protection, request, response, next).catch((error) => {
            if (error instanceof Aborted)
                return;
            if (!isOver(request, response))
                return next(error);
            // An error handler would close the connection, on which another request may have arrived.
            protection.log(`a request failed after its response was sent, or its client left: ${error}`);
        });
    };
}
async function protect(protection, request, response, next) {
    const admitted = await protection.admit(request, factsOf(request), () => bodyOf(request, protection.bodyLimit));
    const isRun = admitted instanceof ProtectedRun;
    // A parser would wait for the body, and the claim with it.
    if (isOver(request, response))
        return void (isRun && (await admitted.settleUnentered()));
    if (!isRun)
        return sendOwn(response, admitted);
    captureResponse(response, protection.replyLimit, (captured) => admitted.settle(captured));
    admitted.enter(next);
}
async function bodyOf(request, limit) {
    if (isRead(request))
        return parsedBody(request);
    const bytes = await readBody(request, limit);
    return bytes && { bytes };
}
/** Whether a parser before this middleware has read the body. */
function isRead(request) {
    return request.readableDidRead && request.readableEnded;
}
/** Returns a body that a parser has read before: its bytes, or the JSON of the parsed value, which is what the handler receives. */
function parsedBody({ body, headers }) {
    // The files of a form would not be compared.
    if (body === undefined || boundary(headers["content-type"] ?? ""))
        throw new Error("another middleware has read the body: put Onceward before it");
    if (body instanceof Uint8Array)
        return { bytes: body };
    const field = typeof body === "object" && body !== null ? body[FIELD] : undefined;
    return { bytes: Buffer.from(canonicalJson(body)), field: typeof field === "string" ? field : undefined };
}

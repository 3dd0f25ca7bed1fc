// Handlers of the Fetch API, `(request) => Promise<Response>`, as in Hono and Next.js.
//
//     export const POST = protectKey(new Onceward(url), { subject: (request) => userOf(request) }, createOrder);
import { setImmediate } from "node:timers/promises";
import { isClaimed, Protection } from "./protection.js";
import { ProtectedRun } from "./protected_run.js";
export * from "./index.js";
/** Runs the handler once per `Idempotency-Key`; a duplicate receives the stored response. */
export function protectKey(onceward, options, handler) {
    return protect(new Protection(onceward, "key", options), options, handler);
}
/** Runs the handler once per token, from the header `Onceward-Token` or the form field `_onceward`. */
export function protectToken(onceward, options, handler) {
    return protect(new Protection(onceward, "token", options), options, handler);
}
function protect(protection, { onError }, handler) {
    return async (request, ...more) => {
        if (!isClaimed(request.method))
            return handler(request, ...more);
        const admitted = await protection.admit(request, factsOf(request), () => readBody(request, protection.bodyLimit));
        if (!(admitted instanceof ProtectedRun))
            return ownResponse(admitted);
        const response = await runHandler(admitted, onError, async () => handler(request, ...more));
        try {
            return await respond(admitted, protection.replyLimit, response);
        }
        catch (error) {
            // The handler ran to its end, and what it returned is not a response, or was read before.
            admitted.leave();
            throw error;
        }
    };
}
async function runHandler(run, onError, handler) {
    try {
        return await run.enter(handler);
    }
    catch (error) {
        run.noteError(error);
        try {
            if (onError)
                return await run.enter(async () => onError(error));
        }
        catch (another) {
            await run.settleError();
            throw another;
        }
        await run.settleError();
        throw error;
    }
}
/** Settles the run by its response. */
async function respond(run, limit, response) {
    const { status, headers } = response;
    const body = await readWhole(response.clone().body, limit);
    return withHeaders(response, await run.enter(() => run.settle({ status, headers, body })));
}
function factsOf({ method, url, headers }) {
    const { pathname, search } = new URL(url);
    const contentType = headers.get("content-type") ?? "";
    return { method, path: pathname, query: search.slice(1), contentType, header: (name) => headers.get(name) ?? undefined };
}
/** Reads the body from a copy, so that the handler receives the request as it was. */
async function readBody(request, limit) {
    if (Number(request.headers.get("content-length") ?? 0) > limit)
        return undefined;
    const bytes = await readUpTo(request.clone().body, limit, (reader) => reader.read());
    return bytes && { bytes };
}
/**
 * Reads a body that is there as a whole. Returns `undefined` for one that is streamed, or larger than `limit`.
 *
 * The Fetch API does not tell text or bytes from a stream. Their chunks are there at once; those of a stream are awaited.
 */
function readWhole(body, limit) {
    return readUpTo(body, limit, (reader) => Promise.race([reader.read(), setImmediate(undefined)]).catch(() => undefined));
}
/** Reads a copy of a body. Returns `undefined` if it is larger than `limit`, or if `next` returns no chunk: the original then goes on. */
async function readUpTo(body, limit, next) {
    const reader = body?.getReader();
    if (!reader)
        return new Uint8Array();
    const chunks = [];
    for (let size = 0; size <= limit;) {
        const chunk = await next(reader);
        if (!chunk)
            break;
        if (chunk.done)
            return Buffer.concat(chunks);
        chunks.push(chunk.value);
        size += chunk.value.length;
    }
    // Not awaited: it ends when the original does.
    void reader.cancel().catch(() => undefined);
    return undefined;
}
/** Returns the response with more headers. Those of some responses, such as redirects, cannot be changed in place. */
function withHeaders(response, added) {
    const headers = new Headers(response.headers);
    for (const [name, value] of added)
        name === "server-timing" ? headers.append(name, value) : headers.set(name, value);
    return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}
const WITHOUT_BODY = [204, 205, 304];
function ownResponse({ status, headers, body }) {
    const list = headers.map(([name, value]) => [name, value]);
    return new Response(WITHOUT_BODY.includes(status) ? null : body, { status, headers: list });
}

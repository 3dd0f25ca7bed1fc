"use strict";
// The body of a request of `node:http`: read to compare it, and handed back for the parsers behind.
Object.defineProperty(exports, "__esModule", { value: true });
exports.Aborted = void 0;
exports.readBody = readBody;
/** The client closed its connection before the body was complete. */
class Aborted extends Error {
    name = "Aborted";
}
exports.Aborted = Aborted;
/**
 * Reads the body, and hands it back. Returns `undefined` if it is larger than `limit`. Throws `Aborted` if the client closes its connection.
 *
 * The stream is read until the message is complete, and then receives its bytes again before it emits `end`: a parser finds it as if it
 * had never been read.
 */
function readBody(request, limit) {
    const { "content-length": length, "transfer-encoding": encoding } = request.headers;
    if (Number(length ?? 0) > limit)
        return Promise.resolve(undefined);
    if (encoding === undefined && Number(length ?? 0) === 0)
        return Promise.resolve(Buffer.alloc(0));
    if (request.destroyed)
        return Promise.reject(new Aborted("the client closed its connection"));
    // An empty body that is there already: its stream emits no `readable`, and `end` only for its parser.
    if (isComplete(request) && request.readableLength === 0 && !request.readableDidRead)
        return Promise.resolve(Buffer.alloc(0));
    return new Promise((resolve, reject) => {
        const chunks = [];
        let size = 0;
        function finish(settle) {
            request.off("readable", read).off("close", abort).off("error", abort);
            // The stream forgets its listener for `readable` in the next tick; until then a parser could not make it flow.
            process.nextTick(settle);
        }
        function abort() {
            finish(() => reject(new Aborted("the client closed its connection")));
        }
        function read() {
            for (let chunk; (chunk = request.read()) !== null;) {
                chunks.push(chunk);
                size += chunk.length;
            }
            if (size > limit)
                return finish(() => resolve(undefined));
            if (!isComplete(request))
                return;
            const body = Buffer.concat(chunks);
            if (size > 0)
                request.unshift(body);
            finish(() => resolve(body));
        }
        request.on("readable", read).on("close", abort).on("error", abort);
    });
}
/** Whether all bytes have arrived. Requests that Fastify injects in tests are plain streams. */
function isComplete(request) {
    return request.complete ?? request._readableState?.ended ?? false;
}

// Route options and a plugin for Fastify 5.
//
//     app.post("/orders", protectKey(new Onceward(url), { subject: (request) => request.user.id }), createOrder);
import { Readable } from "node:stream";
import { Aborted, readBody } from "./node_body.js";
import { factsOf, headersOf } from "./node_exchange.js";
import { isClaimed, Protection } from "./protection.js";
import { ProtectedRun } from "./protected_run.js";
export * from "./index.js";
/** Runs the handler of a route once per `Idempotency-Key`; a duplicate receives the stored response. */
export function protectKey(onceward, options) {
    return hooks(new Protection(onceward, "key", options));
}
/** Runs the handler of a route once per token, from the header `Onceward-Token` or the form field `_onceward`. */
export function protectToken(onceward, options) {
    return hooks(new Protection(onceward, "token", options));
}
/** A plugin that protects all routes that its scope registers afterwards: `app.register(protectAll, protectKey(…))`. */
export async function protectAll(app, { preParsing, preHandler, onError, onSend }) {
    app.addHook("preParsing", preParsing);
    app.addHook("preHandler", preHandler);
    app.addHook("onError", onError);
    app.addHook("onSend", onSend);
}
// The hooks belong to the scope that registers the plugin.
Object.assign(protectAll, { [Symbol.for("skip-override")]: true, [Symbol.for("fastify.display-name")]: "onceward" });
function hooks(protection) {
    const running = new WeakMap();
    return {
        async preParsing(request, reply, payload) {
            if (!isClaimed(request.method))
                return undefined;
            const body = new Payloads(payload, protection.bodyLimit);
            const admitted = await protection.admit(request, factsOf(request.raw), () => body.read()).catch((error) => {
                if (!(error instanceof Aborted))
                    throw error;
            });
            if (admitted instanceof ProtectedRun)
                running.set(request, { run: admitted, isEntered: false });
            else if (admitted)
                send(reply, admitted);
            else
                reply.hijack();
            return body.handedBack;
        },
        preHandler(request, _, done) {
            const entry = running.get(request);
            if (!entry)
                return done();
            entry.isEntered = true;
            entry.run.enter(done);
        },
        async onError(request, _, error) {
            running.get(request)?.run.noteError(error);
        },
        async onSend(request, reply, payload) {
            const entry = running.get(request);
            if (!entry)
                return payload;
            running.delete(request);
            const added = entry.isEntered ? await entry.run.settle(captured(reply, payload, protection.replyLimit)) : await entry.run.settleUnentered();
            for (const [name, value] of added)
                reply.header(name, value);
            return payload;
        },
    };
}
function captured(reply, payload, limit) {
    return { status: reply.statusCode, headers: headersOf(reply.getHeaders()), body: bytesOf(payload, limit) };
}
/** Returns the body of a response, `undefined` if it is streamed or too large to store. */
function bytesOf(payload, limit) {
    const whole = typeof payload === "string" ? Buffer.from(payload) : (payload ?? Buffer.alloc(0));
    return whole instanceof Uint8Array && whole.length <= limit ? whole : undefined;
}
function send(reply, { status, headers, body }) {
    reply.code(status);
    for (const [name, value] of headers)
        reply.header(name, value);
    reply.send(body);
}
/** The payload of a request: read to compare it, and handed back to the parser of Fastify. */
class Payloads {
    /** The stream in place of the payload, if another hook has replaced that of the request. */
    handedBack;
    #payload;
    #limit;
    constructor(payload, limit) {
        this.#payload = payload;
        this.#limit = limit;
    }
    async read() {
        const bytes = await ("headers" in this.#payload ? readBody(this.#payload, this.#limit) : this.#readStream(this.#payload));
        return bytes && { bytes };
    }
    async #readStream(payload) {
        const chunks = [];
        let size = 0;
        for await (const chunk of payload) {
            size += chunk.length;
            if (size > this.#limit)
                return undefined;
            chunks.push(chunk);
        }
        const body = Buffer.concat(chunks);
        this.handedBack = Object.assign(Readable.from([body]), { receivedEncodedLength: payload.receivedEncodedLength ?? size });
        return body;
    }
}

"use strict";
// Route options and a plugin for Fastify 5.
//
//     app.post("/orders", protectKey(new Onceward(url), { subject: (request) => request.user.id }), createOrder);
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
exports.protectAll = protectAll;
const node_stream_1 = require("node:stream");
const node_body_js_1 = require("./node_body.js");
const node_exchange_js_1 = require("./node_exchange.js");
const protection_js_1 = require("./protection.js");
const protected_run_js_1 = require("./protected_run.js");
__exportStar(require("./index.js"), exports);
/** Runs the handler of a route once per `Idempotency-Key`; a duplicate receives the stored response. */
function protectKey(onceward, options) {
    return hooks(new protection_js_1.Protection(onceward, "key", options));
}
/** Runs the handler of a route once per token, from the header `Onceward-Token` or the form field `_onceward`. */
function protectToken(onceward, options) {
    return hooks(new protection_js_1.Protection(onceward, "token", options));
}
/** A plugin that protects all routes that its scope registers afterwards: `app.register(protectAll, protectKey(…))`. */
async function protectAll(app, { preParsing, preHandler, onError, onSend }) {
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
            if (!(0, protection_js_1.isClaimed)(request.method))
                return undefined;
            const body = new Payloads(payload, protection.bodyLimit);
            const admitted = await protection.admit(request, (0, node_exchange_js_1.factsOf)(request.raw), () => body.read()).catch((error) => {
                if (!(error instanceof node_body_js_1.Aborted))
                    throw error;
            });
            if (admitted instanceof protected_run_js_1.ProtectedRun)
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
    return { status: reply.statusCode, headers: (0, node_exchange_js_1.headersOf)(reply.getHeaders()), body: bytesOf(payload, limit) };
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
        const bytes = await ("headers" in this.#payload ? (0, node_body_js_1.readBody)(this.#payload, this.#limit) : this.#readStream(this.#payload));
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
        this.handedBack = Object.assign(node_stream_1.Readable.from([body]), { receivedEncodedLength: payload.receivedEncodedLength ?? size });
        return body;
    }
}

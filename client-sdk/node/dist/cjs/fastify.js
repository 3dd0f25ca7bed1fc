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
const node_diagnostics_channel_1 = require("node:diagnostics_channel");
const node_stream_1 = require("node:stream");
const node_body_js_1 = require("./node_body.js");
const node_exchange_js_1 = require("./node_exchange.js");
const protection_js_1 = require("./protection.js");
const protected_run_js_1 = require("./protected_run.js");
const statement_js_1 = require("./statement.js");
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
const REPLACED = "a preParsing hook has replaced that of Onceward, so the route is not protected: list both in an array, or use protectAll";
/** The runs of requests whose response is not known yet, for the events of Fastify's handlers. */
const runs = new WeakMap();
/** The requests whose handler Fastify has called, or was about to call when another hook failed. */
const started = new WeakSet();
/** Whether Fastify reports the start of handlers. It does not on Node.js before 20.13. */
let isObserved = false;
/**
 * Observes the handlers of Fastify: a route whose own `preHandler` has replaced the one here still enters its run, and one whose own
 * `onError` has replaced it still notes the error of its handler. An asynchronous handler ends without a response if its client has
 * disconnected and it returns nothing.
 */
function observe() {
    const channels = (0, node_diagnostics_channel_1.tracingChannel)("fastify.request.handler");
    if (isObserved || channels.hasSubscribers === undefined)
        return;
    isObserved = true;
    channels.start.bindStore(statement_js_1.current, (event) => runs.get(event.request)?.statement ?? statement_js_1.current.getStore());
    channels.start.subscribe((event) => started.add(event.request));
    channels.error.subscribe((event) => {
        const { request, error } = event;
        runs.get(request)?.noteError(error);
    });
    channels.asyncEnd.subscribe((event) => {
        const { request, reply } = event;
        if (reply.raw.destroyed)
            reply.raw.emit(ENDED, request);
    });
}
/** The event of a response whose handler has ended after its client had disconnected. */
const ENDED = Symbol("onceward.ended");
function hooks(protection) {
    observe();
    const running = new WeakMap();
    /** The requests that `preParsing` and `preHandler` have seen. */
    const [parsed, entered] = [new WeakSet(), new WeakSet()];
    /** The routes, by their configuration, whose `preHandler` was not replaced. */
    const intact = new WeakSet();
    function start(request, reply, run) {
        const { raw } = reply;
        running.set(request, run);
        runs.set(request, run);
        function settle() {
            if (running.delete(request))
                void run.settle({ status: raw.statusCode, headers: [], body: undefined });
        }
        // A handler that writes to `reply.raw` itself passes no other hook.
        raw.once("finish", settle).once(ENDED, settle);
        raw.once("close", () => {
            if (!running.has(request))
                return;
            if (raw.headersSent)
                return settle();
            // A handler that took over the response may still work, and nothing tells when it is over.
            if (reply.sent && running.delete(request))
                return run.leave();
            // A response that ends after its connection emits nothing.
            const end = raw.end;
            raw.end = (...rest) => {
                settle();
                return end.apply(raw, rest);
            };
        });
    }
    async function admit(request, reply, body) {
        const admitted = await protection.admit(request, (0, node_exchange_js_1.factsOf)(request.raw), () => body.read()).catch((error) => {
            if (!(error instanceof node_body_js_1.Aborted))
                throw error;
            return undefined;
        });
        if (!(admitted instanceof protected_run_js_1.ProtectedRun) || !(0, node_exchange_js_1.isOver)(request.raw, reply.raw))
            return admitted;
        // Its body cannot be parsed any more, and Fastify would wait for that.
        await admitted.settleUnentered();
        return undefined;
    }
    /** Whether the handler ran, or may have. */
    function mayHaveRun(request, { statusCode }) {
        // A plugin also protects paths without a route.
        if (request.is404 && statusCode === 404)
            return false;
        if (entered.has(request) || statusCode < 400)
            return true;
        return !intact.has(request.routeOptions.config) && (started.has(request) || !isObserved);
    }
    return {
        // With a callback, which is not called after a response: Fastify would go on while the hooks of that response still run.
        preParsing(request, reply, payload, done) {
            if (!(0, protection_js_1.isClaimed)(request.method))
                return done();
            parsed.add(request);
            const body = new Payloads(payload, protection.bodyLimit);
            admit(request, reply, body).then((admitted) => {
                if (!admitted)
                    return void reply.hijack();
                if (!(admitted instanceof protected_run_js_1.ProtectedRun))
                    return send(reply, admitted);
                start(request, reply, admitted);
                done(null, body.handedBack);
            }, done);
        },
        preHandler(request, _, done) {
            if ((0, protection_js_1.isClaimed)(request.method) && !parsed.has(request))
                return done(new Error(REPLACED));
            entered.add(request);
            intact.add(request.routeOptions.config);
            const run = running.get(request);
            return run ? run.enter(done) : done();
        },
        async onError(request, _, error) {
            running.get(request)?.noteError(error);
        },
        async onSend(request, reply, payload) {
            // Both hooks before the handler were replaced.
            if ((0, protection_js_1.isClaimed)(request.method) && !parsed.has(request) && started.has(request))
                throw new Error(REPLACED);
            const run = running.get(request);
            if (!run)
                return payload;
            running.delete(request);
            const added = mayHaveRun(request, reply) ? await run.settle(captured(reply, payload, protection.replyLimit)) : await run.settleUnentered();
            setHeaders(reply, added);
            return payload;
        },
    };
}
function captured(reply, payload, limit) {
    return { status: Number(reply.statusCode), headers: (0, node_exchange_js_1.headersOf)(reply.getHeaders()), body: bytesOf(payload, limit) };
}
/** Returns the body of a response, `undefined` if it is streamed or too large to store. */
function bytesOf(payload, limit) {
    const whole = typeof payload === "string" ? Buffer.from(payload) : (payload ?? Buffer.alloc(0));
    return whole instanceof Uint8Array && whole.length <= limit ? whole : undefined;
}
function send(reply, { status, headers, body }) {
    reply.code(status);
    setHeaders(reply, headers);
    // Fastify would give an empty buffer a content type.
    reply.send(body.length > 0 ? body : undefined);
}
function setHeaders(reply, headers) {
    for (const [name, lines] of (0, node_exchange_js_1.headerLines)(headers, (name) => reply.getHeader(name)))
        reply.header(name, lines);
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

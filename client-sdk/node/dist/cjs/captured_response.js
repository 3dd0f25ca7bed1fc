"use strict";
// Captures the response of a handler on `node:http`: held until its claim is settled, then sent.
Object.defineProperty(exports, "__esModule", { value: true });
exports.captureResponse = captureResponse;
const node_exchange_js_1 = require("./node_exchange.js");
const METHODS = ["writeHead", "flushHeaders", "write", "end"];
/**
 * Captures the response. One that ends with its first chunk, or announces a length within `limit`, is held as a whole. Any other is
 * streamed: its claim is settled without a body, and what was written meanwhile follows.
 */
function captureResponse(response, limit, settle) {
    new CapturedResponse(response, limit, settle).install();
}
class CapturedResponse {
    #response;
    #limit;
    #settle;
    /** The methods before this capture: those of the response, or of a middleware that has wrapped them, such as `express-session`. */
    #sent;
    #chunks = [];
    #size = 0;
    #callbacks = [];
    /** The listeners for `drain` that another middleware keeps elsewhere. */
    #drained = [];
    #isPiped = false;
    #isSettling = false;
    #isEnded = false;
    #isFlushed = false;
    constructor(response, limit, settle) {
        this.#response = response;
        this.#limit = limit;
        this.#settle = settle;
        this.#sent = Object.fromEntries(METHODS.map((name) => [name, response[name]]));
    }
    /**
     * Wraps the methods of the response. The wrappers stay, and pass calls on once the response is sent: another middleware may have wrapped
     * them in turn, such as `compression`.
     */
    install() {
        const response = this.#response;
        const held = {
            writeHead: (status, ...rest) => this.#writeHead(status, rest),
            flushHeaders: () => this.#stream(),
            write: (chunk, ...rest) => this.#write(chunk, rest),
            end: (...rest) => this.#end(rest),
        };
        for (const name of METHODS) {
            Object.assign(response, { [name]: (...rest) => (this.#isFlushed ? this.#call(name, ...rest) : held[name](...rest)) });
        }
        this.#watchDrain();
        response.once("close", () => this.#closed());
        response.on("pipe", (source) => this.#piped(source));
    }
    /** A middleware that compresses passes listeners for `drain` to a stream of its own. */
    #watchDrain() {
        const response = this.#response;
        if (!Object.hasOwn(response, "on"))
            return;
        const on = response.on;
        const watched = (event, listener) => {
            if (event === "drain" && !this.#isFlushed)
                this.#drained.push(listener);
            return on.call(response, event, listener);
        };
        Object.assign(response, { on: watched });
    }
    /** Lets a handler write on that was told to wait. */
    #drain() {
        const listeners = this.#response.rawListeners("drain");
        this.#response.emit("drain");
        for (const listener of this.#drained)
            if (!listeners.includes(listener))
                listener.call(this.#response);
        this.#drained = [];
    }
    #call(name, ...rest) {
        return this.#sent[name].apply(this.#response, rest);
    }
    #writeHead(status, rest) {
        const response = this.#response;
        if (this.#isSettling)
            return response;
        const [message, headers] = typeof rest[0] === "string" ? rest : [undefined, rest[0] ?? rest[1]];
        response.statusCode = status;
        if (typeof message === "string")
            response.statusMessage = message;
        const pairs = headerPairs(headers);
        // As without protection: they replace headers that were set before, and a name that is listed twice is sent twice.
        for (const [name] of pairs)
            response.removeHeader(name);
        for (const [name, value] of pairs) {
            if (response.hasHeader(name))
                response.appendHeader(name, valuesOf(value));
            else
                response.setHeader(name, value);
        }
        return response;
    }
    #write(chunk, rest) {
        if (this.#isEnded)
            return false;
        this.#keep(chunk, rest);
        if (!this.#isSettling && this.#isShort())
            return true;
        this.#stream();
        return false;
    }
    #end(rest) {
        if (this.#isEnded)
            return this.#response;
        const [chunk] = rest;
        if (typeof chunk === "string" || chunk instanceof Uint8Array)
            this.#keep(chunk, rest.slice(1));
        else
            this.#callbacks.push(rest.find((argument) => typeof argument === "function"));
        this.#isEnded = true;
        if (!this.#isSettling)
            this.#begin(this.#size <= this.#limit ? Buffer.concat(this.#chunks) : undefined);
        return this.#response;
    }
    #keep(chunk, rest) {
        const encoding = typeof rest[0] === "string" ? rest[0] : "utf8";
        const bytes = typeof chunk === "string" ? Buffer.from(chunk, encoding) : Buffer.from(chunk);
        this.#chunks.push(bytes);
        this.#size += bytes.length;
        this.#callbacks.push(rest.find((argument) => typeof argument === "function"));
    }
    /** Whether the rest of the body can be awaited. */
    #isShort() {
        const length = this.#response.getHeader("content-length");
        return length !== undefined && Number(length) <= this.#limit && this.#size <= this.#limit;
    }
    #stream() {
        if (this.#isSettling)
            return;
        // As without protection: an error page cannot replace a stream that has begun.
        Object.defineProperty(this.#response, "headersSent", { value: true, configurable: true });
        this.#begin(undefined);
    }
    /** A client that closed its connection does not end its handler, unless that has begun to respond and cannot go on. */
    #closed() {
        if (!this.#isSettling && (this.#size > 0 || this.#isPiped))
            this.#begin(undefined);
    }
    /** A file or another stream ends early if the client has closed its connection before. */
    #piped(source) {
        this.#isPiped = true;
        source.once("close", () => {
            if (this.#response.destroyed)
                this.#closed();
        });
    }
    #begin(body) {
        this.#isSettling = true;
        this.#send(body).catch((error) => this.#response.destroy(error));
    }
    async #send(body) {
        const response = this.#response;
        const { statusCode, statusMessage } = response;
        const headers = response.getHeaders();
        // Node.js accepts a status that is text.
        const added = await this.#settle({ status: Number(statusCode), headers: (0, node_exchange_js_1.headersOf)(headers), body });
        Reflect.deleteProperty(response, "headersSent");
        // An error handler may have changed them meanwhile, for an error after the response.
        for (const name of response.getHeaderNames())
            response.removeHeader(name);
        for (const [name, value] of Object.entries(headers))
            response.setHeader(name, value);
        (0, node_exchange_js_1.setHeaders)(response, added);
        Object.assign(response, { statusCode, statusMessage });
        this.#flush();
    }
    #flush() {
        const [body, callbacks] = [Buffer.concat(this.#chunks), this.#callbacks];
        [this.#chunks, this.#callbacks, this.#isFlushed] = [[], [], true];
        const callback = (error) => callbacks.forEach((each) => each?.(error));
        // Some wrappers take a callback for a chunk, or do not expect an empty chunk.
        if (this.#isEnded)
            return void this.#call("end", ...(body.length > 0 ? [body] : []), ...(callbacks.some(Boolean) ? [callback] : []));
        if (body.length > 0) {
            if (this.#call("write", body, callback))
                this.#drain();
            return;
        }
        this.#call("flushHeaders");
        process.nextTick(callback);
        this.#drain();
    }
}
/** Returns the headers of `writeHead`: an object, names and values in turn, or pairs. */
function headerPairs(headers) {
    if (!Array.isArray(headers))
        return Object.entries((headers ?? {}));
    if (Array.isArray(headers[0]))
        return headers;
    return headers.flatMap((name, at) => (at % 2 === 0 ? [[name, headers[at + 1]]] : []));
}
function valuesOf(value) {
    return Array.isArray(value) ? value : String(value);
}

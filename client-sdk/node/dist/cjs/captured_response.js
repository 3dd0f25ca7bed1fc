"use strict";
// Captures the response of a handler on `node:http`: held until its claim is settled, then sent.
Object.defineProperty(exports, "__esModule", { value: true });
exports.captureResponse = captureResponse;
const node_exchange_js_1 = require("./node_exchange.js");
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
    #chunks = [];
    #size = 0;
    #callbacks = [];
    #isSettling = false;
    #isEnded = false;
    constructor(response, limit, settle) {
        this.#response = response;
        this.#limit = limit;
        this.#settle = settle;
    }
    install() {
        const response = this.#response;
        Object.assign(response, {
            writeHead: (status, ...rest) => this.#writeHead(status, rest),
            flushHeaders: () => void this.#stream(),
            write: (chunk, ...rest) => this.#write(chunk, rest),
            end: (...rest) => this.#end(rest),
        });
        response.once("close", () => this.#closed());
    }
    /** Removes the own methods again, which hide those of the prototype. */
    #uninstall() {
        for (const name of ["writeHead", "flushHeaders", "write", "end", "headersSent"])
            Reflect.deleteProperty(this.#response, name);
    }
    #writeHead(status, rest) {
        if (this.#isSettling)
            return this.#response;
        const [message, headers] = typeof rest[0] === "string" ? rest : [undefined, rest[0] ?? rest[1]];
        this.#response.statusCode = status;
        if (typeof message === "string")
            this.#response.statusMessage = message;
        for (const [name, value] of headerPairs(headers))
            this.#response.setHeader(name, value);
        return this.#response;
    }
    #write(chunk, rest) {
        if (this.#isEnded)
            return false;
        this.#keep(chunk, rest);
        if (!this.#isSettling && this.#isShort())
            return true;
        void this.#stream();
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
            void this.#send(this.#size <= this.#limit ? Buffer.concat(this.#chunks) : undefined);
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
            return undefined;
        // As without protection: an error page cannot replace a stream that has begun.
        Object.defineProperty(this.#response, "headersSent", { value: true, configurable: true });
        return this.#send(undefined);
    }
    /** A client that closed its connection does not end its handler, unless that has begun to respond and cannot go on. */
    #closed() {
        if (!this.#isSettling && this.#size > 0)
            void this.#send(undefined);
    }
    async #send(body) {
        this.#isSettling = true;
        const response = this.#response;
        const { statusCode, statusMessage } = response;
        const headers = response.getHeaders();
        const added = await this.#settle({ status: statusCode, headers: (0, node_exchange_js_1.headersOf)(headers), body });
        this.#uninstall();
        // An error handler may have changed them meanwhile, for an error after the response.
        for (const name of response.getHeaderNames())
            response.removeHeader(name);
        for (const [name, value] of Object.entries(headers))
            response.setHeader(name, value);
        for (const [name, value] of added)
            response.appendHeader(name, value);
        Object.assign(response, { statusCode, statusMessage });
        this.#flush();
    }
    #flush() {
        const response = this.#response;
        const callback = (error) => this.#callbacks.forEach((each) => each?.(error));
        const body = Buffer.concat(this.#chunks);
        if (this.#isEnded)
            response.end(body, callback);
        else if (body.length === 0)
            response.flushHeaders();
        else if (response.write(body, callback))
            response.emit("drain");
    }
}
function headerPairs(headers) {
    if (!Array.isArray(headers))
        return Object.entries((headers ?? {}));
    const flat = headers.flat();
    return flat.flatMap((name, at) => (at % 2 === 0 ? [[name, flat[at + 1] ?? ""]] : []));
}

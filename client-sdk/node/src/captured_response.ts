// Captures the response of a handler on `node:http`: held until its claim is settled, then sent.

import type { ServerResponse } from "node:http";
import type { EventEmitter } from "node:events";
import { headersOf, setHeaders } from "./node_exchange.js";
import type { HandlerResponse } from "./protected_run.js";
import type { Header } from "./reply.js";

type Callback = ((error?: Error | null) => void) | undefined;
type Chunk = string | Uint8Array;
type Method = (...rest: unknown[]) => unknown;

const METHODS = ["writeHead", "flushHeaders", "write", "end"] as const;
type Methods = Record<(typeof METHODS)[number], Method>;

/** Returns the headers to add to a response. */
export type Settle = (response: HandlerResponse) => Promise<Header[]>;

/**
 * Captures the response. One that ends with its first chunk, or announces a length within `limit`, is held as a whole. Any other is
 * streamed: its claim is settled without a body, and what was written meanwhile follows.
 */
export function captureResponse(response: ServerResponse, limit: number, settle: Settle): void {
  new CapturedResponse(response, limit, settle).install();
}

class CapturedResponse {
  #response: ServerResponse;
  #limit: number;
  #settle: Settle;
  /** The methods before this capture: those of the response, or of a middleware that has wrapped them, such as `express-session`. */
  #sent: Methods;
  #chunks: Buffer[] = [];
  #size = 0;
  #callbacks: Callback[] = [];
  /** The listeners for `drain` that another middleware keeps elsewhere. */
  #drained: Method[] = [];
  #isPiped = false;
  #isSettling = false;
  #isEnded = false;
  #isFlushed = false;

  constructor(response: ServerResponse, limit: number, settle: Settle) {
    this.#response = response;
    this.#limit = limit;
    this.#settle = settle;
    this.#sent = Object.fromEntries(METHODS.map((name) => [name, response[name]])) as Methods;
  }

  /**
   * Wraps the methods of the response. The wrappers stay, and pass calls on once the response is sent: another middleware may have wrapped
   * them in turn, such as `compression`.
   */
  install(): void {
    const response = this.#response;
    const held: Methods = {
      writeHead: (status, ...rest) => this.#writeHead(status as number, rest),
      flushHeaders: () => this.#stream(),
      write: (chunk, ...rest) => this.#write(chunk as Chunk, rest),
      end: (...rest) => this.#end(rest),
    };
    for (const name of METHODS) {
      Object.assign(response, { [name]: (...rest: unknown[]) => (this.#isFlushed ? this.#call(name, ...rest) : held[name](...rest)) });
    }
    this.#watchDrain();
    response.once("close", () => this.#closed());
    response.on("pipe", (source: EventEmitter) => this.#piped(source));
  }

  /** A middleware that compresses passes listeners for `drain` to a stream of its own. */
  #watchDrain(): void {
    const response = this.#response;
    if (!Object.hasOwn(response, "on")) return;
    const on = response.on as Method;
    const watched: Method = (event, listener) => {
      if (event === "drain" && !this.#isFlushed) this.#drained.push(listener as Method);
      return on.call(response, event, listener);
    };
    Object.assign(response, { on: watched });
  }

  /** Lets a handler write on that was told to wait. */
  #drain(): void {
    const listeners: unknown[] = this.#response.rawListeners("drain");
    this.#response.emit("drain");
    for (const listener of this.#drained) if (!listeners.includes(listener)) listener.call(this.#response);
    this.#drained = [];
  }

  #call(name: keyof Methods, ...rest: unknown[]): unknown {
    return this.#sent[name].apply(this.#response, rest);
  }

  #writeHead(status: number, rest: unknown[]): ServerResponse {
    const response = this.#response;
    if (this.#isSettling) return response;
    const [message, headers] = typeof rest[0] === "string" ? rest : [undefined, rest[0] ?? rest[1]];
    response.statusCode = status;
    if (typeof message === "string") response.statusMessage = message;
    const pairs = headerPairs(headers);
    // As without protection: they replace headers that were set before, and a name that is listed twice is sent twice.
    for (const [name] of pairs) response.removeHeader(name);
    for (const [name, value] of pairs) {
      if (response.hasHeader(name)) response.appendHeader(name, valuesOf(value));
      else response.setHeader(name, value);
    }
    return response;
  }

  #write(chunk: Chunk, rest: unknown[]): boolean {
    if (this.#isEnded) return false;
    this.#keep(chunk, rest);
    if (!this.#isSettling && this.#isShort()) return true;
    this.#stream();
    return false;
  }

  #end(rest: unknown[]): ServerResponse {
    if (this.#isEnded) return this.#response;
    const [chunk] = rest;
    if (typeof chunk === "string" || chunk instanceof Uint8Array) this.#keep(chunk, rest.slice(1));
    else this.#callbacks.push(rest.find((argument) => typeof argument === "function") as Callback);
    this.#isEnded = true;
    if (!this.#isSettling) this.#begin(this.#size <= this.#limit ? Buffer.concat(this.#chunks) : undefined);
    return this.#response;
  }

  #keep(chunk: Chunk, rest: unknown[]): void {
    const encoding = typeof rest[0] === "string" ? (rest[0] as BufferEncoding) : "utf8";
    const bytes = typeof chunk === "string" ? Buffer.from(chunk, encoding) : Buffer.from(chunk);
    this.#chunks.push(bytes);
    this.#size += bytes.length;
    this.#callbacks.push(rest.find((argument) => typeof argument === "function") as Callback);
  }

  /** Whether the rest of the body can be awaited. */
  #isShort(): boolean {
    const length = this.#response.getHeader("content-length");
    return length !== undefined && Number(length) <= this.#limit && this.#size <= this.#limit;
  }

  #stream(): void {
    if (this.#isSettling) return;
    // As without protection: an error page cannot replace a stream that has begun.
    Object.defineProperty(this.#response, "headersSent", { value: true, configurable: true });
    this.#begin(undefined);
  }

  /** A client that closed its connection does not end its handler, unless that has begun to respond and cannot go on. */
  #closed(): void {
    if (!this.#isSettling && (this.#size > 0 || this.#isPiped)) this.#begin(undefined);
  }

  /** A file or another stream ends early if the client has closed its connection before. */
  #piped(source: EventEmitter): void {
    this.#isPiped = true;
    source.once("close", () => {
      if (this.#response.destroyed) this.#closed();
    });
  }

  #begin(body: Buffer | undefined): void {
    this.#isSettling = true;
    this.#send(body).catch((error: Error) => this.#response.destroy(error));
  }

  async #send(body: Buffer | undefined): Promise<void> {
    const response = this.#response;
    const { statusCode, statusMessage } = response;
    const headers = response.getHeaders();
    // Node.js accepts a status that is text.
    const added = await this.#settle({ status: Number(statusCode), headers: headersOf(headers), body });
    Reflect.deleteProperty(response, "headersSent");
    // An error handler may have changed them meanwhile, for an error after the response.
    for (const name of response.getHeaderNames()) response.removeHeader(name);
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value as HeaderValue);
    setHeaders(response, added);
    Object.assign(response, { statusCode, statusMessage });
    this.#flush();
  }

  #flush(): void {
    const [body, callbacks] = [Buffer.concat(this.#chunks), this.#callbacks];
    [this.#chunks, this.#callbacks, this.#isFlushed] = [[], [], true];
    const callback = (error?: Error | null): void => callbacks.forEach((each) => each?.(error));
    // Some wrappers take a callback for a chunk, or do not expect an empty chunk.
    if (this.#isEnded) return void this.#call("end", ...(body.length > 0 ? [body] : []), ...(callbacks.some(Boolean) ? [callback] : []));
    if (body.length > 0) {
      if (this.#call("write", body, callback)) this.#drain();
      return;
    }
    this.#call("flushHeaders");
    process.nextTick(callback);
    this.#drain();
  }
}

type HeaderValue = number | string | string[];

/** Returns the headers of `writeHead`: an object, names and values in turn, or pairs. */
function headerPairs(headers: unknown): [string, HeaderValue][] {
  if (!Array.isArray(headers)) return Object.entries((headers ?? {}) as Record<string, HeaderValue>);
  if (Array.isArray(headers[0])) return headers as [string, HeaderValue][];
  return headers.flatMap((name: string, at) => (at % 2 === 0 ? [[name, headers[at + 1] as HeaderValue] as [string, HeaderValue]] : []));
}

function valuesOf(value: HeaderValue): string | string[] {
  return Array.isArray(value) ? value : String(value);
}

// Route options and a plugin for Fastify 5.
//
//     app.post("/orders", protectKey(new Onceward(url), { subject: (request) => request.user.id }), createOrder);

import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { type Channel, tracingChannel } from "node:diagnostics_channel";
import { Readable } from "node:stream";
import { Aborted, readBody } from "./node_body.js";
import { factsOf, headerLines, headersOf, isOver } from "./node_exchange.js";
import type { Onceward } from "./onceward.js";
import { isClaimed, type KeyOptions, type OwnResponse, Protection, type TokenOptions } from "./protection.js";
import { ProtectedRun } from "./protected_run.js";
import type { Header } from "./reply.js";
import { current } from "./statement.js";

export * from "./index.js";

type Payload = FastifyRequest["raw"] | Readable;

type Done = (error?: Error | null, payload?: Payload) => void;

/**
 * The hooks that protect a route. To add hooks of your own beside them, use `protectAll` or arrays: an option of the same name replaces
 * the hook here.
 */
export interface ProtectedRoute {
  preParsing(request: FastifyRequest, reply: FastifyReply, payload: Payload, done: Done): void;
  preHandler(request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void): void;
  onError(request: FastifyRequest, reply: FastifyReply, error: unknown): Promise<void>;
  onSend(request: FastifyRequest, reply: FastifyReply, payload: unknown): Promise<unknown>;
}

/** Runs the handler of a route once per `Idempotency-Key`; a duplicate receives the stored response. */
export function protectKey(onceward: Onceward, options: KeyOptions<FastifyRequest>): ProtectedRoute {
  return hooks(new Protection(onceward, "key", options));
}

/** Runs the handler of a route once per token, from the header `Onceward-Token` or the form field `_onceward`. */
export function protectToken(onceward: Onceward, options: TokenOptions<FastifyRequest>): ProtectedRoute {
  return hooks(new Protection(onceward, "token", options));
}

/** A plugin that protects all routes that its scope registers afterwards: `app.register(protectAll, protectKey(…))`. */
export async function protectAll(app: FastifyInstance, { preParsing, preHandler, onError, onSend }: ProtectedRoute): Promise<void> {
  app.addHook("preParsing", preParsing as never);
  app.addHook("preHandler", preHandler as never);
  app.addHook("onError", onError as never);
  app.addHook("onSend", onSend as never);
}
// The hooks belong to the scope that registers the plugin.
Object.assign(protectAll, { [Symbol.for("skip-override")]: true, [Symbol.for("fastify.display-name")]: "onceward" });

const REPLACED = "a preParsing hook has replaced that of Onceward, so the route is not protected: list both in an array, or use protectAll";

/** The runs of requests whose response is not known yet, for the events of Fastify's handlers. */
const runs = new WeakMap<FastifyRequest, ProtectedRun>();
/** The requests whose handler Fastify has called, or was about to call when another hook failed. */
const started = new WeakSet<FastifyRequest>();

interface HandlerEvent {
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  readonly error?: unknown;
}

interface HandlerChannels {
  readonly start: Channel;
  readonly error: Channel;
  readonly asyncEnd: Channel;
  readonly hasSubscribers?: boolean;
}

/** Whether Fastify reports the start of handlers. It does not on Node.js before 20.13. */
let isObserved = false;

/**
 * Observes the handlers of Fastify: a route whose own `preHandler` has replaced the one here still enters its run, and one whose own
 * `onError` has replaced it still notes the error of its handler. An asynchronous handler ends without a response if its client has
 * disconnected and it returns nothing.
 */
function observe(): void {
  const channels = tracingChannel<unknown, HandlerEvent>("fastify.request.handler") as HandlerChannels;
  if (isObserved || channels.hasSubscribers === undefined) return;
  isObserved = true;
  channels.start.bindStore(current, (event) => runs.get((event as HandlerEvent).request)?.statement ?? current.getStore());
  channels.start.subscribe((event) => started.add((event as HandlerEvent).request));
  channels.error.subscribe((event) => {
    const { request, error } = event as HandlerEvent;
    runs.get(request)?.noteError(error);
  });
  channels.asyncEnd.subscribe((event) => {
    const { request, reply } = event as HandlerEvent;
    if (reply.raw.destroyed) reply.raw.emit(ENDED, request);
  });
}

/** The event of a response whose handler has ended after its client had disconnected. */
const ENDED = Symbol("onceward.ended");

function hooks(protection: Protection<FastifyRequest>): ProtectedRoute {
  observe();
  const running = new WeakMap<FastifyRequest, ProtectedRun>();
  /** The requests that `preParsing` and `preHandler` have seen. */
  const [parsed, entered] = [new WeakSet<FastifyRequest>(), new WeakSet<FastifyRequest>()];
  /** The routes, by their configuration, whose `preHandler` was not replaced. */
  const intact = new WeakSet<object>();

  function start(request: FastifyRequest, reply: FastifyReply, run: ProtectedRun): void {
    const { raw } = reply;
    running.set(request, run);
    runs.set(request, run);
    function settle(): void {
      if (running.delete(request)) void run.settle({ status: raw.statusCode, headers: [], body: undefined });
    }
    // A handler that writes to `reply.raw` itself passes no other hook.
    raw.once("finish", settle).once(ENDED, settle);
    raw.once("close", () => {
      if (!running.has(request)) return;
      if (raw.headersSent) return settle();
      // A handler that took over the response may still work, and nothing tells when it is over.
      if (reply.sent && running.delete(request)) return run.leave();
      // A response that ends after its connection emits nothing.
      const end = raw.end as (...rest: unknown[]) => typeof raw;
      raw.end = (...rest: unknown[]) => {
        settle();
        return end.apply(raw, rest);
      };
    });
  }

  async function admit(request: FastifyRequest, reply: FastifyReply, body: Payloads): Promise<ProtectedRun | OwnResponse | undefined> {
    const admitted = await protection.admit(request, factsOf(request.raw), () => body.read()).catch((error: unknown) => {
      if (!(error instanceof Aborted)) throw error;
      return undefined;
    });
    if (!(admitted instanceof ProtectedRun) || !isOver(request.raw, reply.raw)) return admitted;
    // Its body cannot be parsed any more, and Fastify would wait for that.
    await admitted.settleUnentered();
    return undefined;
  }

  /** Whether the handler ran, or may have. */
  function mayHaveRun(request: FastifyRequest, { statusCode }: FastifyReply): boolean {
    // A plugin also protects paths without a route.
    if (request.is404 && statusCode === 404) return false;
    if (entered.has(request) || statusCode < 400) return true;
    return !intact.has(request.routeOptions.config) && (started.has(request) || !isObserved);
  }

  return {
    // With a callback, which is not called after a response: Fastify would go on while the hooks of that response still run.
    preParsing(request, reply, payload, done) {
      if (!isClaimed(request.method)) return done();
      parsed.add(request);
      const body = new Payloads(payload, protection.bodyLimit);
      admit(request, reply, body).then((admitted) => {
        if (!admitted) return void reply.hijack();
        if (!(admitted instanceof ProtectedRun)) return send(reply, admitted);
        start(request, reply, admitted);
        done(null, body.handedBack);
      }, done);
    },
    preHandler(request, _, done) {
      if (isClaimed(request.method) && !parsed.has(request)) return done(new Error(REPLACED));
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
      if (isClaimed(request.method) && !parsed.has(request) && started.has(request)) throw new Error(REPLACED);
      const run = running.get(request);
      if (!run) return payload;
      running.delete(request);
      const added = mayHaveRun(request, reply) ? await run.settle(captured(reply, payload, protection.replyLimit)) : await run.settleUnentered();
      setHeaders(reply, added);
      return payload;
    },
  };
}

function captured(reply: FastifyReply, payload: unknown, limit: number) {
  return { status: Number(reply.statusCode), headers: headersOf(reply.getHeaders()), body: bytesOf(payload, limit) };
}

/** Returns the body of a response, `undefined` if it is streamed or too large to store. */
function bytesOf(payload: unknown, limit: number): Uint8Array | undefined {
  const whole = typeof payload === "string" ? Buffer.from(payload) : (payload ?? Buffer.alloc(0));
  return whole instanceof Uint8Array && whole.length <= limit ? whole : undefined;
}

function send(reply: FastifyReply, { status, headers, body }: OwnResponse): void {
  reply.code(status);
  setHeaders(reply, headers);
  // Fastify would give an empty buffer a content type.
  reply.send(body.length > 0 ? body : undefined);
}

function setHeaders(reply: FastifyReply, headers: readonly Header[]): void {
  for (const [name, lines] of headerLines(headers, (name) => reply.getHeader(name))) reply.header(name, lines);
}

/** The payload of a request: read to compare it, and handed back to the parser of Fastify. */
class Payloads {
  /** The stream in place of the payload, if another hook has replaced that of the request. */
  handedBack: Readable | undefined;
  #payload: Payload;
  #limit: number;

  constructor(payload: Payload, limit: number) {
    this.#payload = payload;
    this.#limit = limit;
  }

  async read(): Promise<{ bytes: Buffer } | undefined> {
    const bytes = await ("headers" in this.#payload ? readBody(this.#payload, this.#limit) : this.#readStream(this.#payload));
    return bytes && { bytes };
  }

  async #readStream(payload: Readable & { receivedEncodedLength?: number }): Promise<Buffer | undefined> {
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of payload as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > this.#limit) return undefined;
      chunks.push(chunk);
    }
    const body = Buffer.concat(chunks);
    this.handedBack = Object.assign(Readable.from([body]), { receivedEncodedLength: payload.receivedEncodedLength ?? size });
    return body;
  }
}

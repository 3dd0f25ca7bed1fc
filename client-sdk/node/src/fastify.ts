// Route options and a plugin for Fastify 5.
//
//     app.post("/orders", protectKey(new Onceward(url), { subject: (request) => request.user.id }), createOrder);

import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { Readable } from "node:stream";
import { Aborted, readBody } from "./node_body.js";
import { factsOf, headersOf } from "./node_exchange.js";
import type { Onceward } from "./onceward.js";
import { isClaimed, type KeyOptions, type OwnResponse, Protection, type TokenOptions } from "./protection.js";
import { ProtectedRun } from "./protected_run.js";

export * from "./index.js";

type Payload = FastifyRequest["raw"] | Readable;

/** The hooks that protect a route. */
export interface ProtectedRoute {
  preParsing(request: FastifyRequest, reply: FastifyReply, payload: Payload): Promise<Payload | undefined>;
  preHandler(request: FastifyRequest, reply: FastifyReply, done: () => void): void;
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

interface Running {
  readonly run: ProtectedRun;
  /** Whether the request came as far as its handler. */
  isEntered: boolean;
}

function hooks(protection: Protection<FastifyRequest>): ProtectedRoute {
  const running = new WeakMap<FastifyRequest, Running>();
  return {
    async preParsing(request, reply, payload) {
      if (!isClaimed(request.method)) return undefined;
      const body = new Payloads(payload, protection.bodyLimit);
      const admitted = await protection.admit(request, factsOf(request.raw), () => body.read()).catch((error: unknown) => {
        if (!(error instanceof Aborted)) throw error;
      });
      if (admitted instanceof ProtectedRun) running.set(request, { run: admitted, isEntered: false });
      else if (admitted) send(reply, admitted);
      else reply.hijack();
      return body.handedBack;
    },
    preHandler(request, _, done) {
      const entry = running.get(request);
      if (!entry) return done();
      entry.isEntered = true;
      entry.run.enter(done);
    },
    async onError(request, _, error) {
      running.get(request)?.run.noteError(error);
    },
    async onSend(request, reply, payload) {
      const entry = running.get(request);
      if (!entry) return payload;
      running.delete(request);
      const added = entry.isEntered ? await entry.run.settle(captured(reply, payload, protection.replyLimit)) : await entry.run.settleUnentered();
      for (const [name, value] of added) reply.header(name, value);
      return payload;
    },
  };
}

function captured(reply: FastifyReply, payload: unknown, limit: number) {
  return { status: reply.statusCode, headers: headersOf(reply.getHeaders()), body: bytesOf(payload, limit) };
}

/** Returns the body of a response, `undefined` if it is streamed or too large to store. */
function bytesOf(payload: unknown, limit: number): Uint8Array | undefined {
  const whole = typeof payload === "string" ? Buffer.from(payload) : (payload ?? Buffer.alloc(0));
  return whole instanceof Uint8Array && whole.length <= limit ? whole : undefined;
}

function send(reply: FastifyReply, { status, headers, body }: OwnResponse): void {
  reply.code(status);
  for (const [name, value] of headers) reply.header(name, value);
  reply.send(body);
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

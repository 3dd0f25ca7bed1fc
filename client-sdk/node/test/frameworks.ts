// Code of applications that has to compile, as `npm run check` shows: subjects receive the request of their framework.

import express, { type Request as ExpressRequest } from "express";
import Fastify from "fastify";
import * as forExpress from "onceward-node/express";
import * as forFastify from "onceward-node/fastify";
import * as forFetch from "onceward-node/fetch";
import { type Claim, NotApplied, Onceward, Rejected, type Replay } from "onceward-node";

const onceward = new Onceward("http://127.0.0.1:8080", { apiKey: process.env["ONCEWARD_API_KEY"], timeout: 1000 });

const app = express();
app.use("/orders", forExpress.protectKey(onceward, { subject: (request) => request.headers.authorization }));
app.use("/users", forExpress.protectKey(onceward, { subject: (request) => request.get("x-user") }));
app.post("/orders", forExpress.protectKey<ExpressRequest>(onceward, { subject: (request) => request.get("x-user") }), (request, response) => {
  response.status(201).json(request.body);
});
app.post("/forms", forExpress.protectToken(onceward, { subject: forExpress.anonymous, bound: true }));

const fastify = Fastify();
await fastify.register(forFastify.protectAll, forFastify.protectKey(onceward, { subject: async (request) => (request.ip ? 7 : undefined), atMostOnce: false }));
fastify.post("/orders", forFastify.protectToken(onceward, { subject: forFastify.anonymous }), async (request) => request.id);

export const POST = forFetch.protectKey(
  onceward,
  { subject: async (request) => request.headers.get("x-user") ?? undefined, onError: () => new Response("", { status: 500 }) },
  async (request, context: { params: Promise<{ id: string }> }) => Response.json({ id: (await context.params).id, url: request.url }),
);

export async function byHand(): Promise<number> {
  const intent = { key: "k", action: "a", subject: "s", lease: 1000 };
  await using verdict: Claim | Replay = await onceward.claim(intent);
  if (verdict.outcome === "replay") return verdict.reply.status;
  await verdict.complete({ status: 201, headers: [["location", "/1"]], body: Buffer.from("made") });
  const { status }: { status: number } = await onceward.lookUp({ token: "t", action: "a", subject: String(verdict.signal.aborted) });
  const sum: number = await onceward.claim(intent, async (claim) => (claim.signal.aborted ? 0 : 1));
  const charge: (message: { id: string }) => Promise<string> = onceward.once(({ id }) => ({ ...intent, key: id }), async (message: { id: string }) => message.id);
  await charge({ id: "1" }).catch((error: unknown) => {
    if (error instanceof Rejected && error.code === "in_progress") throw new NotApplied("later", { cause: error });
  });
  return sum + status;
}

// @ts-expect-error: a subject is required.
forExpress.protectKey(onceward, {});
// @ts-expect-error: a subject is text or a number.
forExpress.protectKey(onceward, { subject: () => ({ id: 7 }) });
// @ts-expect-error: a subject is required.
await onceward.claim({ key: "k", action: "a" });
// @ts-expect-error: a key or a token is required.
await onceward.lookUp({ action: "a", subject: "s" });

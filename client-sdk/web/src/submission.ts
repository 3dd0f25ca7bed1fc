// One submission by `fetch`: a token by itself or a key of the caller's, the same over all tries.

import { nextStep, type Tried } from "./intent.js";
import { before, pause, waitAfter, type Held } from "./token.js";
import { HEADER, type Problem } from "./wire.js";

/** What `fetch` takes, and two members of ours. */
export interface SubmissionInit extends RequestInit {
  /** An idempotency key of your own, sent instead of a token. Calls under one key at the same time are one submission. */
  key?: string;
  /** The action that the token is to be bound to, as in `POST /orders`. */
  action?: string;
}

/** What became of a submission. `executed` and `replayed` have the handler's answer, whatever its status. */
export type Result =
  | { outcome: "executed" | "replayed"; response: Response }
  | {
      /** `duplicate`: carried out before. `unknown`: nobody knows. `refused`: nothing ran. */
      outcome: "duplicate" | "unknown" | "refused";
      /** The last answer, if there was one. */
      response?: Response | undefined;
      /** What it said, if it was a problem. */
      problem?: Problem | undefined;
      /** Why there is no answer. */
      error?: unknown;
    };

/** What a submission needs of its surroundings. */
export interface Sender {
  fetch: typeof globalThis.fetch;
  token(action: string | undefined, signal: AbortSignal): Promise<Held>;
  /** How long all tries together may take. */
  limit: number;
}

/** How often one submission is sent at most. */
const TRIES = 4;

/** Sends until there is an outcome. Rejects only if the caller's signal says so. */
export async function submit({ fetch, token, limit }: Sender, request: Request, init: SubmissionInit): Promise<Result> {
  const { method, signal } = request;
  const headers = new Headers(request.headers);
  const deadline = Date.now() + limit;
  const isGuarded = !/^(GET|HEAD|OPTIONS)$/.test(method);
  // A header that is there stays as it is.
  const isOwn = headers.has(HEADER.token) || headers.has(HEADER.key);
  if (init.key && !isOwn) headers.set(HEADER.key, init.key);
  let needsToken = isGuarded && !isOwn && !init.key;
  const tries: Tried[] = [];
  for (;;) {
    let response: Response | undefined;
    let problem: Problem | undefined;
    let error: unknown;
    try {
      if (needsToken) headers.set(HEADER.token, (await token(init.action, before(deadline, signal))).token);
    } catch (error) {
      signal.throwIfAborted();
      return { outcome: "refused", error };
    }
    try {
      response = await fetch(new Request(request.clone(), { headers, signal: before(deadline, signal) }));
      problem = await problemOf(response);
    } catch (thrown) {
      signal.throwIfAborted();
      response = undefined;
      error = thrown;
    }
    tries.push(isGuarded || !response ? whatCameOf(response, problem) : "answered");
    const wait = waitAfter(response, tries.length);
    const mayRepeat = tries.length < TRIES && Date.now() + wait < deadline;
    const step = nextStep(tries, mayRepeat && !(isOwn && problem?.retry == "new_token"));
    if (step == "answered") {
      return { outcome: response!.headers.get(HEADER.replayed) ? "replayed" : "executed", response: response! };
    }
    needsToken = step == "new_token";
    if (step == "same") await pause(wait);
    else if (step != "new_token") return { outcome: step, response, problem, error };
  }
}

/** The problem with which a guard refused; nothing if it was the handler who answered, or something in between. */
async function problemOf(response: Response): Promise<Problem | undefined> {
  const isProblem = response.headers.get("content-type")?.startsWith("application/problem+json");
  if (!isProblem || isHandlers(response)) return;
  const problem: Problem = await response.clone().json();
  return problem.code && problem.retry ? problem : undefined;
}

/** Whether the handler answered, now or before. */
export function isHandlers(response: Response): boolean {
  return /^(executed|replayed|unprotected)$/.test(response.headers.get(HEADER.outcome)!);
}

function whatCameOf(response: Response | undefined, problem: Problem | undefined): Tried {
  if (!response) return "lost";
  switch (problem?.code) {
    case undefined: {
      // A gateway does not know what became of it, nor does a handler that says so.
      const { status } = response;
      if (status == 502 || status == 504) return isHandlers(response) ? "unsettled" : "lost";
      return status == 503 && !isHandlers(response) ? "lost" : "answered";
    }
    case "in_progress":
      return "running";
    case "token_used":
      return "used";
    case "reply_not_kept":
      return "not_kept";
    case "outcome_unknown":
    case "internal":
      return "unsettled";
    default:
      return problem!.retry == "no" ? "refused" : problem!.retry;
  }
}

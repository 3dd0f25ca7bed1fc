// One submission by `fetch`: a token by itself or a key of the caller's, the same over all attempts.

import { isHandlers, nextStep, type AttemptProblem } from "./retry_rules.js";
import { backoff, sleep, timeoutSignal, type TimedToken } from "./token.js";
import { IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, OUTCOME, TOKEN, type Problem } from "./wire_contract.js";

/** What `fetch` takes, and three members of ours. */
export interface SubmissionInit extends RequestInit {
  /** An idempotency key of your own, sent instead of a token. Calls under one key at the same time are one submission. */
  key?: string;
  /** The action that the token is to be bound to, as in `POST /orders`. */
  action?: string;
  /**
   * The form that this sends. Calls for the same form and content are one submission while the first is in flight, and for a second from it
   * unless the form is edited or reset. Without `body` its fields are sent, without `method` by POST.
   */
  form?: HTMLFormElement;
}

/** What became of a submission. `executed` and `replayed` have the handler's response, whatever its status. */
export type Result =
  // One by one, so that a check for both leaves the rest.
  | { outcome: "executed"; response: Response }
  | { outcome: "replayed"; response: Response }
  | {
      /** `duplicate`: received before. `unknown`: it may have taken effect. `rejected`: nothing ran. */
      outcome: "duplicate" | "unknown" | "rejected";
      /** The last response, if there was one. */
      response?: Response | undefined;
      /** What it said, if it was a problem. */
      problem?: Problem | undefined;
      /** Why there is no response. */
      error?: unknown;
    };

/** What a submission needs of its surroundings. */
export interface SubmissionContext {
  fetch: typeof globalThis.fetch;
  token(action: string | undefined, signal: AbortSignal): Promise<TimedToken>;
  /** How long all attempts together may take. */
  limit: number;
}

/** How often one submission is sent at most. */
const MAX_ATTEMPTS = 4;

/** Sends until there is an outcome. Rejects only if the caller's signal says so. */
export async function submit({ fetch, token, limit }: SubmissionContext, request: Request, init: SubmissionInit): Promise<Result> {
  const headers = new Headers(request.headers);
  const deadline = Date.now() + limit;
  const signal = timeoutSignal(limit, request.signal);
  // A header that is there stays as it is.
  const isOwn = headers.has(TOKEN) || headers.has(IDEMPOTENCY_KEY);
  if (init.key && !isOwn) headers.set(IDEMPOTENCY_KEY, init.key);
  const isSafe = /^(GET|HEAD|OPTIONS)$/.test(request.method);
  let needsToken = !isSafe && !isOwn && !init.key;
  const attempts: AttemptProblem[] = [];
  for (;;) {
    let response: Response | undefined;
    let problem: Problem | undefined;
    let error: unknown;
    try {
      if (needsToken) headers.set(TOKEN, (await token(init.action, signal)).token);
      needsToken = false;
      response = await fetch(new Request(request.clone(), { headers, signal }));
      problem = await problemOf(response);
      if (isSafe || (!problem && !isGateways(response))) {
        const isUnknown = outcomeOf(response) == "unknown";
        return { outcome: isUnknown ? "unknown" : response.headers.get(IDEMPOTENT_REPLAYED) ? "replayed" : "executed", response };
      }
    } catch (thrown) {
      request.signal.throwIfAborted();
      error = thrown;
      if (needsToken) return { outcome: "rejected", error };
    }
    attempts.push(problem);
    const wait = backoff(response, attempts.length);
    const mayRepeat = attempts.length < MAX_ATTEMPTS && Date.now() + wait < deadline && !(isOwn && problem?.retry == "new_token");
    const step = nextStep(attempts, mayRepeat);
    if (step == "same") await sleep(wait);
    else if (step == "new_token") needsToken = true;
    else return { outcome: step, response, problem, error };
  }
}

/** The problem of a guard's rejection; nothing if the handler or a gateway responded. */
async function problemOf(response: Response): Promise<Problem | undefined> {
  if (response.ok || isHandlers(outcomeOf(response))) return;
  const said: Problem | undefined = await response.clone().json().catch(() => {});
  return said?.retry && said;
}

/** What a response says became of the request. */
export function outcomeOf(response: Response): string {
  return response.headers.get(OUTCOME) ?? "";
}

/** Whether a gateway responded, which does not know what became of the request. */
function isGateways(response: Response): boolean {
  return /^50[234]$/.test(`${response.status}`) && !isHandlers(outcomeOf(response));
}

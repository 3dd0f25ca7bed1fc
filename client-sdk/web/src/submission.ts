// One submission by `fetch`: all attempts carry the same token, or the caller's key.

import { isHandlers, isRejection, nextStep, type AttemptProblem } from "./retry_rules.js";
import { backoff, sleep, timeoutSignal, type TimedToken } from "./token.js";
import { IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, OUTCOME, RETRY, TOKEN, type Code, type Problem, type Retry } from "./wire_contract.js";

/** The options of `fetch`, and three more. */
export interface SubmissionInit extends RequestInit {
  /** Your own idempotency key, sent instead of a token. Concurrent calls with the same key are one submission. */
  key?: string;
  /** The action that the token is bound to, as in `POST /orders`. */
  action?: string;
  /**
   * The form to send. Calls for the same form and content are one submission while the first is in flight, and for one second after its start
   * unless the form is edited or reset. `body` defaults to the fields of the form, `method` to POST.
   */
  form?: HTMLFormElement;
}

/** The result of a submission. `executed` and `replayed` have the handler's response, with any status. */
export type Result =
  // Two members, so that TypeScript narrows the type after a check for both.
  | { outcome: "executed"; response: Response }
  | { outcome: "replayed"; response: Response }
  | {
      /** `duplicate`: received before. `unknown`: it may have taken effect. `rejected`: nothing ran. */
      outcome: "duplicate" | "unknown" | "rejected";
      /** The last response, if there was one. */
      response?: Response | undefined;
      /** The problem in the last response, if there was one. */
      problem?: AttemptProblem;
      /** The reason why there is no response. */
      error?: unknown;
    };

/** The dependencies of a submission. */
export interface SubmissionContext {
  fetch: typeof globalThis.fetch;
  token(action: string | undefined, signal: AbortSignal): Promise<TimedToken>;
  /** Deadline for all attempts together, in milliseconds. */
  limit: number;
}

/** Maximum number of attempts. */
const MAX_ATTEMPTS = 4;

/** Sends a submission, with retries, until it has an outcome. Rejects only if the caller's signal aborts. */
export async function submit({ fetch, token, limit }: SubmissionContext, request: Request, init: SubmissionInit): Promise<Result> {
  const headers = new Headers(request.headers);
  const deadline = Date.now() + limit;
  const signal = timeoutSignal(limit, request.signal);
  // The caller's own headers are not changed.
  const isOwn = headers.has(TOKEN) || headers.has(IDEMPOTENCY_KEY);
  if (init.key && !isOwn) headers.set(IDEMPOTENCY_KEY, init.key);
  const isSafe = /^(GE|HE|OP)/.test(request.method);
  let needsToken = !isSafe && !isOwn && !init.key;
  const attempts: AttemptProblem[] = [];
  for (;;) {
    let response: Response | undefined;
    let problem: AttemptProblem;
    let error: unknown;
    try {
      if (needsToken) headers.set(TOKEN, (await token(init.action, signal)).token);
      needsToken = false;
      response = await fetch(new Request(request.clone(), { headers, signal }));
      const said = outcomeOf(response);
      problem = await problemOf(response, said);
      // A gateway does not know whether the request ran.
      const isGateways = !isHandlers(said) && /50[234]/.test(response.status as unknown as string);
      if (isSafe || !(problem || isGateways)) {
        return { outcome: said == "unknown" ? said : response.headers.get(IDEMPOTENT_REPLAYED) ? "replayed" : "executed", response };
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
    else if (!(needsToken = step == "new_token")) return { outcome: step, response, problem, error };
  }
}

/**
 * Returns the reason for a guard's rejection, or undefined if the handler or a gateway responded. The headers decide: a rejection may have any
 * status and body. If CORS hides them, a failure whose body is a problem counts.
 */
async function problemOf(response: Response, outcome: string): Promise<AttemptProblem> {
  const retry = response.headers.get(RETRY) as Retry;
  // not_applied, not_released: only a proxy that did not reach the application also names the next step.
  const code = retry ? outcome.replace(/^not_[ar].*/, "upstream_unavailable") : outcome;
  if (code ? !isRejection(code) : response.ok) return;
  const body: Problem | undefined = await response.clone().json().catch(() => {});
  return code ? { ...body, code: code as Code, retry: retry ?? body?.retry } : body?.retry && body;
}

/** Returns the outcome in a response. */
export function outcomeOf(response: Response): string {
  return response.headers.get(OUTCOME) ?? "";
}

// Calls to the service.

import { BackendRejected, createProblem, type OwnCode, parseObject, parseProblem, type Problem, Rejected } from "./problem.js";

/** Writes one line of the log. */
export type Log = (message: string) => void;

/** Connection errors before anything was sent. */
const NOT_SENT = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"];

/** The codes of rejections of a wrong URL or API key: nothing was asked of the service. */
const MISDIRECTED = ["method_not_allowed", "not_found", "unauthorized"];
/** The codes of rejections of what this backend asks for. */
const BACKENDS = ["bad_request", "unsupported_media_type"];
/** Milliseconds between two log lines about the same fault. */
const WARN_EVERY = 60_000;

/** The answer of the service to one call, or its absence. */
export interface Answer {
  /** 0 if there is none. */
  readonly status: number;
  readonly body: string;
  readonly contentType: string;
  readonly retryAfter?: string | undefined;
  /** False if the call certainly did not reach the service. */
  readonly wasSent: boolean;
  /** Why there is none. */
  readonly reason?: string;
}

/** Returns whether the service may have processed a call without a verdict about it. What it says about its store counts as a verdict. */
export function isOpen({ status, body, contentType, wasSent }: Answer): boolean {
  if (status === 0) return wasSent;
  if (status < 300) return !parseObject(body);
  return status >= 500 && !["store_unavailable", "overloaded"].includes(parseProblem(status, body, contentType)?.code ?? "");
}

/**
 * Returns whether the service has processed the call. It has not without the right API key; and a redirect, or a 4xx without a problem, is a
 * gateway's.
 */
export function isProcessed({ status, body, contentType }: Answer): boolean {
  if (status < 300) return status >= 200;
  return status >= 400 && status < 500 && status !== 401 && parseProblem(status, body, contentType) !== undefined;
}

/** Returns whether an answer to a claim says that the work runs now, or ran before. */
export function isVerdict({ status, body }: Answer): boolean {
  return status >= 200 && status < 300 && ["run", "replay"].includes(parseObject(body)?.["outcome"] as string);
}

/** Posts to the service. */
export class Service {
  readonly log: Log;
  #url: string;
  #headers: Record<string, string>;
  /** When the log last named a fault, by the status of the answer. */
  #warned = new Map<number, number>();

  constructor(url: string, apiKey: string | undefined, log: Log) {
    const { protocol, href } = new URL(url);
    if (protocol !== "http:" && protocol !== "https:") throw new Error("the URL of Onceward has to look like http://127.0.0.1:8080");
    // Node loads `fetch` when it is first used: now, so that the first claim does not lose time of its lease.
    void new Request(href);
    // A claim is settled although its log fails.
    this.log = (message) => void (async () => log(message))().catch(() => undefined);
    this.#url = href.replace(/\/$/, "");
    this.#headers = { "content-type": "application/json", ...(apiKey ? { authorization: `Bearer ${apiKey}` } : {}) };
  }

  /** Posts a body. Every call of this package can be repeated: it names its attempt or its pass. */
  async post(path: string, body: unknown, timeout: number): Promise<Answer> {
    // Some frameworks cache what `fetch` returns.
    const signal = AbortSignal.timeout(Math.ceil(timeout));
    const request = { method: "POST", headers: this.#headers, body: JSON.stringify(body), redirect: "manual", cache: "no-store" };
    try {
      const response = await fetch(this.#url + path, { ...request, signal } as RequestInit);
      const { status, headers } = response;
      const answer = { status, body: await response.text(), contentType: headers.get("content-type") ?? "", wasSent: true };
      return { ...answer, retryAfter: headers.get("retry-after") ?? undefined };
    } catch (error) {
      const reason = codeOf(error) || (error as Error).name;
      return { status: 0, body: "", contentType: "", wasSent: !NOT_SENT.includes(reason), reason };
    }
  }

  /** Returns the body of a success. Throws `Rejected` otherwise: without a verdict, nothing runs, and the code is `unanswered`. */
  verdict(answer: Answer, unanswered: "store_unavailable" | "redeem_unknown" = "store_unavailable"): Record<string, unknown> {
    const verdict = answer.status === 200 || answer.status === 201 ? parseObject(answer.body) : undefined;
    if (verdict) return verdict;
    throw this.#rejection(answer, unanswered);
  }

  /** Returns the rejection. A fault of the service, of its configuration or of this backend is in the log as well. */
  #rejection(answer: Answer, unanswered: OwnCode): Rejected {
    const { status, body, contentType, retryAfter } = answer;
    const problem = status >= 400 && status < 500 ? parseProblem(status, body, contentType, retryAfter) : undefined;
    if (problem && ![...MISDIRECTED, ...BACKENDS].includes(problem.code)) return new Rejected(problem);
    this.#warn(status, faultIn(answer, problem));
    return problem && BACKENDS.includes(problem.code) ? new BackendRejected(problem) : new Rejected(createProblem(unanswered));
  }

  /** Writes a line of the log, and none for the requests that fail in the same way afterwards. */
  #warn(status: number, message: string): void {
    const now = performance.now();
    if (now - (this.#warned.get(status) ?? -Infinity) < WARN_EVERY) return;
    this.#warned.set(status, now);
    this.log(message);
  }
}

/** Describes a fault, and what to check. */
function faultIn({ status, reason }: Answer, problem: Problem | undefined): string {
  if (status === 401) return "Onceward rejects this backend: ONCEWARD_API_KEY is missing or wrong";
  if (problem && BACKENDS.includes(problem.code)) return `Onceward rejects what this backend asks for; check its options, such as \`lease\`: ${detailOf(problem)}`;
  if (status === 0) return `Onceward does not respond (${reason}), so nothing runs; check the service and ONCEWARD_URL`;
  if (status >= 500) return `Onceward responds with status ${status}, so nothing runs; check the service and its store`;
  return `the URL of Onceward answers with status ${status} and no verdict; check ONCEWARD_URL`;
}

function detailOf({ body }: Problem): unknown {
  return parseObject(body)?.["detail"];
}

function codeOf(error: unknown): string {
  const { cause } = error as { cause?: { code?: string } };
  return cause?.code ?? "";
}

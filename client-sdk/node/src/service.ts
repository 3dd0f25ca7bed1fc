// Calls to the service.

import { createProblem, parseObject, parseProblem, type Problem, Rejected } from "./problem.js";

/** Writes one line of the log. */
export type Log = (message: string) => void;

/** Connection errors before anything was sent. */
const NOT_SENT = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"];

/** The answer of the service to one call, or its absence. */
export interface Answer {
  /** 0 if there is none. */
  readonly status: number;
  readonly body: string;
  readonly contentType: string;
  readonly retryAfter?: string | undefined;
  /** False if the call certainly did not reach the service. */
  readonly wasSent: boolean;
}

/**
 * Returns whether the service has processed the call. It has not without the right API key; and a redirect, or a 4xx without a problem, is a
 * gateway's.
 */
export function isProcessed({ status, body, contentType }: Answer): boolean {
  if (status < 300) return status >= 200;
  return status >= 400 && status < 500 && status !== 401 && parseProblem(status, body, contentType) !== undefined;
}

/** Posts to the service. */
export class Service {
  readonly log: Log;
  #url: string;
  #headers: Record<string, string>;

  constructor(url: string, apiKey: string | undefined, log: Log) {
    const { protocol, href } = new URL(url);
    if (protocol !== "http:" && protocol !== "https:") throw new Error("the URL of Onceward has to look like http://127.0.0.1:8080");
    // Node loads `fetch` when it is first used: now, so that the first claim does not lose time of its lease.
    void new Request(href);
    this.log = log;
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
      return { status: 0, body: "", contentType: "", wasSent: !NOT_SENT.includes(codeOf(error)) };
    }
  }

  /** Returns the body of a success. Throws `Rejected` otherwise: without a verdict, nothing runs. */
  verdict(answer: Answer): Record<string, unknown> {
    const verdict = answer.status === 200 || answer.status === 201 ? parseObject(answer.body) : undefined;
    if (verdict) return verdict;
    throw new Rejected(this.#problem(answer));
  }

  /** Returns the problem for the client. A fault of the service or of its configuration becomes `store_unavailable`. */
  #problem({ status, body, contentType, retryAfter }: Answer): Problem {
    if (status === 401) {
      this.log("Onceward rejects this backend: ONCEWARD_API_KEY is missing or wrong");
    } else if (status >= 400 && status < 500) {
      const problem = parseProblem(status, body, contentType, retryAfter);
      if (problem) return problem;
      this.log(`the URL of Onceward answers with status ${status} and no problem; check ONCEWARD_URL`);
    }
    return createProblem("store_unavailable");
  }
}

function codeOf(error: unknown): string {
  const { cause } = error as { cause?: { code?: string } };
  return cause?.code ?? "";
}

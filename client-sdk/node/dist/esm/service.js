// Calls to the service.
import { createProblem, parseObject, parseProblem, Rejected } from "./problem.js";
/** Connection errors before anything was sent. */
const NOT_SENT = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"];
/**
 * Returns whether the service has processed the call. It has not without the right API key; and a redirect, or a 4xx without a problem, is a
 * gateway's.
 */
export function isProcessed({ status, body, contentType }) {
    if (status < 300)
        return status >= 200;
    return status >= 400 && status < 500 && status !== 401 && parseProblem(status, body, contentType) !== undefined;
}
/** Posts to the service. */
export class Service {
    log;
    #url;
    #headers;
    constructor(url, apiKey, log) {
        const { protocol, href } = new URL(url);
        if (protocol !== "http:" && protocol !== "https:")
            throw new Error("the URL of Onceward has to look like http://127.0.0.1:8080");
        // Node loads `fetch` when it is first used: now, so that the first claim does not lose time of its lease.
        void new Request(href);
        this.log = log;
        this.#url = href.replace(/\/$/, "");
        this.#headers = { "content-type": "application/json", ...(apiKey ? { authorization: `Bearer ${apiKey}` } : {}) };
    }
    /** Posts a body. Every call of this package can be repeated: it names its attempt or its pass. */
    async post(path, body, timeout) {
        // Some frameworks cache what `fetch` returns.
        const signal = AbortSignal.timeout(Math.ceil(timeout));
        const request = { method: "POST", headers: this.#headers, body: JSON.stringify(body), redirect: "manual", cache: "no-store" };
        try {
            const response = await fetch(this.#url + path, { ...request, signal });
            const { status, headers } = response;
            const answer = { status, body: await response.text(), contentType: headers.get("content-type") ?? "", wasSent: true };
            return { ...answer, retryAfter: headers.get("retry-after") ?? undefined };
        }
        catch (error) {
            return { status: 0, body: "", contentType: "", wasSent: !NOT_SENT.includes(codeOf(error)) };
        }
    }
    /** Returns the body of a success. Throws `Rejected` otherwise: without a verdict, nothing runs. */
    verdict(answer) {
        const verdict = answer.status === 200 || answer.status === 201 ? parseObject(answer.body) : undefined;
        if (verdict)
            return verdict;
        throw new Rejected(this.#problem(answer));
    }
    /** Returns the problem for the client. A fault of the service or of its configuration becomes `store_unavailable`. */
    #problem({ status, body, contentType, retryAfter }) {
        if (status === 401) {
            this.log("Onceward rejects this backend: ONCEWARD_API_KEY is missing or wrong");
        }
        else if (status >= 400 && status < 500) {
            const problem = parseProblem(status, body, contentType, retryAfter);
            if (problem)
                return problem;
            this.log(`the URL of Onceward answers with status ${status} and no problem; check ONCEWARD_URL`);
        }
        return createProblem("store_unavailable");
    }
}
function codeOf(error) {
    const { cause } = error;
    return cause?.code ?? "";
}

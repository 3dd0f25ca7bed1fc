"use strict";
// Calls to the service.
Object.defineProperty(exports, "__esModule", { value: true });
exports.Service = void 0;
exports.isOpen = isOpen;
exports.isProcessed = isProcessed;
exports.isVerdict = isVerdict;
const problem_js_1 = require("./problem.js");
/** Connection errors before anything was sent. */
const NOT_SENT = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"];
/** The codes of rejections of a wrong URL or API key: nothing was asked of the service. */
const MISDIRECTED = ["method_not_allowed", "not_found", "unauthorized"];
/** The codes of rejections of what this backend asks for. */
const BACKENDS = ["bad_request", "unsupported_media_type"];
/** Milliseconds between two log lines about the same fault. */
const WARN_EVERY = 60_000;
/** Returns whether the service may have processed a call without a verdict about it. What it says about its store counts as a verdict. */
function isOpen({ status, body, contentType, wasSent }) {
    if (status === 0)
        return wasSent;
    if (status < 300)
        return !(0, problem_js_1.parseObject)(body);
    return status >= 500 && !["store_unavailable", "overloaded"].includes((0, problem_js_1.parseProblem)(status, body, contentType)?.code ?? "");
}
/**
 * Returns whether the service has processed the call. It has not without the right API key; and a redirect, or a 4xx without a problem, is a
 * gateway's.
 */
function isProcessed({ status, body, contentType }) {
    if (status < 300)
        return status >= 200;
    return status >= 400 && status < 500 && status !== 401 && (0, problem_js_1.parseProblem)(status, body, contentType) !== undefined;
}
/** Returns whether an answer to a claim says that the work runs now, or ran before. */
function isVerdict({ status, body }) {
    return status >= 200 && status < 300 && ["run", "replay"].includes((0, problem_js_1.parseObject)(body)?.["outcome"]);
}
/** Posts to the service. */
class Service {
    log;
    #url;
    #headers;
    /** When the log last named a fault, by the status of the answer. */
    #warned = new Map();
    constructor(url, apiKey, log) {
        const { protocol, href } = new URL(url);
        if (protocol !== "http:" && protocol !== "https:")
            throw new Error("the URL of Onceward has to look like http://127.0.0.1:8080");
        // Node loads `fetch` when it is first used: now, so that the first claim does not lose time of its lease.
        void new Request(href);
        // A claim is settled although its log fails.
        this.log = (message) => void (async () => log(message))().catch(() => undefined);
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
            const reason = codeOf(error) || error.name;
            return { status: 0, body: "", contentType: "", wasSent: !NOT_SENT.includes(reason), reason };
        }
    }
    /** Returns the body of a success. Throws `Rejected` otherwise: without a verdict, nothing runs, and the code is `unanswered`. */
    verdict(answer, unanswered = "store_unavailable") {
        const verdict = answer.status === 200 || answer.status === 201 ? (0, problem_js_1.parseObject)(answer.body) : undefined;
        if (verdict)
            return verdict;
        throw this.#rejection(answer, unanswered);
    }
    /** Returns the rejection. A fault of the service, of its configuration or of this backend is in the log as well. */
    #rejection(answer, unanswered) {
        const { status, body, contentType, retryAfter } = answer;
        const problem = status >= 400 && status < 500 ? (0, problem_js_1.parseProblem)(status, body, contentType, retryAfter) : undefined;
        if (problem && ![...MISDIRECTED, ...BACKENDS].includes(problem.code))
            return new problem_js_1.Rejected(problem);
        this.#warn(status, faultIn(answer, problem));
        return problem && BACKENDS.includes(problem.code) ? new problem_js_1.BackendRejected(problem) : new problem_js_1.Rejected((0, problem_js_1.createProblem)(unanswered));
    }
    /** Writes a line of the log, and none for the requests that fail in the same way afterwards. */
    #warn(status, message) {
        const now = performance.now();
        if (now - (this.#warned.get(status) ?? -Infinity) < WARN_EVERY)
            return;
        this.#warned.set(status, now);
        this.log(message);
    }
}
exports.Service = Service;
/** Describes a fault, and what to check. */
function faultIn({ status, reason }, problem) {
    if (status === 401)
        return "Onceward rejects this backend: ONCEWARD_API_KEY is missing or wrong";
    if (problem && BACKENDS.includes(problem.code))
        return `Onceward rejects what this backend asks for; check its options, such as \`lease\`: ${detailOf(problem)}`;
    if (status === 0)
        return `Onceward does not respond (${reason}), so nothing runs; check the service and ONCEWARD_URL`;
    if (status >= 500)
        return `Onceward responds with status ${status}, so nothing runs; check the service and its store`;
    return `the URL of Onceward answers with status ${status} and no verdict; check ONCEWARD_URL`;
}
function detailOf({ body }) {
    return (0, problem_js_1.parseObject)(body)?.["detail"];
}
function codeOf(error) {
    const { cause } = error;
    return cause?.code ?? "";
}

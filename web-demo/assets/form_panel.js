// One panel of the demo: a form, its requests, and a message about the result.

import { abbreviated, orderOf, Submissions } from "./submissions.js";
import { read, RequestTimeline } from "./request_timeline.js";
import { word } from "./words.js";

const SLOW_TO_READY = 3000;

export class FormPanel {
  /** The last submission with a token, whose result is reported to the SDK, and that token. */
  #last = null;
  #token = null;

  /** `message(policy, answers)` describes the result of a submission; `answered(submission, kind)` is called for each response. */
  constructor(name, { handlerMode, policy, message, answered }) {
    this.form = document.getElementById(name);
    this.name = name;
    this.submissions = new Submissions(this.form);
    this.timeline = new RequestTimeline(document.getElementById(`${name}-wire`));
    Object.assign(this, { handlerMode, policy, message, answered });
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.form.addEventListener("reset", () => this.startNewOrder());
    // The SDK stopped a click because another one waits for the token, or was just sent. In the latter case the demo sends it anyway, with the same
    // token, to show how the server handles it.
    this.form.addEventListener("onceward:duplicate", ({ detail }) => {
      if (detail?.confirm) return;
      if (this.form.dataset.oncewardState === "waiting") this.say(word("One click is enough: the first is still waiting for its token."));
      else this.#send(this.#token);
    });
  }

  /** Makes the next click a new order, also with the same content. Before that, a click belongs to the last order, also after its response: with a
   * token during the second of a double click, without a token until this is called. */
  startNewOrder() {
    this.submissions.end();
    if (this.#last?.answer && this.#takesToken) window.onceward?.answered(this.form, this.#last.answer);
  }

  /** Waits until the form has a token, if it uses one: the SDK fetches it when the form is edited, and then treats the next submit as a new one. */
  async ready() {
    if (!this.#takesToken) return;
    const isReady = new Promise((go) => {
      this.form.addEventListener("onceward:ready", go, { once: true });
      setTimeout(go, SLOW_TO_READY);
    });
    this.form.dispatchEvent(new Event("input", { bubbles: true }));
    if (this.form.dataset.oncewardState !== "ready") await isReady;
  }

  /** Shows the fetch of a token, before the SDK can send the token. */
  async drawToken(fetching) {
    const upcoming = this.submissions.upcoming();
    const row = this.timeline.sent(upcoming, "POST /token");
    try {
      const answer = await fetching;
      const token = answer.ok ? (await answer.clone().json()).token : null;
      if (token) this.submissions.issued(upcoming, token);
      row.answered(answer.status, null, token ? abbreviated(token) : word("no token"));
      return answer;
    } catch (error) {
      row.lost();
      throw error;
    }
  }

  say(text) {
    document.getElementById(`${this.name}-said`).textContent = text;
  }

  clear() {
    this.timeline.clear();
    this.startNewOrder();
  }

  /** True if the SDK guards the form. */
  get #takesToken() {
    return this.form.matches("[data-onceward]");
  }

  async #send(repeated) {
    const { submission, headers, order } = this.#what(repeated);
    const path = this.form.getAttribute("action");
    const row = this.timeline.sent(submission, `POST ${path}`);
    const mode = this.handlerMode();
    if (mode) headers["Demo-Handler"] = mode;
    submission.underWay += 1;
    this.say(word("Waiting for the response."));
    const policy = this.policy();
    const received = await this.#receive(submission, path, { method: "POST", headers, body: new URLSearchParams(order) }, row);
    submission.answers.push(received);
    submission.underWay -= 1;
    this.#ended(submission, policy, received.kind);
  }

  /** Sends a request and shows its response. */
  async #receive(submission, path, request, row) {
    try {
      const answer = await fetch(path, request);
      const received = await read(answer);
      submission.isAnswered = true;
      if (received.kind !== "refused" || !submission.answer) submission.answer = answer;
      row.answered(answer.status, received.outcome, received.order ? word("order {0}", received.order) : "");
      return received;
    } catch {
      row.lost();
      return { kind: "lost" };
    }
  }

  /** The content to send: the same order under every policy, with its token or key. */
  #what(repeated) {
    const order = orderOf(this.form);
    const token = this.#takesToken && (repeated ?? new FormData(this.form).get("_onceward"));
    if (token) {
      this.#token = token;
      order.set("_onceward", token);
      this.#last = this.submissions.withToken(token);
      return { submission: this.#last, headers: {}, order };
    }
    const submission = this.submissions.withoutToken(this.policy() === "key");
    return { submission, headers: submission.key ? { "Idempotency-Key": submission.key } : {}, order };
  }

  #ended(submission, policy, kind) {
    this.answered(submission, kind);
    if (submission.underWay > 0) return;
    // Report it to the SDK, so that it asks the user before it sends edited content.
    if (isUnknown(submission.answers) && this.#takesToken) window.onceward?.answered(this.form, null);
    this.say(this.message(policy, submission.answers));
  }
}

/** Returns true if the last response was lost, and no other response settles the order. */
function isUnknown(answers) {
  return answers.at(-1).kind === "lost" && !answers.some(({ kind }) => kind === "executed" || kind === "replayed");
}

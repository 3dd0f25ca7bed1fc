// One panel of the demo: a form, what goes over the wire for it, and what is said about it.

import { abbreviated, orderOf, Submissions } from "./submissions.js";
import { read, RequestTimeline } from "./request_timeline.js";

const SLOW_TO_READY = 3000;

export class FormPanel {
  /** The last submission with a token, of which the SDK has to hear, and that token. */
  #last = null;
  #token = null;

  /** `message(policy, answers)` says what became of a submission; `answered(submission, kind)` is called for each answer. */
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
    this.form.addEventListener("reset", () => this.beginAnew());
    // A click that the SDK stops: another one still waits for the token, or was just sent. In the latter case the demo sends it nevertheless, with the
    // same token, to show what the server does.
    this.form.addEventListener("onceward:duplicate", ({ detail }) => {
      if (detail?.confirm) return;
      if (this.form.dataset.oncewardState === "waiting") this.say("One is enough: the first click still waits for its token.");
      else this.#send(this.#token);
    });
  }

  /** The next click is another order, also with the same content. Until then a click belongs to the last one, also after its response: with a token for
   * the second that the SDK takes for a double click, without one until this is called. */
  beginAnew() {
    this.submissions.end();
    if (this.#last?.answer && this.#takesToken) window.onceward?.answered(this.form, this.#last.answer);
  }

  /** Waits until the form has a token, if it takes one: the SDK fetches it when the form is edited, and then takes the next submit for a new one. */
  async ready() {
    if (!this.#takesToken) return;
    const isReady = new Promise((go) => {
      this.form.addEventListener("onceward:ready", go, { once: true });
      setTimeout(go, SLOW_TO_READY);
    });
    this.form.dispatchEvent(new Event("input", { bubbles: true }));
    if (this.form.dataset.oncewardState !== "ready") await isReady;
  }

  /** Draws the fetching of a token, before whoever fetches it can send it. */
  async drawToken(fetching) {
    const upcoming = this.submissions.upcoming();
    const row = this.timeline.sent(upcoming, "POST /token");
    try {
      const answer = await fetching;
      const token = answer.ok ? (await answer.clone().json()).token : null;
      if (token) this.submissions.issued(upcoming, token);
      row.answered(answer.status, null, token ? abbreviated(token) : "no token");
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
    this.beginAnew();
  }

  /** Whether the SDK minds the form. */
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
    this.say("Waiting for the answer.");
    const policy = this.policy();
    const received = await this.#receive(submission, path, { method: "POST", headers, body: new URLSearchParams(order) }, row);
    submission.answers.push(received);
    submission.underWay -= 1;
    this.#ended(submission, policy, received.kind);
  }

  /** Sends a request and draws its answer. */
  async #receive(submission, path, request, row) {
    try {
      const answer = await fetch(path, request);
      const received = await read(answer);
      submission.isAnswered = true;
      if (received.kind !== "refused" || !submission.answer) submission.answer = answer;
      row.answered(answer.status, received.outcome, received.order ? `order ${received.order}` : "");
      return received;
    } catch {
      row.lost();
      return { kind: "lost" };
    }
  }

  /** What is sent: the same order under every policy, and what it is told by. */
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
    // The SDK has to know, so that it asks before it sends something else.
    if (isUnknown(submission.answers) && this.#takesToken) window.onceward?.answered(this.form, null);
    this.say(this.message(policy, submission.answers));
  }
}

/** Whether the last answer was lost, and no other has told what became of the order. */
function isUnknown(answers) {
  return answers.at(-1).kind === "lost" && !answers.some(({ kind }) => kind === "executed" || kind === "replayed");
}

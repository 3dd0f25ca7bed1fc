// The timeline of requests: for each submission its requests, each with its response and a bar that shows when it was in flight. Requests that
// were in flight together share a scale.

import { word } from "./words.js";

const MAX_SUBMISSIONS = 3;
const MAX_REQUESTS = 12;
/** Minimum time for the full width of a bar, in milliseconds. */
const SCALE = 500;

export class RequestTimeline {
  #list;
  #groups = new Map();
  #isMoving = false;

  constructor(list) {
    this.#list = list;
  }

  /** Draws a request, and returns the functions that draw its response. */
  sent(submission, what) {
    const group = this.#group(submission);
    group.title.replaceChildren(submission.number ? word("Submission {0}", submission.number) : word("Next submission"));
    if (submission.carrier) group.title.append(" ", element("code", "", submission.carrier));
    if (!group.bursts.at(-1)?.isUnderWay) group.bursts.push(new RequestBurst());
    const burst = group.bursts.at(-1);
    const row = burst.sent(what);
    group.list.append(row.element);
    while (group.list.children.length > MAX_REQUESTS) group.list.firstElementChild.remove();
    this.#move();
    const end = (...answer) => {
      row.end(burst.now, ...answer);
      burst.draw();
    };
    return { answered: end, lost: () => end(null, null, "") };
  }

  clear() {
    this.#groups.clear();
    this.#list.replaceChildren(element("li", "empty", word("Nothing yet.")));
  }

  #group(submission) {
    const known = this.#groups.get(submission);
    if (known) return known;
    const item = element("li", "submission");
    const group = { title: element("h4"), list: element("ol", "trips"), bursts: [] };
    item.append(group.title, group.list);
    this.#list.querySelector(".empty")?.remove();
    this.#list.prepend(item);
    this.#groups.set(submission, group);
    while (this.#groups.size > MAX_SUBMISSIONS) {
      this.#groups.delete(this.#groups.keys().next().value);
      this.#list.lastElementChild.remove();
    }
    return group;
  }

  /** Animates the bars of requests in flight. With reduced motion, a bar is drawn when its request ends. */
  #move() {
    if (this.#isMoving || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    this.#isMoving = true;
    const step = () => {
      const moving = [...this.#groups.values()].flatMap(({ bursts }) => bursts).filter((burst) => burst.isUnderWay);
      for (const burst of moving) burst.draw();
      this.#isMoving = moving.length > 0;
      if (this.#isMoving) requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }
}

/** Requests that overlap in time. */
class RequestBurst {
  #begun = performance.now();
  #rows = [];

  get now() {
    return performance.now() - this.#begun;
  }

  get isUnderWay() {
    return this.#rows.some((row) => row.until === null);
  }

  sent(what) {
    const row = new RequestRow(what, this.now);
    this.#rows.push(row);
    return row;
  }

  draw() {
    const { now } = this;
    const longest = Math.max(...this.#rows.map((row) => row.until ?? now), SCALE);
    for (const row of this.#rows) row.draw(now, longest);
  }
}

class RequestRow {
  constructor(what, from) {
    this.from = from;
    this.until = null;
    this.element = element("li", "trip");
    this.element.dataset.kind = "under-way";
    const sent = element("p", "sent");
    sent.append(sign("→"), said(word("sent ")), element("code", "", what));
    const lane = element("span", "lane");
    lane.setAttribute("aria-hidden", "true");
    this.bar = element("i", "bar");
    lane.append(this.bar);
    this.got = element("p", "got");
    this.got.append(sign("…"), word("in flight"));
    this.element.append(sent, this.got, lane);
  }

  /** Draws the response. A status of `null` means that it was lost. */
  end(until, status, outcome, note) {
    this.until = until;
    this.element.dataset.kind = kindOf(status, outcome);
    const answer = status === null ? [sign("✕"), word("response lost")] : [sign("←"), said(word("response ")), element("b", "", status)];
    if (outcome) answer.push(" ", element("span", "outcome", outcome));
    if (note) answer.push(" ", element("span", "about", note));
    this.got.replaceChildren(...answer, " ", element("span", "took", `${Math.round(until - this.from)} ms`));
  }

  draw(now, longest) {
    this.bar.style.insetInlineStart = `${(100 * this.from) / longest}%`;
    this.bar.style.inlineSize = `${(100 * ((this.until ?? now) - this.from)) / longest}%`;
  }
}

/** Reads the response to an order. */
export async function read(answer) {
  const { order = null, text, title } = await answer.json();
  const outcome = answer.headers.get("onceward-outcome");
  return { kind: kindOf(answer.status, outcome), status: answer.status, outcome, order, text: text ?? title };
}

/** Returns the kind of a response, which decides its colour and the count it belongs to. */
export function kindOf(status, outcome) {
  if (status === null) return "lost";
  if (outcome === "executed" || outcome === "unprotected") return status < 400 ? outcome : "failed";
  if (["replayable", "not_applied", "not_released", "unknown"].includes(outcome)) return "failed";
  if (outcome === "replayed") return outcome;
  return status < 400 ? "plain" : "refused";
}

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

/** A sign that screen readers ignore. */
function sign(text) {
  const made = element("span", "sign", text);
  made.setAttribute("aria-hidden", "true");
  return made;
}

/** A text for screen readers only. */
function said(text) {
  return element("span", "visually-hidden", text);
}

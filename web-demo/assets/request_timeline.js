// The picture of what goes over the wire: for each submission its requests, each with its answer and a bar that shows when
// it was under way. Requests that were under way together have bars of one scale.

const MAX_SUBMISSIONS = 3;
const MAX_REQUESTS = 12;
/** What the whole width of a bar stands for at least, in milliseconds. */
const SCALE = 500;

export class RequestTimeline {
  #list;
  #groups = new Map();
  #isMoving = false;

  constructor(list) {
    this.#list = list;
  }

  /** Draws a request that is being sent, and gives what draws its answer. */
  sent(submission, what) {
    const group = this.#group(submission);
    group.title.replaceChildren(submission.number ? `Submission ${submission.number}` : "The next submission");
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
    this.#list.replaceChildren(element("li", "empty", "Nothing yet."));
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

  /** Bars grow while something is under way; whoever wants less motion sees them when they are done. */
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

/** Requests of which each was sent before the one before it was answered. */
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
    sent.append(sign("→"), said("sent "), element("code", "", what));
    const lane = element("span", "lane");
    lane.setAttribute("aria-hidden", "true");
    this.bar = element("i", "bar");
    lane.append(this.bar);
    this.got = element("p", "got");
    this.got.append(sign("…"), "under way");
    this.element.append(sent, this.got, lane);
  }

  /** A status of `null` is no answer at all. */
  end(until, status, outcome, note) {
    this.until = until;
    this.element.dataset.kind = kindOf(status, outcome);
    const answer = status === null ? [sign("✕"), "the answer was lost"] : [sign("←"), said("answered "), element("b", "", status)];
    if (outcome) answer.push(" ", element("span", "outcome", outcome));
    if (note) answer.push(" ", element("span", "about", note));
    this.got.replaceChildren(...answer, " ", element("span", "took", `${Math.round(until - this.from)} ms`));
  }

  draw(now, longest) {
    this.bar.style.insetInlineStart = `${(100 * this.from) / longest}%`;
    this.bar.style.inlineSize = `${(100 * ((this.until ?? now) - this.from)) / longest}%`;
  }
}

/** Reads the answer to an order: what the page draws, and what it says about it. */
export async function read(answer) {
  const { order = null, text, title } = await answer.json();
  const outcome = answer.headers.get("onceward-outcome");
  return { kind: kindOf(answer.status, outcome), status: answer.status, outcome, order, text: text ?? title };
}

/** What the page makes of an answer: what is drawn, counted and coloured by. */
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

/** Something for the eye alone. */
function sign(text) {
  const made = element("span", "sign", text);
  made.setAttribute("aria-hidden", "true");
  return made;
}

/** Something for the ear alone. */
function said(text) {
  return element("span", "visually-hidden", text);
}

// A chart of the last three minutes: stacked areas or lines, with a text alternative.

import { SPAN } from "./history.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 220;
const LEFT = 56;
const BOTTOM = 24;
const TOP = 10;

export class Chart {
  #place;
  #options;
  #points = [];
  #now = 0;
  #pointed = null;

  /** `kinds` from bottom to top; stacked areas (`stacked`), or lines on a logarithmic scale; `show` formats a value; `tell` is called with
   * the point to describe. */
  constructor(place, options) {
    this.#place = place;
    this.#options = options;
    new ResizeObserver(() => this.#draw()).observe(place);
    place.addEventListener("pointermove", (event) => this.#point(event.offsetX));
    place.addEventListener("pointerleave", () => this.#point(null));
  }

  show(points, now) {
    this.#points = points;
    this.#now = now;
    this.#draw();
  }

  #point(x) {
    this.#pointed = x;
    this.#draw();
  }

  #draw() {
    const width = this.#place.clientWidth;
    if (width < 80) return;
    const { kinds, stacked, show, tell, title, least } = this.#options;
    const real = this.#points.filter(Boolean);
    const { ticks, height } = stacked ? evenly(real.map((point) => kinds.reduce((sum, kind) => sum + point[kind], 0)), least) : byPowers(real.flatMap((point) => kinds.map((kind) => point[kind])), least);
    const x = (time) => LEFT + (width - LEFT - 8) * (1 - (this.#now - time) / SPAN);
    const y = (value) => HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * height(value);
    const svg = node("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img" });
    ticks.forEach((value, at) => {
      svg.append(node("line", { class: at === 0 ? "axis" : "grid", x1: LEFT, x2: width - 8, y1: y(value), y2: y(value) }));
      svg.append(node("text", { class: "tick end", x: LEFT - 8, y: y(value) }, show(value)));
    });
    for (const minutes of [3, 2, 1, 0]) {
      const at = x(this.#now - minutes * 60_000);
      svg.append(node("text", { class: `tick foot ${minutes === 0 ? "end" : ""}`, x: minutes === 3 ? LEFT : at, y: HEIGHT - 6 }, minutes === 0 ? "now" : `−${minutes} min`));
    }
    for (const run of runs(this.#points)) stacked ? this.#areas(svg, run, x, y) : this.#lines(svg, run, x, y);
    const pointed = this.#pointed === null ? null : nearest(real, this.#pointed, x);
    if (pointed) svg.append(node("line", { class: "pointed", x1: x(pointed.time), x2: x(pointed.time), y1: TOP, y2: HEIGHT - BOTTOM }));
    if (real.length === 0) svg.append(node("text", { class: "tick none", x: (LEFT + width) / 2, y: HEIGHT / 2 }, "Nothing yet."));
    const shown = pointed ?? real.at(-1);
    svg.setAttribute("aria-label", `${title}: ${shown ? kinds.map((kind) => `${kind} ${show(shown[kind])}`).join(", ") : "nothing yet"}`);
    tell(shown, pointed ? Math.round((this.#now - pointed.time) / 1000) : null);
    this.#place.replaceChildren(svg);
  }

  #areas(svg, run, x, y) {
    let ground = run.map(() => 0);
    for (const kind of this.#options.kinds) {
      const roof = run.map((point, at) => ground[at] + point[kind]);
      const up = run.map((point, at) => `${x(point.time)},${y(roof[at])}`);
      const down = run.map((point, at) => `${x(point.time)},${y(ground[at])}`).reverse();
      if (roof.some((value, at) => value > ground[at])) {
        svg.append(node("polygon", { class: `area ${kind}`, points: [...up, ...down].join(" ") }));
        svg.append(node("polyline", { class: `line ${kind}`, points: up.join(" ") }));
      }
      ground = roof;
    }
  }

  #lines(svg, run, x, y) {
    for (const kind of this.#options.kinds) {
      for (const part of runs(run.map((point) => (Number.isFinite(point[kind]) ? point : null)))) {
        svg.append(node("polyline", { class: `line ${kind}`, points: part.map((point) => `${x(point.time)},${y(point[kind])}`).join(" ") }));
        const last = part.at(-1);
        if (part.length === 1) svg.append(node("circle", { class: `dot ${kind}`, cx: x(last.time), cy: y(last[kind]), r: 2.5 }));
      }
    }
  }
}

/** Splits the points at gaps. */
function runs(points) {
  const all = [[]];
  for (const point of points) point ? all.at(-1).push(point) : all.push([]);
  return all.filter((run) => run.length > 0);
}

function nearest(points, at, x) {
  return points.reduce((best, point) => (best && Math.abs(x(best.time) - at) <= Math.abs(x(point.time) - at) ? best : point), null);
}

/** A linear scale from zero, in steps of 1, 2 or 5 times a power of ten. */
function evenly(values, least) {
  const rough = Math.max(least, ...values) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= rough * 0.999);
  const steps = Math.max(1, Math.ceil(Math.max(least, ...values) / step));
  return { ticks: Array.from({ length: steps + 1 }, (_, at) => at * step), height: (value) => value / (steps * step) };
}

/** A logarithmic scale, so that one outlier does not flatten the rest. */
function byPowers(values, least) {
  const known = values.filter((value) => value > 0);
  const [low, high] = [Math.floor(Math.log10(Math.min(least, ...known))), Math.ceil(Math.log10(Math.max(least * 100, ...known)))];
  const ticks = Array.from({ length: high - low + 1 }, (_, at) => Number(`1e${low + at}`));
  return { ticks, height: (value) => (Math.log10(Math.max(value, ticks[0])) - low) / (high - low) };
}

function node(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

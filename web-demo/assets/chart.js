// The chart: one column per submission, one block per request. Each kind has its own sign, so that it is readable without colour.

import { word } from "./words.js";

const SIGNS = { unprotected: "✓", executed: "✓", replayed: "↺", refused: "✕", failed: "!", lost: "?" };
const KINDS = Object.keys(SIGNS);
/** The words for kinds with another name. */
const WORDS = { refused: "rejected", lost: "without a response" };
const COLUMNS = 24;
const BLOCK = 26;
const GAP = 4;
const SVG = "http://www.w3.org/2000/svg";

export class Chart {
  #place;
  #title;
  #columns = [];

  constructor(place, title) {
    this.#place = place;
    this.#title = title;
    new ResizeObserver(() => this.#draw()).observe(place);
  }

  /** Adds a response to a submission. */
  add(submission, kind) {
    if (!KINDS.includes(kind)) return;
    let column = this.#columns.find((column) => column.submission === submission);
    if (!column) {
      column = { submission, counts: {} };
      this.#columns.push(column);
      this.#columns.splice(0, this.#columns.length - COLUMNS);
    }
    column.counts[kind] = (column.counts[kind] ?? 0) + 1;
    this.#draw();
  }

  clear() {
    this.#columns = [];
    this.#draw();
  }

  #draw() {
    const width = this.#place.clientWidth;
    const most = Math.max(4, ...this.#columns.map(({ counts }) => blocks(counts).length));
    const unit = Math.min(BLOCK, 200 / most);
    const height = most * (unit + GAP) + 28;
    const fitting = Math.max(1, Math.floor((width - 8) / (BLOCK + 18)));
    const shown = this.#columns.slice(-fitting);
    const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${this.#title}: ${told(this.#columns)}` });
    const floor = height - 24;
    svg.append(node("line", { class: "axis", x1: 0, x2: width, y1: floor + 0.5, y2: floor + 0.5 }));
    shown.forEach(({ submission, counts }, at) => {
      const x = 8 + at * (BLOCK + 18);
      blocks(counts).forEach((kind, level) => {
        const y = floor - (level + 1) * (unit + GAP) + GAP / 2;
        svg.append(node("rect", { class: `block ${kind}`, x, y, width: BLOCK, height: unit, rx: 5 }));
        if (unit > 12) svg.append(node("text", { class: `sign ${kind}`, x: x + BLOCK / 2, y: y + unit / 2 }, SIGNS[kind]));
      });
      svg.append(node("text", { class: "number", x: x + BLOCK / 2, y: floor + 17 }, String(submission.number)));
    });
    if (shown.length === 0) svg.append(node("text", { class: "none", x: width / 2, y: height / 2 }, word("Nothing yet.")));
    this.#place.replaceChildren(svg);
  }
}

/** The blocks of a column, from bottom to top. */
function blocks(counts) {
  return KINDS.flatMap((kind) => Array(counts[kind] ?? 0).fill(kind));
}

/** Describes the columns in words, for screen readers. */
function told(columns) {
  if (columns.length === 0) return word("nothing sent yet.");
  const words = columns.slice(-8).map(({ submission, counts }) => {
    const parts = KINDS.filter((kind) => counts[kind]).map((kind) => `${counts[kind]} ${word(WORDS[kind] ?? kind)}`);
    return word("Submission {0}: {1}.", submission.number, parts.join(", "));
  });
  return words.join(" ");
}

function node(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

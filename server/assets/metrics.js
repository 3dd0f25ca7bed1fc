// Parses the text of /metrics.

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/** The samples of the text format of Prometheus, by name. */
export class Metrics {
  #samples = new Map();

  constructor(text) {
    for (const line of text.split("\n")) {
      if (line.startsWith("#")) continue;
      const [, name, labels = "", value] = LINE.exec(line) ?? [];
      if (!name) continue;
      const sample = { labels: Object.fromEntries([...labels.matchAll(LABEL)].map(([, key, text]) => [key, text])), value: Number(value) };
      if (!this.#samples.has(name)) this.#samples.set(name, []);
      this.#samples.get(name).push(sample);
    }
  }

  /** Returns all samples with this name and these labels. */
  all(name, labels = {}) {
    const wanted = Object.entries(labels);
    return (this.#samples.get(name) ?? []).filter((sample) => wanted.every(([key, value]) => sample.labels[key] === value));
  }

  /** Returns the sum of these samples. */
  sum(name, labels) {
    return this.all(name, labels).reduce((sum, { value }) => sum + value, 0);
  }

  /** Returns true if there is a metric with this name. */
  has(name) {
    return this.#samples.has(name);
  }
}

/** Returns the quantile, in seconds, of the measurements between two readings; NaN if there are none. */
export function quantile(share, name, now, before, labels = {}) {
  const counts = new Map();
  for (const [metrics, sign] of [[now, 1], [before, -1]]) {
    for (const { labels: { le }, value } of metrics?.all(`${name}_bucket`, labels) ?? []) {
      const bound = le === "+Inf" ? Infinity : Number(le);
      counts.set(bound, (counts.get(bound) ?? 0) + sign * value);
    }
  }
  const bounds = [...counts.keys()].sort((a, b) => a - b);
  const all = counts.get(Infinity) ?? 0;
  if (!(all > 0)) return NaN;
  const rank = share * all;
  let [low, below] = [0, 0];
  for (const bound of bounds) {
    const count = counts.get(bound);
    // The last bucket has no upper bound, so its lower bound is the best estimate.
    if (count >= rank) return bound === Infinity ? low : low + ((bound - low) * (rank - below)) / Math.max(count - below, 1e-9);
    [low, below] = [bound, count];
  }
  return low;
}

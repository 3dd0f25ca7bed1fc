// What was read, and when: rates are made of two readings.

/** How far back it goes, in milliseconds. */
export const SPAN = 180_000;

export class History {
  #readings = [];

  /** One more reading. A process that has begun anew counts from zero, so what was before it is forgotten. */
  add(time, metrics) {
    const last = this.now;
    if (last && metrics.sum("onceward_http_requests_total") < last.metrics.sum("onceward_http_requests_total")) this.#readings = [];
    this.#readings.push({ time, metrics });
    while (this.#readings[0].time < time - SPAN - 5_000) this.#readings.shift();
  }

  get now() {
    return this.#readings.at(-1);
  }

  /** The reading that is so old, or the oldest that there is. */
  ago(millis) {
    const since = this.now.time - millis;
    return this.#readings.findLast(({ time }) => time <= since + 200) ?? this.#readings[0];
  }

  /** How much it has grown over this time. */
  growth(millis, name, labels) {
    return this.now.metrics.sum(name, labels) - this.ago(millis).metrics.sum(name, labels);
  }

  /** How fast it grows, a second. */
  rate(millis, name, labels) {
    const seconds = (this.now.time - this.ago(millis).time) / 1000;
    return seconds > 0 ? this.growth(millis, name, labels) / seconds : 0;
  }

  /** What `make` makes of each reading and the one before it, with the time; where a reading is missing, a gap. */
  points(make) {
    const points = [];
    this.#readings.forEach((reading, at) => {
      const before = this.#readings[at - 1];
      if (!before) return;
      const seconds = (reading.time - before.time) / 1000;
      if (seconds > 4) points.push(null);
      points.push({ time: reading.time, ...make(reading, before, seconds, at) });
    });
    return points;
  }

  /** The reading so many before this one. */
  before(at, count) {
    return this.#readings[Math.max(0, at - count)];
  }
}

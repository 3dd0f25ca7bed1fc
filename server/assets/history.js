// The readings of the last minutes, from which rates are computed.

/** The time span of the history, in milliseconds. */
export const SPAN = 180_000;

export class History {
  #readings = [];

  /** Adds a reading. A restarted process counts from zero, so the readings before the restart are dropped. */
  add(time, metrics) {
    const last = this.now;
    if (last && metrics.sum("onceward_http_requests_total") < last.metrics.sum("onceward_http_requests_total")) this.#readings = [];
    this.#readings.push({ time, metrics });
    while (this.#readings[0].time < time - SPAN - 5_000) this.#readings.shift();
  }

  get now() {
    return this.#readings.at(-1);
  }

  /** Returns the reading of this age, or the oldest one. */
  ago(millis) {
    const since = this.now.time - millis;
    return this.#readings.findLast(({ time }) => time <= since + 200) ?? this.#readings[0];
  }

  /** Returns the increase over this time. */
  growth(millis, name, labels) {
    return this.now.metrics.sum(name, labels) - this.ago(millis).metrics.sum(name, labels);
  }

  /** Returns the increase per second. */
  rate(millis, name, labels) {
    const seconds = (this.now.time - this.ago(millis).time) / 1000;
    return seconds > 0 ? this.growth(millis, name, labels) / seconds : 0;
  }

  /** Maps each reading and the one before it with `make`, and adds the time. A missing reading becomes a gap (`null`). */
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

  /** Returns the reading `count` before this one. */
  before(at, count) {
    return this.#readings[Math.max(0, at - count)];
  }
}

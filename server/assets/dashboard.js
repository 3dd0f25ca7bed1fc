// The dashboard: reads /metrics once a second and draws it.

import { Chart } from "./chart.js";
import { History } from "./history.js";
import { Metrics, quantile } from "./metrics.js";

const EVERY = 1000;
const [SECONDS, MINUTE] = [5_000, 60_000];
const STORE = "onceward_store_duration_seconds";
const VERDICTS = "onceward_verdicts_total";

/** The kinds of verdicts, from bottom to top, each with a symbol and a label. */
const KINDS = { ran: ["✓", "ran"], replayed: ["↺", "replayed"], rejected: ["✕", "rejected"], failed: ["!", "failed"] };
const FAILURES = ["store_unavailable", "redeem_unknown", "overloaded"];

/** The warnings: a metric, its labels, a title, the meaning of an increase, and the severity. */
const SIGNS = [
  ["onceward_claims_total", { event: "lost" }, "Claims lost", "A run outlived its lease, and another request has claimed its key.", "alarm"],
  ["onceward_claims_total", { event: "unknown" }, "Unknown outcomes", "A run ended with an unknown outcome. An at-most-once key stays claimed until the run is settled.", "alarm"],
  ["onceward_unprotected_total", {}, "Ran unprotected", "The store was unavailable, and the policy fails open.", "alarm"],
  ["onceward_store_errors_total", {}, "Store errors", "Requests that needed the store were rejected with 503.", "alarm"],
  ["onceward_renewals_total", { outcome: "failed" }, "Failed renewals", "Each is retried until its lease expires.", "notice"],
  ["onceward_http_requests_shed_total", {}, "Requests shed", "More requests were in flight than max_in_flight allows.", "notice"],
  ["onceward_rate_limited_total", {}, "Rate limited", "A client requests more tokens than rate_limit allows.", "notice"],
  ["onceward_http_slow_bodies_total", {}, "Slow request bodies", "They were rejected after request_timeout.", "notice"],
  ["onceward_http_connections_refused_total", {}, "Connections refused", "A client has more connections than max_connections_per_client allows.", "notice"],
];

/** The gauges of open claims and of overdue ones. An older service has neither. */
const [OPEN, OVERDUE] = ["onceward_claims_open", "onceward_claims_overdue"];
const OVERDUE_MEANS = ["Not renewed within their lease, and not settled. To resolve them, run ", ["onceward audit"], ", then ", ["onceward key settle"], "."];

const history = new History();
const at = (id) => document.getElementById(id);

const verdicts = new Chart(at("verdicts-chart"), {
  title: "Verdicts per second",
  kinds: Object.keys(KINDS),
  stacked: true,
  least: 1,
  show: rate,
  tell: (point, ago) => {
    at("verdicts-when").textContent = ago === null ? "The last three minutes" : `${ago} seconds ago`;
    legend("verdicts-legend", Object.entries(KINDS).map(([kind, [sign, name]]) => [kind, sign, point ? rate(point[kind]) : "–", name]));
  },
});

const store = new Chart(at("store-chart"), {
  title: "Store latency",
  kinds: ["p50", "p99"],
  stacked: false,
  least: 0.00001,
  show: time,
  tell: (point) => legend("store-legend", ["p50", "p99"].map((kind) => [kind, "", time(point?.[kind]), kind])),
});

let answeredAt = 0;
let timer;

async function ask() {
  clearTimeout(timer);
  if (document.hidden) return;
  try {
    const answer = await fetch("/metrics", { cache: "no-store", signal: AbortSignal.timeout(4 * EVERY) });
    if (!answer.ok) throw new Error(String(answer.status));
    history.add(performance.now(), new Metrics(await answer.text()));
    answeredAt = performance.now();
    say("live", "Live");
    draw();
  } catch {
    const seconds = Math.round((performance.now() - answeredAt) / 1000);
    say("silent", answeredAt ? `No response for ${seconds} s` : "No response");
  }
  timer = setTimeout(ask, EVERY);
}

function say(state, text) {
  at("state").dataset.state = state;
  if (at("state-text").textContent !== text) at("state-text").textContent = text;
}

function draw() {
  const { time: now, metrics } = history.now;
  const before = history.ago(2 * SECONDS).metrics;
  tile("verdicts", rate(history.rate(SECONDS, VERDICTS)));
  tile("issued", rate(history.rate(SECONDS, "onceward_tokens_issued_total")));
  tile("running", count(metrics.sum("onceward_running_handlers")));
  tile("in-flight", count(metrics.sum("onceward_http_requests_in_flight")));
  tile("waiting", count(metrics.sum("onceward_waiting_duplicates")));
  tile("store", time(quantile(0.99, STORE, metrics, before)));
  tile("open", gauge(metrics, OPEN));
  tile("overdue", gauge(metrics, OVERDUE), metrics.sum(OVERDUE) > 0 ? "alarm" : "calm");
  verdicts.show(history.points((reading, before, seconds) => decided(reading.metrics, before.metrics, seconds)), now);
  store.show(history.points((reading, _, __, at) => measured(reading.metrics, history.before(at, 10).metrics)), now);
  rows("verbs", verbs(metrics).map((verb) => verbRow(verb, metrics, before)));
  rows("policies", policyRows(metrics));
  signs();
  memory(metrics);
}

/** Returns the verdicts of each kind per second, between two readings. */
function decided(now, before, seconds) {
  const point = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, 0]));
  for (const [metrics, sign] of [[now, 1], [before, -1]]) {
    for (const { labels, value } of metrics.all(VERDICTS)) point[kindOf(labels.code)] += (sign * value) / seconds;
  }
  for (const kind of Object.keys(point)) point[kind] = Math.max(0, point[kind]);
  return point;
}

function kindOf(code) {
  if (code === "run") return "ran";
  if (code === "replay") return "replayed";
  return FAILURES.includes(code) ? "failed" : "rejected";
}

function measured(now, before) {
  return { p50: quantile(0.5, STORE, now, before), p99: quantile(0.99, STORE, now, before) };
}

/** Returns every verb of the store that was measured. */
function verbs(metrics) {
  return [...new Set(metrics.all(`${STORE}_count`).map(({ labels }) => labels.verb))].sort();
}

function verbRow(verb, metrics, before) {
  const within = (share) => time(quantile(share, STORE, metrics, before, { verb }));
  const failed = metrics.sum("onceward_store_errors_total", { verb });
  return [verb.replace("_", " "), rate(history.rate(SECONDS, `${STORE}_count`, { verb })), within(0.5), within(0.99), count(failed)];
}

function policyRows(metrics) {
  const all = metrics.all(VERDICTS).filter(({ value }) => value > 0).sort((a, b) => b.value - a.value);
  if (all.length === 0) return [["Nothing yet", "", "", ""]];
  return all.map(({ labels, value }) => [labels.policy, labels.code, rate(history.rate(SECONDS, VERDICTS, labels)), count(value)]);
}

function signs() {
  const { metrics } = history.now;
  const overdue = metrics.has(OVERDUE) ? [sign("Overdue claims", OVERDUE_MEANS, "alarm", metrics.sum(OVERDUE), "now")] : [];
  const grown = SIGNS.map(([name, labels, title, meaning, gravity]) => {
    return sign(title, [meaning], gravity, history.growth(MINUTE, name, labels), `${count(metrics.sum(name, labels))} in total`);
  });
  replace("signs", [...overdue, ...grown]);
}

/** Creates one warning, marked if its number is not zero. Arrays in its meaning are commands. */
function sign(title, meaning, gravity, number, about) {
  const item = made("li", "");
  item.dataset.state = number > 0 ? gravity : "calm";
  const note = made("span", "", "note");
  note.append(...meaning.map((piece) => (Array.isArray(piece) ? made("code", piece[0]) : piece)));
  const text = made("div", "");
  text.append(made("strong", title), note);
  const numbers = made("p", "", "numbers");
  numbers.append(made("b", count(number)), made("span", about, "note"));
  item.append(made("i", number > 0 ? "!" : "✓", "mark"), text, numbers);
  item.firstChild.setAttribute("aria-hidden", "true");
  return item;
}

function memory(metrics) {
  const has = metrics.has("onceward_memory_records");
  const records = metrics.sum("onceward_memory_records");
  const kept = records === 1 ? "1 record" : `${count(records)} records`;
  at("memory-note").textContent = has ? kept : "Records are stored outside this process.";
  const kinds = metrics.all("onceward_memory_limit_bytes").map(({ labels: { kind }, value }) => [kind, metrics.sum("onceward_memory_bytes", { kind }), value]);
  replace("memory", kinds.sort((a, b) => b[2] - a[2]).map(([kind, used, limit]) => {
    const item = made("li", "");
    const line = made("p", "");
    line.append(made("strong", `${kind}s`), made("span", `${bytes(used)} of ${bytes(limit)}`, "note"));
    const bar = made("meter", "");
    Object.assign(bar, { min: 0, max: limit, high: limit * 0.8, value: used });
    bar.setAttribute("aria-label", `${kind}s in memory`);
    item.append(line, bar);
    return item;
  }));
}

function legend(id, entries) {
  replace(id, entries.map(([kind, sign, value, name]) => {
    const item = made("li", "");
    item.append(made("i", sign, `block ${kind}`), made("b", value), made("span", name));
    item.firstChild.setAttribute("aria-hidden", "true");
    return item;
  }));
}

function rows(id, table) {
  replace(id, table.map((cells) => {
    const row = made("tr", "");
    row.append(...cells.map((cell, at) => made(at === 0 ? "th" : "td", cell)));
    row.firstChild.scope = "row";
    return row;
  }));
}

/** Replaces the items, unless they are unchanged: this keeps a selection, and does not disturb a screen reader. */
function replace(id, items) {
  const place = at(id);
  const box = document.createElement("div");
  box.append(...items);
  if (place.dataset.drawn === box.innerHTML && place.childElementCount === items.length) return;
  place.dataset.drawn = box.innerHTML;
  place.replaceChildren(...items);
}

function made(name, text, kind = "") {
  const element = document.createElement(name);
  element.textContent = text;
  if (kind) element.className = kind;
  return element;
}

function tile(name, text, state = "calm") {
  at(`tile-${name}`).textContent = text;
  at(`tile-${name}`).parentElement.dataset.state = state;
}

/** Formats a gauge; a dash if an older service does not have it. */
function gauge(metrics, name) {
  return metrics.has(name) ? count(metrics.sum(name)) : "–";
}

function rate(value) {
  if (!(value > 0)) return "0";
  return value < 10 ? value.toFixed(1).replace(/\.0$/, "") : count(Math.round(value));
}

function count(value) {
  return Math.round(value).toLocaleString("en");
}

function time(seconds) {
  if (seconds === 0) return "0";
  if (!Number.isFinite(seconds)) return "–";
  const [value, unit] = seconds < 0.001 ? [seconds * 1e6, "µs"] : seconds < 1 ? [seconds * 1e3, "ms"] : [seconds, "s"];
  return `${value < 10 ? value.toFixed(1).replace(/\.0$/, "") : Math.round(value)} ${unit}`;
}

function bytes(value) {
  const [unit, size] = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]].find(([, size]) => value >= size) ?? ["B", 1];
  const number = value / size;
  return `${number < 10 ? number.toFixed(1).replace(/\.0$/, "") : Math.round(number)} ${unit}`;
}

document.addEventListener("visibilitychange", () => !document.hidden && ask());
ask();

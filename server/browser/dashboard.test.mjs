// The dashboard in a real browser, with the real service.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { until, Visitor } from "../../client-sdk/web/browser/stage.mjs";
import { Shop } from "../../web-demo/browser/shop.mjs";
import { lowContrasts } from "./contrast.mjs";

let shop;
// A low rate limit, so that the test exceeds it on slow machines too.
before(async () => (shop = await Shop.open(["--rate-limit", "20/s", "--rate-burst", "40"])));
after(() => shop.close());

/** Opens the dashboard and waits until it is live. */
async function watch(options = {}) {
  const visitor = await Visitor.come(shop, options);
  await visitor.open("/dashboard");
  const text = (id) => visitor.page.textContent(`#${id}`);
  await until("it is live", async () => (await text("state-text")) === "Live");
  return { visitor, page: visitor.page, text, leave: async () => assert.deepEqual(await visitor.leave(), []) };
}

async function post(path, body) {
  const answer = await fetch(shop.url + path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  return answer.json().catch(() => null);
}

/** Redeems one token twice, and claims, completes and claims again one key. */
async function traffic(key) {
  const { token } = await post("/token", {});
  for (let times = 0; times < 2; times++) await post("/token/redeem", { token });
  const claim = { key, action: "a", subject: "s" };
  const { pass } = await post("/claim", claim);
  await post("/claim/complete", { pass, reply: { status: 200, headers: [], body: "" } });
  await post("/claim", claim);
}

/** Returns the texts of the rows of a table. */
function rows(page, id) {
  return page.$$eval(`#${id} tr`, (rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent)));
}

test("verdicts are counted, drawn and described", async () => {
  const { page, text, leave } = await watch();
  for (let number = 0; number < 20; number++) await traffic(`told-${number}`);
  const total = async (policy, code) => (await rows(page, "policies")).find((row) => row[0] === policy && row[1] === code)?.[3];
  await until("all verdicts are there", async () => (await total("key", "replay")) === "20");
  assert.deepEqual(await Promise.all([total("token", "run"), total("token", "token_used"), total("key", "run")]), ["20", "20", "20"]);
  await until("the chart is drawn", async () => (await page.locator("#verdicts-chart polygon.area").count()) >= 3);
  const label = await page.getAttribute("#verdicts-chart svg", "aria-label");
  assert.match(label, /^Verdicts per second: ran \d\S*, replayed \d\S*, rejected \d\S*, failed 0$/);
  assert.match(await text("tile-store"), /^\d+(\.\d)? (µs|ms)$/);
  assert.match(await text("memory-note"), /^[1-9]\d* records$/);
  const insert = (await rows(page, "verbs")).find(([verb]) => verb === "insert");
  assert.match(insert[3], /^\d+(\.\d)? (µs|ms)$/);
  const measured = await (await fetch(`${shop.url}/metrics`)).text();
  const verbs = [...measured.matchAll(/^onceward_store_duration_seconds_count\{verb="(\w+)"/gm)].map(([, verb]) => verb.replace("_", " "));
  assert.deepEqual((await rows(page, "verbs")).map(([verb]) => verb), verbs.sort(), "every verb is listed");
  const calm = await page.$$eval("#signs li", (items) => items.map((item) => item.dataset.state));
  assert.deepEqual([...new Set(calm)], ["calm"]);
  // Pointing at the chart shows the values of that time.
  const box = await page.locator("#verdicts-chart").boundingBox();
  await page.mouse.move(box.x + box.width - 12, box.y + 80);
  await until("the time is shown", async () => /^\d+ seconds ago$/.test(await text("verdicts-when")));
  await leave();
});

test("warnings are marked when their metric increases", async () => {
  const { page, leave } = await watch();
  const sign = (title) => page.locator("#signs li", { hasText: title });
  assert.equal(await sign("Rate limited").getAttribute("data-state"), "calm");
  await Promise.all(Array.from({ length: 260 }, () => post("/token", {})));
  await until("the warning is marked", async () => (await sign("Rate limited").getAttribute("data-state")) === "notice");
  assert.match(await sign("Rate limited").locator("b").textContent(), /^[1-9]/);
  const { pass } = await post("/claim", { key: "short", action: "a", subject: "s", lease: "100ms", at_most_once: false });
  await new Promise((go) => setTimeout(go, 150));
  const other = await post("/claim", { key: "short", action: "a", subject: "s", lease: "1m" });
  assert.ok(other.pass);
  assert.equal((await post("/claim/renew", { pass })).code, "claim_lost");
  await until("the alarm is marked", async () => (await sign("Claims lost").getAttribute("data-state")) === "alarm");
  await leave();
});

/** Adds lines to the response of /metrics, and removes the service's own lines about claims. */
async function withMetrics(page, change) {
  await page.route("**/metrics", async (route) => {
    const answer = await route.fetch();
    const own = (await answer.text()).split("\n").filter((line) => !/onceward_claims_(open|overdue)\b/.test(line));
    await route.fulfill({ response: answer, body: `${own.join("\n")}\n${change()}\n` });
  });
}

test("open and overdue claims are shown, with the commands to settle them", async () => {
  const { page, text, leave } = await watch();
  let overdue = 0;
  await withMetrics(page, () => `onceward_claims_open 1234\nonceward_claims_overdue ${overdue}`);
  await until("open claims are shown", async () => (await text("tile-open")) === "1,234");
  const sign = page.locator("#signs li", { hasText: "Overdue claims" });
  const states = async () => [await sign.getAttribute("data-state"), await page.locator(".tiles div", { hasText: "Overdue claims" }).getAttribute("data-state")];
  assert.deepEqual([await text("tile-overdue"), ...(await states())], ["0", "calm", "calm"]);
  overdue = 2;
  await until("overdue claims are shown", async () => (await text("tile-overdue")) === "2");
  assert.deepEqual(await states(), ["alarm", "alarm"]);
  assert.match(await sign.innerText(), /run onceward audit, then onceward key settle\./);
  await leave();
});

test("a service without the gauges of claims shows dashes", async () => {
  const { page, text, leave } = await watch();
  await withMetrics(page, () => "");
  await until("the tiles show dashes", async () => (await text("tile-open")) === "–" && (await text("tile-overdue")) === "–");
  await until("no warning is drawn for them", async () => (await page.locator("#signs li", { hasText: "Overdue claims" }).count()) === 0);
  assert.ok((await page.locator("#signs li").count()) >= 9, "the other warnings are there");
  await leave();
});

test("a service without a response is shown as silent until it responds", async () => {
  const { visitor, page, text, leave } = await watch();
  await visitor.context.setOffline(true);
  await until("the page shows it as silent", async () => /^No response for \d+ s$/.test(await text("state-text")));
  assert.equal(await page.getAttribute("#state", "data-state"), "silent");
  await visitor.context.setOffline(false);
  await until("it is live again", async () => (await text("state-text")) === "Live");
  await leave();
});

for (const colorScheme of ["light", "dark"]) {
  test(`contrast, headings and labels are accessible in the ${colorScheme} scheme`, async () => {
    const { page, leave } = await watch({ colorScheme });
    await traffic(`read-${colorScheme}`);
    await until("it is drawn", async () => (await page.locator("#verdicts-chart polygon").count()) > 0);
    assert.deepEqual(await page.evaluate(lowContrasts), []);
    const found = await page.evaluate(() => ({
      levels: [...document.querySelectorAll("h1,h2,h3")].map((heading) => Number(heading.tagName[1])),
      ids: [...document.querySelectorAll("[id]")].map(({ id }) => id),
      nameless: [...document.querySelectorAll("svg[role=img], meter, [role=region], section")].filter((element) => !element.getAttribute("aria-label") && !document.getElementById(element.getAttribute("aria-labelledby"))?.textContent).length,
    }));
    assert.equal(found.levels.filter((level) => level === 1).length, 1);
    found.levels.reduce((before, level) => (assert.ok(level <= before + 1), level), 0);
    assert.equal(new Set(found.ids).size, found.ids.length);
    assert.equal(found.nameless, 0);
    await leave();
  });
}

for (const width of [320, 360, 390, 768, 1280]) {
  test(`at ${width} pixels nothing is cut off`, async () => {
    const { page, leave } = await watch({ viewport: { width, height: 740 }, hasTouch: width < 500 });
    await withMetrics(page, () => 'onceward_verdicts_total{policy="remembered",code="unsupported_media_type"} 123456\nonceward_claims_overdue 12');
    await traffic(`wide-${width}`);
    await until("the long row is there", async () => (await rows(page, "policies")).some((row) => row[3] === "123,456"));
    await until("it is drawn", async () => (await page.locator("#verdicts-chart polygon").count()) > 0);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0);
    const wide = await page.evaluate(() => [...document.querySelectorAll(".tiles dd, .card h2, .numbers")].filter((element) => element.scrollWidth > element.clientWidth + 1).map((element) => element.textContent));
    assert.deepEqual(wide, []);
    const cut = await page.evaluate(() => [...document.querySelectorAll("th, td")].filter((cell) => {
      const region = cell.closest(".scroll").getBoundingClientRect();
      const { left, right } = cell.getBoundingClientRect();
      return right > Math.min(region.right, innerWidth) + 0.5 || left < region.left - 0.5;
    }).map((cell) => cell.textContent));
    assert.deepEqual(cut, [], "every cell of the tables is seen without scrolling");
    await leave();
  });
}

test("reduced motion disables animations", async () => {
  const { page, leave } = await watch({ reducedMotion: "reduce" });
  assert.equal(await page.evaluate(() => document.getAnimations().length), 0);
  await leave();
});

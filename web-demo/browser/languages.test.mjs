// The demo in Chinese: the switch, the words of the page, of the server and of the SDK.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import * as english from "../assets/messages.js";
import * as chinese from "../assets/messages.zh-CN.js";
import { CHINESE } from "../assets/words.js";
import { until } from "../../client-sdk/web/browser/stage.mjs";
import { Shop } from "./shop.mjs";

const ASSETS = new URL("../assets/", import.meta.url);
const read = (name) => readFileSync(new URL(name, ASSETS), "utf8");
const HAN = /[\u4e00-\u9fff]/;

let shop;
before(async () => (shop = await Shop.open()));
after(() => shop.close());

/** The visible texts of the page that contain an English word. Code, names and the switch itself stay as they are. */
function englishTexts() {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    if (parent.closest("code, pre, noscript, script, .brand, .languages, [role=tab], .outcome, .about, #snippet, footer a, nav, .snippets .note")) continue;
    if (/[A-Za-z]{3}/.test(walker.currentNode.data)) found.push(walker.currentNode.data.trim());
  }
  return found;
}

test("the switch changes the page, the server's words and the SDK's messages, and is remembered", async () => {
  const customer = await shop.enter();
  const { page } = customer;
  assert.equal(await page.getAttribute("html", "lang"), "en");
  await page.click(".languages a");
  await page.waitForURL(/language=zh-CN/);
  assert.equal(await page.getAttribute("html", "lang"), "zh-CN");
  assert.equal(await page.evaluate(() => window.onceward.messages.confirm), "仍要提交");
  await page.goto(`${shop.url}/`);
  assert.match(await page.textContent("h1"), /点击三次/);
  await page.click("#both");
  await customer.sees(3, 1);
  await until("the result", async () => /订单 1 已下单/.test(await page.textContent("#guarded-said")));
  assert.deepEqual(await page.evaluate(englishTexts), []);
  // The browser asks for English; the visitor chose Chinese.
  await customer.turn("token");
  await customer.click("guarded", 2);
  await until("a rejection", async () => /被拒绝/.test(await page.textContent("#guarded-said")));
  const answer = await page.evaluate(async () => {
    const response = await fetch("/demo/orders/token", { method: "POST", body: new URLSearchParams({ item: "tea", quantity: "1", name: "小明" }) });
    return [response.headers.get("content-language"), (await response.json()).title];
  });
  assert.deepEqual(answer, ["zh-CN", "缺少令牌"]);
  await page.click(".languages a");
  await page.waitForURL(/language=en/);
  assert.match(await page.textContent("h1"), /Click three times/);
  await customer.leave();
});

test("a Chinese browser sees the page in Chinese at once", async () => {
  const customer = await shop.enter({ locale: "zh-CN" });
  assert.equal(await customer.page.getAttribute("html", "lang"), "zh-CN");
  await customer.leave();
});

for (const width of [1280, 768, 390]) {
  test(`the Chinese page fits into ${width} pixels, in a font with its characters`, async () => {
    const customer = await shop.enter({ locale: "zh-CN", viewport: { width, height: 900 } });
    const { page } = customer;
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0);
    const session = await page.context().newCDPSession(page);
    await session.send("DOM.enable");
    await session.send("CSS.enable");
    const { root } = await session.send("DOM.getDocument");
    const { nodeId } = await session.send("DOM.querySelector", { nodeId: root.nodeId, selector: "h1" });
    const { fonts } = await session.send("CSS.getPlatformFontsForNode", { nodeId });
    const names = fonts.map(({ familyName }) => familyName).join(", ");
    assert.match(names, /WenQuanYi|Noto Sans CJK|Source Han/, `${names}: install a Chinese font: apt-get install fonts-wqy-microhei`);
    await customer.leave();
  });
}

test("both pages have the same elements and attributes", () => {
  const shape = (name) => read(name).match(/<[^>]+>/g).filter((tag) => !/<(a|span)[^>]*(language=|aria-current)|hreflang|<\/?(a|span)>/.test(tag))
    .map((tag) => tag.replace(/ (aria-label|data-longest|content|value|lang)="[^"]*"/g, ""));
  assert.deepEqual(shape("index.zh-CN.html"), shape("index.html"));
});

test("every text of the scripts has a Chinese one", () => {
  const scripts = readdirSync(ASSETS).filter((name) => name.endsWith(".js"));
  const used = scripts.flatMap((name) => [...read(name).matchAll(/\bword\((?:[^"()]*\? )?"([^"]+)"(?: : "([^"]+)")?/g)].flatMap(([, ...texts]) => texts.filter(Boolean)));
  assert.ok(used.length > 20, String(used.length));
  for (const text of used) assert.match(CHINESE[text] ?? "", HAN, text);
  const values = (text) => text.match(/\{\d\}/g)?.sort();
  for (const [text, translation] of Object.entries(CHINESE)) assert.deepEqual(values(translation), values(text), text);
});

const KINDS = ["executed", "unprotected", "replayed", "refused", "failed", "lost"];

test("the Chinese message about a submission has the numbers of the English one", () => {
  const answer = (kind, at) => ({ kind, status: kind === "failed" ? 503 : kind === "refused" ? 409 : 201, order: kind === "executed" ? at + 1 : null, text: "X" });
  for (const policy of Object.keys(english.POLICY_NOTES)) {
    assert.match(chinese.POLICY_NOTES[policy], HAN);
    for (const first of KINDS) for (const second of KINDS) for (const third of [...KINDS, null]) {
      const answers = [first, second, third].filter(Boolean).map(answer);
      const isUnguarded = answers.some(({ kind }) => kind === "unprotected");
      const tell = (language) => (isUnguarded ? language.unguardedMessage : language.guardedMessage)(policy, answers);
      if (isUnguarded && answers.some(({ kind }) => ["executed", "replayed"].includes(kind))) continue;
      const text = tell(chinese);
      assert.match(text, /[。？]$/, text);
      assert.doesNotMatch(text, /undefined|null|NaN|false|；。|。。|[,;?!]/, text);
      const numbers = (text) => new Set(text.match(/\d+/g));
      const missing = [...numbers(tell(english))].filter((number) => !numbers(text).has(number));
      assert.deepEqual(missing, [], `${tell(english)}\n${text}`);
    }
  }
  for (let mask = 0; mask < 8; mask++) {
    const mode = { slow: mask & 1, fails: mask & 2, loses: mask & 4 };
    assert.equal(/1\.2/.test(chinese.handlerNote(mode)), Boolean(mode.slow));
    assert.equal(/失败/.test(chinese.handlerNote(mode)), Boolean(mode.fails));
  }
});

// Accessibility of the demo: keyboard only, screen reader, phone, dark mode, reduced motion.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { until } from "../../client-sdk/web/browser/stage.mjs";
import { Shop } from "./shop.mjs";

let shop;
before(async () => (shop = await Shop.open()));
after(() => shop.close());

const NAMED = ["button", "link", "textbox", "combobox", "spinbutton", "radio", "switch", "checkbox", "tab", "image", "img", "status"];

/** The accessibility tree of the page. */
async function tree(page) {
  const session = await page.context().newCDPSession(page);
  const { nodes } = await session.send("Accessibility.getFullAXTree");
  return nodes.filter((node) => !node.ignored).map((node) => ({ role: node.role?.value, name: node.name?.value ?? "" }));
}

/** The texts whose contrast to their background is too low: below 4.5, or 3 for large ones. */
function lowContrasts() {
  const parse = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
  const light = ([red, green, blue]) => {
    const linear = [red, green, blue].map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const blockBehind = (text) => parse(getComputedStyle(text.previousElementSibling).fill);
  const low = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join("");
    if (!text || !element.checkVisibility() || element.closest("noscript, .visually-hidden, option")) continue;
    const style = getComputedStyle(element);
    const isDrawn = element.matches("svg text");
    const ground = element.matches("svg .sign") ? blockBehind(element) : behind(element);
    const [one, other] = [light(parse(isDrawn ? style.fill : style.color)), light(ground)].sort((a, b) => b - a);
    const contrast = (one + 0.05) / (other + 0.05);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (contrast < (isLarge ? 3 : 4.5)) low.push(`${text.slice(0, 30)}: ${contrast.toFixed(2)}`);
  }
  // The edges of controls.
  const root = getComputedStyle(document.documentElement);
  const hex = (name) => root.getPropertyValue(name).trim().match(/\w\w/g).map((part) => parseInt(part, 16));
  for (const [edge, ground] of [["--edge", "--panel"], ["--edge", "--sunk"], ["--brand", "--panel"], ["--focus", "--panel"], ["--focus", "--paper"], ["--alarm", "--sunk"], ["--replayed", "--sunk"], ["--refused", "--sunk"], ["--executed", "--sunk"]]) {
    const [one, other] = [light(hex(edge)), light(hex(ground))].sort((a, b) => b - a);
    if ((one + 0.05) / (other + 0.05) < 3) low.push(`${edge} on ${ground}`);
  }
  return low;
}

for (const colorScheme of ["light", "dark"]) {
  test(`every text has enough contrast and every control a name, in ${colorScheme} mode`, async () => {
    const customer = await shop.enter({ colorScheme });
    const { page } = customer;
    const check = async () => {
      assert.deepEqual(await page.evaluate(lowContrasts), []);
      const nodes = await tree(page);
      const nameless = nodes.filter(({ role, name }) => NAMED.includes(role) && role !== "status" && !name.trim());
      assert.deepEqual(nameless, []);
      return nodes;
    };
    const nodes = await check();
    for (const role of ["button", "link", "textbox", "combobox", "spinbutton", "radio", "switch", "tab", "status", "main", "heading"]) {
      assert.ok(nodes.some((node) => node.role === role), `${role} is in the accessibility tree`);
    }
    await page.click("#both");
    await customer.sees(3, 1);
    await customer.turn("token", "slow", "loses");
    for (const form of ["guarded", "unguarded"]) await customer.click(form, 2);
    await customer.turn("fails");
    await customer.click("guarded");
    await until("all kinds of blocks", async () => (await page.locator(".trip").count()) >= 8);
    const unexplained = await page.evaluate(() => {
      const drawn = [...document.querySelectorAll("svg rect.block")].map(({ classList }) => classList[1]);
      return [...new Set(drawn)].filter((kind) => !document.querySelector(`.legend .${kind}`));
    });
    assert.deepEqual(unexplained, [], "the legend contains every kind in the chart");
    const told = await check();
    assert.ok(told.some(({ name }) => /^Guarded: Submission 1: 1 executed, 2 replayed\./.test(name)), "the chart has a description in words");
    await customer.leave();
  });
}

test("the page has one h1, no skipped heading level, unique ids, a language and landmarks", async () => {
  const customer = await shop.enter();
  const { page } = customer;
  const found = await page.evaluate(() => ({
    levels: [...document.querySelectorAll("h1,h2,h3,h4")].map((heading) => Number(heading.tagName[1])),
    ids: [...document.querySelectorAll("[id]")].map(({ id }) => id),
    references: [...document.querySelectorAll("[aria-labelledby],[aria-controls],[for]")].flatMap((element) =>
      ["aria-labelledby", "aria-controls", "for"].flatMap((name) => (element.getAttribute(name) ?? "").split(/\s+/).filter(Boolean)),
    ),
    language: document.documentElement.lang,
    landmarks: ["header", "nav", "main", "footer"].filter((name) => !document.querySelector(name)),
  }));
  assert.equal(found.levels.filter((level) => level === 1).length, 1);
  found.levels.reduce((before, level) => (assert.ok(level <= before + 1, `h${level} after h${before}`), level), 0);
  assert.equal(new Set(found.ids).size, found.ids.length);
  for (const reference of found.references) assert.ok(found.ids.includes(reference), reference);
  assert.equal(found.language, "en");
  assert.deepEqual(found.landmarks, []);
  await customer.leave();
});

test("every control can be used with the keyboard, in the order of the page", async () => {
  const customer = await shop.enter();
  const { page } = customer;
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.value || document.activeElement.textContent.trim());
  const go = async (where) => {
    for (let presses = 0; presses < 40; presses++) {
      if ((await focused()) === where) return;
      await page.keyboard.press("Tab");
    }
    assert.fail(`${where} cannot be reached with Tab`);
  };
  await page.keyboard.press("Tab");
  assert.equal(await focused(), "Skip to the forms");
  await go("both");
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.notEqual(outline, "none", "the focus is visible");
  await page.keyboard.press("Enter");
  await customer.sees(3, 1);
  await go("remembered");
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.locator("[name=policy]:checked").getAttribute("value"), "token");
  await go("slow");
  await page.keyboard.press("Space");
  assert.equal(await page.isChecked("[value=slow]"), false);
  await go("guarded-name");
  await page.keyboard.type("Grace");
  await page.keyboard.press("Enter");
  await customer.sees(3, 2);
  await page.keyboard.press("Enter");
  await until("the rejection", async () => (await customer.tally()).refused >= 1);
  await customer.sees(3, 2);
  await go("tab-html");
  for (const tab of ["tab-fetch", "tab-python", "tab-node", "tab-actix", "tab-axum", "tab-proxy", "tab-nginx", "tab-curl", "tab-html"]) {
    await page.keyboard.press("ArrowRight");
    assert.equal(await focused(), tab);
    assert.equal(await page.getAttribute("#snippet", "aria-labelledby"), tab);
  }
  await page.keyboard.press("End");
  assert.equal(await focused(), "tab-curl");
  await go("copy");
  await go("snippet");
  // No tabindex changes the order of the page.
  const isInOrder = await page.evaluate(() => {
    const all = [...document.querySelectorAll("a[href],button,input,select,[tabindex='0']")].filter((element) => element.tabIndex >= 0 && element.checkVisibility());
    return all.every((element) => element.tabIndex === 0);
  });
  assert.ok(isInOrder);
  await customer.leave();
});

for (const width of [320, 360, 390, 768, 1280]) {
  test(`at ${width} pixels nothing is cut off, and every control is large enough`, async () => {
    const customer = await shop.enter({ viewport: { width, height: 740 }, hasTouch: width < 500 });
    const { page } = customer;
    await page.click("#both");
    await customer.sees(3, 1);
    for (const tab of ["html", "fetch", "python", "node", "actix", "axum", "proxy", "curl"]) {
      await page.click(`#tab-${tab}`);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0, tab);
    }
    const small = await page.evaluate(() =>
      [...document.querySelectorAll("main button, main input:not([type=hidden]), main select")]
        .map((element) => [element.id || element.value || element.textContent, element.closest("label") ?? element])
        .filter(([, element]) => element.getBoundingClientRect().height < 24 || element.getBoundingClientRect().width < 24)
        .map(([name]) => name),
    );
    assert.deepEqual(small, []);
    await customer.leave();
  });
}

test("reduced motion disables all animations", async () => {
  const customer = await shop.enter({ reducedMotion: "reduce" });
  const { page } = customer;
  await page.evaluate(() => {
    window.frames_asked = 0;
    const real = window.requestAnimationFrame;
    window.requestAnimationFrame = (step) => (window.frames_asked++, real(step));
  });
  await page.click("#both");
  await customer.sees(3, 1);
  assert.equal(await page.evaluate(() => window.frames_asked), 0);
  assert.equal(await page.evaluate(() => document.getAnimations().length), 0);
  const bar = await page.locator("#guarded-wire [data-kind=executed] .bar").boundingBox();
  assert.ok(bar.width > 50, "the bars are still drawn");
  await customer.leave();
});

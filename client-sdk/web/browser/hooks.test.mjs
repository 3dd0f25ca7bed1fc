// The hooks of React and Vue in a page: buttons that send data, components that are removed, and React's StrictMode.

import assert from "node:assert/strict";
import { test } from "node:test";
import { observe, quiet, serve } from "./clicking.mjs";
import { bundle } from "./libraries.mjs";
import { begun, orders, stage, until } from "./story.mjs";
import { Visitor } from "./stage.mjs";

/** The page: `open` shows the component and `close` removes it, `results` has what each click received. The button sends `item`. */
const PAGE = `
  const { item, takes } = document.getElementById("root").dataset;
  const url = "/web/orders?answer=bare&takes=" + takes;
  const settings = { baseUrl: "/web", limit: 4000 };
  window.results = [];
  const note = ({ outcome }) => results.push(outcome);
  const data = () => new URLSearchParams({ item });`;

const REACT = `
  import { StrictMode, useState } from "react";
  import { createRoot } from "react-dom/client";
  import { useSubmission } from "onceward/react";
  ${PAGE}
  function Order() {
    const { submit, pending, result } = useSubmission(url, settings);
    return <button onClick={() => submit(data()).then(note)} data-pending={pending} data-outcome={result?.outcome}>Order</button>;
  }
  function App() {
    const [isOpen, open] = useState(true);
    window.open = () => open(true);
    window.close = () => open(false);
    return isOpen && <Order />;
  }
  createRoot(document.getElementById("root")).render(<StrictMode><App /></StrictMode>);`;

const VUE = `
  import { createApp, h, ref } from "vue";
  import { useSubmission } from "onceward/vue";
  ${PAGE}
  const isOpen = ref(true);
  window.open = () => (isOpen.value = true);
  window.close = () => (isOpen.value = false);
  const Order = {
    setup() {
      const { submit, pending, result } = useSubmission(url, settings);
      return () => h("button", { onClick: () => submit(data()).then(note), "data-pending": pending.value, "data-outcome": result.value?.outcome }, "Order");
    },
  };
  createApp({ render: () => isOpen.value && h(Order) }).mount("#root");`;

const HOOKS = {
  "React in StrictMode": () => bundle(REACT, "development"),
  "React": () => bundle(REACT),
  "Vue": () => bundle(VUE),
};

let number = 0;

/** Opens a page with the button. */
async function enter(script, takes) {
  const item = `hook${++number}.`;
  const visitor = await Visitor.come(stage);
  await observe(visitor);
  const page = `<!doctype html><html><head><title>made</title><script src="library.js" defer></script></head><body><div id="root" data-item="${item}" data-takes="${takes}"></div></body></html>`;
  await serve(visitor, { "page.html": page, "library.js": await script() }, "");
  await visitor.open("/web/made/page.html");
  await visitor.page.waitForSelector("button");
  return { visitor, page: visitor.page, item, results: () => visitor.page.evaluate("results") };
}

for (const [name, script] of Object.entries(HOOKS)) {
  test(`${name}: two clicks on a button that sends data are one order, also after the response`, async () => {
    for (const takes of [30, 400]) {
      const { visitor, page, item, results } = await enter(script, takes);
      await page.evaluate(() => {
        const click = () => document.querySelector("button").click();
        click();
        setTimeout(click, 100);
      });
      await until("both results", async () => (await results()).length == 2);
      await quiet(page);
      assert.deepEqual([await results(), begun(item), orders(item)], [["executed", "executed"], 1, 1]);
      assert.equal(await page.getAttribute("button", "data-outcome"), "executed");
      assert.equal(await page.getAttribute("button", "data-pending"), "false");
      await new Promise((go) => setTimeout(go, 1100));
      await page.click("button");
      await until("the next order", () => orders(item) == 2);
      assert.deepEqual(await visitor.leave(), []);
    }
  });

  test(`${name}: component that is removed in flight sends its order once, and its caller receives the result`, async () => {
    const { visitor, page, item, results } = await enter(script, 400);
    await page.click("button");
    await until("the handler runs", () => begun(item) == 1);
    await page.evaluate("close()");
    assert.equal(await page.$("button"), null);
    await until("the result", async () => (await results()).length == 1);
    assert.deepEqual([await results(), orders(item)], [["executed"], 1]);
    await page.evaluate("open()");
    await page.waitForSelector("button[data-pending=false]");
    assert.deepEqual(await visitor.leave(), []);
  });
}

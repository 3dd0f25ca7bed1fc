// The snippets of the README, run as pages.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { click, observe, PATIENCE, quiet, serve } from "./clicking.mjs";
import { bundle } from "./libraries.mjs";
import { orders, stage, until } from "./story.mjs";
import { Visitor } from "./stage.mjs";

const README = readFileSync(new URL("../README.md", import.meta.url), "utf8");
const GAPS = [50, 150, 250, 400];
const HANDLERS = [5, 20, 300, 1500];

/** Returns the first block of code below a heading or sentence of the README. */
function below(text) {
  const [, after] = README.split(`${text}\n`);
  assert.ok(after, `the README contains: ${text}`);
  return after.match(/```(?:js|jsx|html)\n([^]*?)```/)[1];
}

/** A page with a form, whose field has a default value, and a script. `/orders` in the README is replaced by the URL of the shop. */
function page(handler, attributes, value, script) {
  const orders = `/web/orders?takes=${handler}`;
  return {
    [`${handler}.html`]: `<!doctype html><title>made</title>
      <script src="../sdk/onceward.js" defer></script><script src="${handler}.js" defer></script>
      <form action="${orders}" ${attributes}><input name="item" value="${value}" required><button>Order</button></form><div id="root"></div>`,
    [`${handler}.js`]: script.replaceAll('"/orders"', `"${orders}"`),
  };
}

const plain = (snippet) => `const form = document.querySelector("form"); const say = console.log; const show = console.log;\n${snippet}`;

/** The React snippet has its own form. */
async function react(snippet, value) {
  const fields = `<input name="item" defaultValue="${value}" required /><button>Order</button>`;
  const source = `import { createRoot } from "react-dom/client";
    const show = console.log;
    document.querySelector("form").remove();
    ${snippet.replace("…", fields)}
    createRoot(document.getElementById("root")).render(<Order />);`;
  return bundle(source);
}

const SNIPPETS = {
  "a page that sends a guarded form itself": ["method=post data-onceward", below("and reports the response:"), plain],
  "fetch with a form": ["", below("## `fetch` in a submit handler"), plain],
  "fetch with a guarded form": ["method=post data-onceward", below("## `fetch` in a submit handler"), plain],
  "fetch in React": ["", below("In React:"), react],
  "a token used directly": ["", below("## Using a token directly"), plain],
  "a token for a guarded form": ["method=post data-onceward", below("## Using a token directly"), plain],
};

for (const [name, [attributes, snippet, made]] of Object.entries(SNIPPETS)) {
  const id = name.replaceAll(" ", "");
  const usual = `${id}-later.`;
  const enter = async (handler) => {
    const visitor = await Visitor.come(stage);
    await observe(visitor);
    await serve(visitor, page(handler, attributes, usual, await made(snippet, usual)));
    await visitor.open(`/web/made/${handler}.html`);
    return visitor;
  };

  test(`${name}: double and triple clicks are one order`, async () => {
    await Promise.all(
      HANDLERS.map(async (handler) => {
        const visitor = await enter(handler);
        let tries = 0;
        for (const count of [2, 3]) {
          for (const gap of GAPS) {
            for (let isQuick = false; !isQuick; ) {
              assert.ok(++tries < 40, "the machine is too busy to click");
              const item = `${id}-${handler}-${tries}.`;
              await visitor.page.fill("[name=item]", item);
              isQuick = await click(visitor.page, count, gap);
              await until("the order", () => orders(item) > 0, PATIENCE);
              await quiet(visitor.page);
              if (isQuick) assert.equal(orders(item), 1, `${count} clicks, ${gap} ms apart, on a handler of ${handler} ms`);
            }
          }
        }
        assert.deepEqual(await visitor.leave(), []);
      }),
    );
  });

  test(`${name}: a deliberate second order is an order`, async () => {
    const visitor = await enter(20);
    const { page } = visitor;
    const order = async (item, expected) => {
      await click(page, 1);
      await until(`${expected} of ${item}`, () => orders(item) == expected, PATIENCE);
      await quiet(page);
    };
    await order(usual, 1);
    // The script may have received the click later than the page.
    const answered = await page.evaluate(() => performance.now());
    await page.waitForFunction((then) => performance.now() - then > 1100, answered);
    await order(usual, 2);
    // The content stays the same.
    await page.evaluate(() => document.querySelector("form").reset());
    await order(usual, 3);
    await page.fill("[name=item]", `${id}-edited.`);
    await order(`${id}-edited.`, 1);
    assert.equal(orders(usual), 3);
    assert.deepEqual(await visitor.leave(), []);
  });
}

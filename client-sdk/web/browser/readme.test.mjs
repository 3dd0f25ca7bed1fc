// The snippets of the README, run as pages.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { click, observe, PATIENCE, quiet, serve } from "./clicking.mjs";
import { compileScript, parse } from "vue/compiler-sfc";
import { bundle, LIBRARIES } from "./libraries.mjs";
import { orders, stage, until } from "./story.mjs";
import { Visitor } from "./stage.mjs";

const README = readFileSync(new URL("../README.md", import.meta.url), "utf8");
const GAPS = [50, 150, 250, 400];
const HANDLERS = [5, 20, 300, 1500];
/** Libraries that need more than a strict content security policy allows. */
const POLICIES = { "htmx 2": "", "htmx 4": "", Turbo: "" };

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

/** A page with a form and the snippet as its script. */
const plain = (attributes, snippet) => (handler, value) => {
  const setup = 'const form = document.querySelector("form"); const say = console.log; const show = console.log;';
  return page(handler, attributes, value, `${setup}\n${snippet}`);
};

/** Returns the first diff below a heading of the README: the number of lines it adds, and the code with them. */
function diff(heading) {
  const [, after] = README.split(`\n### ${heading}\n`);
  const lines = after.match(/```diff\n([^]*?)\n```/)[1].split("\n");
  const added = lines.filter((line) => line.startsWith("+")).length;
  return { added, code: lines.filter((line) => !line.startsWith("-")).map((line) => line.slice(1)).join("\n") };
}

/** Gives the field its default value. */
const withValue = (code, attribute, value) => code.replace('name="item"', `name="item" ${attribute}="${value}"`);

/** The page of a snippet in HTML, with a library that sends forms. */
const markup = (heading, library) => async (handler, value) => {
  const { script, answer } = LIBRARIES[library];
  const url = `/web/orders?takes=${handler}&answer=${answer}`;
  const body = withValue(diff(heading).code, "value", value).replace('"/sdk/', '"../sdk/').replaceAll('"/orders"', `"${url}"`);
  return {
    [`${handler}.html`]: `<!doctype html><title>made</title><meta name="htmx-config" content='{"includeIndicatorStyles":false}'>
      <script src="${handler}.js" defer></script>${body}<div id="place"></div>`,
    // Turbo disables the button, so that no second click would reach the page.
    [`${handler}.js`]: `${await script()}\nif (window.Turbo) Turbo.config.forms.submitter = "aria-disabled";`,
  };
};

/** The page of a snippet that is bundled: `module` turns its code into a module. */
const bundled = (heading, module) => async (handler, value) => {
  const code = module(diff(heading).code, value).replaceAll('"/orders"', `"/web/orders?takes=${handler}"`);
  const form = heading == "axios" ? `<form><input name="item" value="${value}" required><button>Order</button></form>` : "";
  return {
    [`${handler}.html`]: `<!doctype html><title>made</title><script src="${handler}.js" defer></script>${form}<div id="root"></div>`,
    [`${handler}.js`]: await bundle(code),
  };
};

const axios = (code) => `const form = document.querySelector("form"); const show = console.log;\n${code}`;
const react = (code, value) => `import { createRoot } from "react-dom/client";
  ${withValue(code, "defaultValue", value)}
  createRoot(document.getElementById("root")).render(<Order />);`;
const vue = (code, value) => {
  const { content } = compileScript(parse(withValue(code, "value", value)).descriptor, { id: "order", inlineTemplate: true });
  return `import { createApp } from "vue";
    ${content.replace("export default", "const Order =")}
    createApp(Order).mount("#root");`;
};

/** The page of each snippet, by the duration of the handler and the default value of the field. */
const SNIPPETS = {
  "a page that sends a guarded form itself": plain("method=post data-onceward", below("and reports the response:")),
  "fetch with a form": plain("", below("## `fetch` in a submit handler")),
  "fetch with a guarded form": plain("method=post data-onceward", below("## `fetch` in a submit handler")),
  "a token used directly": plain("", below("## Using a token directly")),
  "a token for a guarded form": plain("method=post data-onceward", below("## Using a token directly")),
  "htmx 2": markup("htmx", "htmx 2"),
  "htmx 4": markup("htmx", "htmx 4"),
  Turbo: markup("Turbo", "a Turbo stream"),
  axios: bundled("axios", axios),
  React: bundled("React", react),
  Vue: bundled("Vue", vue),
};

test("the README adds as many lines as its table says", () => {
  const rows = [...README.matchAll(/^\| \[([^\]]+)\]\(#\w+\) [^|]*\| (\d) to /gm)];
  assert.deepEqual(rows.map(([, heading, lines]) => [heading, +lines]), [["htmx", 1], ["Hotwired Turbo", 1], ["axios", 1], ["React", 3], ["Vue", 3]]);
  for (const [, heading, lines] of rows) assert.equal(diff(heading.replace("Hotwired ", "")).added, +lines, heading);
});

for (const [name, made] of Object.entries(SNIPPETS)) {
  const id = name.replaceAll(" ", "");
  const usual = `${id}-later.`;
  const enter = async (handler) => {
    const visitor = await Visitor.come(stage);
    await observe(visitor);
    await serve(visitor, await made(handler, usual), POLICIES[name]);
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

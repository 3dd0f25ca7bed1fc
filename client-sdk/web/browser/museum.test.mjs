// Bugs of other projects. Each row is one scenario that passes with the SDK and fails with a naive script: a row that both pass would prove
// nothing.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Stage, Visitor, until } from "./stage.mjs";

let stage;
before(async () => (stage = await Stage.open()));
after(() => stage.close());

let number = 0;

/** Runs a scenario on a page with the SDK, where it must pass, and on one with the naive script, where it must fail as given. */
function row(name, { ours, naive, tell, wrong }) {
  test(name, async () => {
    for (const path of [ours, naive]) {
      const item = `exhibit${++number}.`;
      const visitor = await Visitor.come(stage);
      visitor.context.setDefaultTimeout(path == naive ? 4000 : 10_000);
      const page = await visitor.open(path);
      await page.fill("[name=item]", item);
      await page.waitForSelector("form[data-onceward-state=ready], form[data-ready]");
      const told = () => tell(visitor, item);
      if (path == ours) await told();
      else await assert.rejects(told, wrong);
      assert.deepEqual(await visitor.leave(), []);
    }
  });
}

const lines = (item) => stage.orders(`item=${item}`);
const receipt = (page) => page.waitForSelector("#receipt").then((place) => place.textContent());

row("dead_button: after Back the form works and has a fresh token", {
  ours: "/web/pages/form",
  naive: "/web/pages/naive",
  async tell(visitor, item) {
    const { page, sent } = visitor;
    await page.dblclick("[value=order]");
    const first = await receipt(page);
    await page.waitForFunction(() => window.onceward);
    await visitor.back();
    await page.waitForSelector("form");
    const loaded = await page.evaluate(() => performance.getEntriesByType("navigation")[0].type);
    assert.equal(loaded, "navigate", "the page comes from the back/forward cache");
    assert.equal(await page.inputValue("[name=item]"), item);
    await page.click("[value=order]");
    await until("another response", async () => !["", first].includes(await receipt(page).catch(() => "")));
    assert.notEqual(sent.at(-1).get("_onceward"), sent[0].get("_onceward"));
    assert.equal(lines(item).length, 2, "two orders");
  },
  wrong: /page\.click: Timeout/,
});

row("lost_submitter: the name and value of the button that was pressed arrive", {
  ours: "/web/pages/buttons",
  naive: "/web/pages/naive",
  async tell({ page }, item) {
    await page.dblclick("[value=gift]");
    await receipt(page);
    assert.deepEqual(lines(item), [`item=${item}&go=gift`]);
  },
  wrong: { code: "ERR_ASSERTION" },
});

row("idle_tab: a submit after the token has expired works and loses nothing", {
  ours: "/brief/pages/form",
  naive: "/brief/pages/naive",
  async tell({ page }, item) {
    // The tab is idle for longer than the lifetime of its token, and cannot fetch another one meanwhile.
    stage.proxy.lose("POST /brief/token");
    await new Promise((go) => setTimeout(go, 2500));
    stage.proxy.well();
    await page.dblclick("[value=order]");
    await receipt(page);
    assert.deepEqual(lines(item), [`item=${item}&go=order`]);
  },
  wrong: /waitForSelector: Timeout/,
});

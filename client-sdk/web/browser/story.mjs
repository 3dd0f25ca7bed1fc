// Helpers for tests of forms.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Stage, Visitor, until } from "./stage.mjs";

export { until };

/** The environment of all tests in one file. */
export let stage;
before(async () => (stage = await Stage.open()));
after(() => stage.close());

let number = 0;

/** A test with one visitor, who orders a unique item. It fails on any error in the page. */
export function story(name, tell, options) {
  test(name, async () => {
    const item = `thing${++number}.`;
    const visitor = await Visitor.come(stage, options);
    await tell(visitor, item);
    assert.deepEqual(await visitor.leave(), []);
  });
}

/** The number of completed runs of the handler for this item, from the server's ledger. */
export const orders = (item) => stage.orders(`item=${item}`).length;

/** The number of started runs. */
export const begun = (item) => stage.orders(`begun item=${item}`).length;

/** Waits until the form shows this state. */
export const state = (page, expected) => page.waitForSelector(`form[data-onceward-state="${expected}"]`);

/** Waits for the receipt in the response to an order, and returns its text. */
export const receipt = (page) => page.waitForSelector("#receipt").then((place) => place.textContent());

/** The message that the form shows. */
export const message = (page) => page.textContent("[data-onceward-message]");

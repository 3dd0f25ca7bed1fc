// How the stories of forms are told.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Stage, Visitor, until } from "./stage.mjs";

export { until };

/** The stage of all stories of one file. */
export let stage;
before(async () => (stage = await Stage.open()));
after(() => stage.close());

let number = 0;

/** A story of one visitor, who buys something that nobody else buys, and notices everything that is wrong. */
export function story(name, tell, options) {
  test(name, async () => {
    const item = `thing${++number}.`;
    const visitor = await Visitor.come(stage, options);
    await tell(visitor, item);
    assert.deepEqual(await visitor.leave(), []);
  });
}

/** How often the handler has come to its end for this item, by the server's ledger. */
export const orders = (item) => stage.orders(`item=${item}`).length;

/** How often it has begun. */
export const begun = (item) => stage.orders(`begun item=${item}`).length;

/** Waits until the form says that it is in this state. */
export const state = (page, expected) => page.waitForSelector(`form[data-onceward-state="${expected}"]`);

/** What the answer to an order says. */
export const receipt = (page) => page.waitForSelector("#receipt").then((place) => place.textContent());

/** What the form says to the person. */
export const message = (page) => page.textContent("[data-onceward-message]");

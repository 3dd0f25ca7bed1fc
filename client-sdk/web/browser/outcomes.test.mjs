// After a failure: a used token is replaced if nothing took effect, and the user is asked if the outcome is unknown.

import assert from "node:assert/strict";
import { after, before } from "node:test";
import { Backend, freePort, Nginx, Service } from "./backend.mjs";
import { message, stage, state, story, until } from "./story.mjs";

let backend, service, nginx;
before(async () => {
  backend = await Backend.open();
  const port = await freePort();
  service = await Service.start("--cors-origins", `http://127.0.0.1:${port},${backend.url}`);
  nginx = await Nginx.before(backend, service, port);
});
after(async () => {
  await nginx.close();
  service.close();
  backend.close();
});

/** The two setups: the backend redeems the token itself, or nginx redeems it first. */
const WAYS = { "a redeeming backend": () => backend.url, "nginx": () => nginx.url };

/** A test with one of them: the user fills in the form, sends it, receives a failure and goes back. */
function failing(way, name, failure, tell) {
  story(`${way}: ${name}`, async (visitor, item) => {
    backend.serve(service, way != "nginx");
    backend.fail(failure);
    const { page } = visitor;
    await page.goto(`${WAYS[way]()}/form`);
    await page.fill("[name=item]", item);
    await page.click("button");
    await visitor.at("failed");
    if (!failure.isBare) await page.waitForFunction(() => window.onceward);
    assert.deepEqual(backend.count(item), [0, 1]);
    await visitor.back("form");
    await page.waitForSelector("[data-onceward-state]");
    assert.equal(await page.inputValue("[name=item]"), item);
    await tell(page, item, visitor);
    // Tokens come from another origin here.
    visitor.wrong = visitor.wrong.filter((line) => !line.startsWith("left the origin"));
  });
}

const receipt = (page) => page.waitForSelector("#receipt");
const lastTwo = () => backend.tokens.slice(-2);

for (const way of Object.keys(WAYS)) {
  for (const status of [500, 501]) {
    failing(way, `${status}, Back, and the same content again is one order`, { status }, async (page, item) => {
      await page.dblclick("button");
      await receipt(page);
      assert.deepEqual(backend.count(item), [1, 2]);
      assert.notEqual(...lastTwo());
    });
  }

  failing(way, "a 500 on a page without the script is one order once the user confirms", { status: 500, isBare: true }, async (page, item) => {
    await page.click("button");
    await state(page, "unknown");
    assert.deepEqual(backend.count(item), [0, 1]);
    await page.click("[data-onceward-message] button");
    await receipt(page);
    assert.deepEqual(backend.count(item), [1, 2]);
  });

  failing(way, "after a 500 edited content is one order", { status: 500 }, async (page, item) => {
    await page.fill("[name=item]", `${item}edited`);
    await page.click("button");
    await receipt(page);
    assert.deepEqual([backend.count(item), backend.count(`${item}edited`)], [[0, 1], [1, 1]]);
  });

  failing(way, "after a 502 edited content is sent only when the user confirms", { status: 502 }, async (page, item) => {
    await page.fill("[name=item]", `${item}edited`);
    await page.click("button");
    await state(page, "unknown");
    assert.match(await message(page), /^Your earlier submission may have arrived\./);
    assert.deepEqual(backend.count(`${item}edited`), [0, 0]);
    await page.click("[data-onceward-message] button");
    await receipt(page);
    assert.deepEqual(backend.count(`${item}edited`), [1, 1]);
  });
}

failing("nginx", "a 503 of the application, Back, and the same content again is one order", { status: 503 }, async (page, item) => {
  await page.click("button");
  await receipt(page);
  assert.deepEqual(backend.count(item), [1, 2]);
});

for (const status of [502, 504, 507]) {
  failing("nginx", `after a ${status} the same content is sent only when the user confirms`, { status }, async (page, item) => {
    const sent = backend.tokens.length;
    await page.dblclick("button");
    await state(page, "unknown");
    assert.match(await message(page), /^Your earlier submission may have arrived\. Send this as well$/);
    assert.deepEqual([backend.count(item), backend.tokens.length], [[0, 1], sent]);
    await page.click("[data-onceward-message] button");
    await receipt(page);
    assert.deepEqual(backend.count(item), [1, 2]);
    assert.notEqual(...lastTwo());
  });
}

for (const status of [502, 503, 504]) {
  failing("a redeeming backend", `a ${status} that may come from a proxy keeps the token`, { status }, async (page, item, visitor) => {
    await page.click("button");
    await visitor.at("rejected");
    await page.waitForFunction(() => window.onceward);
    assert.equal(...lastTwo());
    assert.deepEqual(backend.count(item), [0, 1], "the used token runs nothing a second time");
    await visitor.back("form");
    await page.click("button");
    await state(page, "unknown");
    await page.click("[data-onceward-message] button");
    await receipt(page);
    assert.deepEqual(backend.count(item), [1, 2]);
  });
}

story("the guard: after a 500 the token is still valid, and is kept", async (visitor, item) => {
  const page = await visitor.open("/web/pages/broken");
  await page.fill("[name=item]", item);
  for (const times of [1, 2]) {
    await page.click("button");
    await visitor.at("broken");
    await page.waitForFunction(() => window.onceward);
    await until("the request", () => visitor.sent.length == times);
    await visitor.back("broken form");
  }
  assert.equal(...visitor.sent.map((fields) => fields.get("_onceward")));
  assert.equal(stage.orders(`item=${item}`).length, 0);
});

// Tokens from another origin: a page that may not fetch them shows that at once, and names the setting.

import assert from "node:assert/strict";
import { after, before } from "node:test";
import { Backend, Service } from "./backend.mjs";
import { message, state, story } from "./story.mjs";

let backend;
before(async () => (backend = await Backend.open()));
after(() => backend.close());

/** A test with a page of the backend, whose tokens come from a service with these settings. */
function elsewhere(name, settings, policy, tell) {
  story(name, async (visitor, item) => {
    const service = await Service.start(...settings());
    backend.serve(service, true);
    backend.policy = policy(service);
    // Longer than the timeout of the test: the message must appear at once, and not after the timeout for a token.
    backend.patience = 60;
    visitor.said = [];
    visitor.asked = 0;
    visitor.context.on("console", (line) => line.type() == "error" && visitor.said.push(line.text()));
    visitor.context.on("request", (request) => (visitor.asked += request.url().startsWith(service.url)));
    try {
      await visitor.page.goto(`${backend.url}/form`);
      await tell(visitor, item, service);
    } finally {
      service.close();
    }
    assert.ok(visitor.wrong.length > 0);
    visitor.wrong = [];
  });
}

/** Sends the form, and returns its error message. */
async function fail(page, item) {
  await page.evaluate((item) => (document.querySelector("[name=item]").value = item), item);
  await page.click("button");
  await state(page, "error");
  return message(page);
}

const none = () => "";
const all = () => ["--cors-origins", backend.url];

elsewhere("an origin that is not allowed is named with the setting in form and console", () => [], none, async ({ page, said }, item) => {
  const text = await fail(page, item);
  assert.equal(text, `The server is not available. Nothing was sent. ${backend.url} is not in cors_origins.`);
  assert.ok(said.some((line) => line.includes(`${backend.url} is not in cors_origins`)), said.join("\n"));
  assert.deepEqual(backend.count(item), [0, 0]);
});

elsewhere("an allowed origin orders, with a content security policy that names the service", all, ({ url }) => `default-src 'self'; connect-src ${url}; script-src 'self'`, async ({ page }, item) => {
  await page.fill("[name=item]", item);
  await page.dblclick("button");
  await page.waitForSelector("#receipt");
  assert.deepEqual(backend.count(item), [1, 1]);
});

elsewhere("a service that is down is not reported as a CORS failure", () => [], none, async ({ page }, item, service) => {
  backend.patience = 2;
  await page.reload();
  service.close();
  const text = await fail(page, item);
  assert.equal(text, "The server is not available. Nothing was sent.");
});

elsewhere("a page that may not fetch tokens does not retry with every key press", () => [], none, async (visitor, item) => {
  const { page } = visitor;
  await fail(page, item);
  await page.focus("[name=item]");
  await page.waitForFunction(() => !document.querySelector("form[aria-busy=true]"));
  const settle = async () => {
    for (let seen = -1; seen != visitor.asked; await page.waitForTimeout(1000)) seen = visitor.asked;
  };
  await settle();
  const before = visitor.asked;
  for (const key of item) await page.keyboard.press(key);
  await settle();
  assert.equal(visitor.asked, before);
});

// A page behind nginx with deploy/nginx.conf: one line loads the script, and every request stays on the origin of the page.

import assert from "node:assert/strict";
import { after, before } from "node:test";
import { Backend, freePort, Nginx, Service } from "./backend.mjs";
import { story } from "./story.mjs";

let backend, service, nginx;
before(async () => {
  backend = await Backend.open();
  service = await Service.start();
  nginx = await Nginx.before(backend, service, await freePort());
  backend.serve(service, false);
  backend.bare();
});
after(async () => {
  await nginx.close();
  service.close();
  backend.close();
});

/** Allows requests to nginx, which is the page's origin here. */
function stayed(visitor) {
  visitor.wrong = visitor.wrong.filter((line) => !line.startsWith(`left the origin: ${nginx.url}/`));
}

story("a double click is one order, with the script and the token from the page's own origin", async (visitor, item) => {
  const { page } = visitor;
  await page.goto(`${nginx.url}/form`);
  await page.fill("[name=item]", item);
  await page.dblclick("button");
  await page.waitForSelector("#receipt");
  assert.deepEqual(backend.count(item), [1, 1]);
  stayed(visitor);
});

story("a rejected submission is shown as a page, and its style is not blocked", async (visitor, item) => {
  const { page } = visitor;
  await page.goto(`${nginx.url}/form`);
  await page.fill("[name=item]", item);
  await page.click("button");
  await page.waitForSelector("#receipt");
  // The browser repeats the submission without the script, as after a reload.
  const used = backend.tokens.at(-1);
  await page.setContent(`<form method="post" action="${nginx.url}/orders?_onceward=${used}"><button>Again</button></form>`);
  const [answer] = await Promise.all([page.waitForNavigation(), page.click("button")]);
  assert.equal(answer.status(), 409);
  assert.equal(await page.textContent("h1"), "This was already sent");
  assert.match(await page.textContent("details"), /token_used/);
  assert.equal(await page.evaluate(() => getComputedStyle(document.querySelector("details")).borderTopWidth), "1px");
  assert.deepEqual(backend.count(item), [1, 1]);
  stayed(visitor);
});

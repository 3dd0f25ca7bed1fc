// The messages of the SDK in Chinese: a script of their own, which follows `<html lang>`.

import assert from "node:assert/strict";
import { chineseMessages } from "../dist/zh-CN.mjs";
import { message, orders, receipt, state, story } from "./story.mjs";

const texts = (page) => page.evaluate(() => ({ ...window.onceward.messages }));
const speak = (page, lang) => page.evaluate((lang) => {
  document.documentElement.lang = lang;
  return new Promise((go) => setTimeout(go));
}, lang);

story("a Chinese page shows Chinese messages, and its form is one order", async (visitor, item) => {
  const page = await visitor.open("/web/pages/chinese");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await visitor.context.setOffline(true);
  await page.click("button");
  await state(page, "error");
  assert.equal(await message(page), "您已离线，内容没有发送。");
  await visitor.context.setOffline(false);
  await page.click("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("the messages follow the language of the page", async (visitor) => {
  const page = await visitor.open("/web/pages/chinese");
  await page.waitForFunction(() => window.onceward);
  assert.deepEqual(await texts(page), chineseMessages);
  await speak(page, "en");
  assert.equal((await texts(page)).offline, "You are offline. Nothing was sent.");
  for (const lang of ["zh", "zh-Hans", "ZH-cn", "zh-SG"]) {
    await speak(page, lang);
    assert.deepEqual(await texts(page), chineseMessages, lang);
  }
  for (const lang of ["zh-TW", "zh-Hant", "zhx", "de", ""]) {
    await speak(page, lang);
    assert.equal((await texts(page)).twice, "You have sent this before.", lang);
  }
});

story("the script works before the SDK, and without it", async (visitor) => {
  const swapped = async (route) => {
    const answer = await route.fetch();
    const [first, second] = (await answer.text()).match(/<script.*?<\/script>\n/g);
    const order = visitor.lacksSdk ? second : second + first;
    await route.fulfill({ response: answer, body: (await answer.text()).replace(first + second, order) });
  };
  await visitor.page.route("**/pages/chinese", swapped);
  const page = await visitor.open("/web/pages/chinese");
  await page.waitForFunction(() => window.onceward);
  assert.deepEqual(await texts(page), chineseMessages);
  visitor.lacksSdk = true;
  await visitor.open("/web/pages/chinese");
  assert.equal(await page.evaluate(() => typeof window.onceward), "undefined");
});

story("an English page ignores the script, and keeps the texts of the page", async (visitor) => {
  await visitor.page.route("**/pages/chinese", async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, body: (await answer.text()).replace('lang="zh-CN"', 'lang="en"') });
  });
  const page = await visitor.open("/web/pages/chinese");
  await page.waitForFunction(() => window.onceward);
  await page.evaluate(() => (window.onceward.messages.twice = "Our own text."));
  await speak(page, "zh");
  assert.equal((await texts(page)).twice, chineseMessages.twice);
  await speak(page, "en");
  assert.equal((await texts(page)).twice, "Our own text.");
});

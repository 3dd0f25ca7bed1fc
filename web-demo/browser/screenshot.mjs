// Takes the screenshots in the READMEs: node web-demo/browser/screenshot.mjs, after `cargo build`. With an argument, only that of one
// language: `zh-CN`.

import { Shop } from "./shop.mjs";

const PICTURES = { "en-US": "screenshot.png", "zh-CN": "screenshot.zh-CN.png" };

const shop = await Shop.open();
for (const [locale, picture] of Object.entries(PICTURES)) {
  if (process.argv[2] && process.argv[2] !== locale) continue;
  const customer = await shop.enter({ locale, viewport: { width: 1200, height: 1110 }, colorScheme: "light", deviceScaleFactor: 1.5 });
  await customer.page.click("#both");
  await customer.sees(3, 1);
  await customer.wire("guarded", 3);
  await customer.page.mouse.move(0, 0);
  await customer.page.evaluate(() => document.activeElement.blur());
  await customer.page.screenshot({ path: new URL(`../${picture}`, import.meta.url).pathname });
  await customer.leave();
}
await shop.close();

// Takes the screenshot in the README: node web-demo/browser/screenshot.mjs, after `cargo build`.

import { Shop } from "./shop.mjs";

const shop = await Shop.open();
const customer = await shop.enter({ viewport: { width: 1200, height: 1110 }, colorScheme: "light", deviceScaleFactor: 1.5 });
await customer.page.click("#both");
await customer.sees(3, 1);
await customer.wire("guarded", 3);
await customer.page.mouse.move(0, 0);
await customer.page.evaluate(() => document.activeElement.blur());
await customer.page.screenshot({ path: new URL("../screenshot.png", import.meta.url).pathname });
await customer.leave();
await shop.close();

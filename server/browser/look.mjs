import { Shop } from "../../web-demo/browser/shop.mjs";
import { Visitor } from "../../client-sdk/web/browser/stage.mjs";
const shop = await Shop.open();
const page = async (options) => { const v = await Visitor.come(shop, options); await v.open("/dashboard"); return v; };
const light = await page({ viewport: { width: 1280, height: 1000 }, colorScheme: "light" });
const dark = await page({ viewport: { width: 1280, height: 1000 }, colorScheme: "dark" });
const narrow = await page({ viewport: { width: 360, height: 800 }, colorScheme: "light", deviceScaleFactor: 1 });
const post = (path, body) => fetch(shop.url + path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }).then((a) => a.json().catch(() => null));
const end = Date.now() + 45_000;
let n = 0;
while (Date.now() < end) {
  n++;
  const burst = 2 + Math.round(6 + 5 * Math.sin(n / 6));
  await Promise.all(Array.from({ length: burst }, async (_, at) => {
    const issued = await post("/token", {});
    const { token } = issued;
    for (let i = 0; i < 1 + (n + at) % 3; i++) await post("/token/redeem", { token });
    const key = `k${n}-${at}`;
    const { pass } = await post("/claim", { key, action: "a", subject: "s", lease: "1m", hold: at === 3 });
    await post("/claim/complete", { pass, reply: { status: 200, headers: [], body: "" } });
    for (let i = 0; i < (at % 4); i++) await post("/claim", { key, action: "a", subject: "s" });
  }));
  await new Promise((go) => setTimeout(go, 120));
}
await light.page.mouse.move(700, 400);
for (const [name, v] of Object.entries({ light, dark, narrow })) await v.page.screenshot({ path: `/tmp/look-${name}.png`, fullPage: true });
for (const v of [light, dark, narrow]) console.log(await v.leave());
await shop.close();

// Clicks with exact gaps, and generated pages.

import { until } from "./story.mjs";

const POLICY = "default-src 'self'";
/** Maximum time between clicks that count as one, minus a tolerance for the clock of the test. */
const WINDOW = 950;

/** Serves these texts below `/web/made/`: `{ name: text }`, where a name ends in `.html` or `.js`. */
export async function serve(visitor, texts, policy = POLICY) {
  await visitor.context.route("**/web/made/*", (route) => {
    const name = new URL(route.request().url()).pathname.split("/").pop();
    const contentType = name.endsWith(".js") ? "text/javascript" : "text/html; charset=utf-8";
    return route.fulfill({ body: texts[name], contentType, headers: policy ? { "content-security-policy": policy } : {} });
  });
}

/** Timeout of any step on a machine that is busy with other tests. */
export const PATIENCE = 60_000;

/** Records in the page the times of clicks, and the number of requests in flight. */
export async function observe(visitor) {
  visitor.context.setDefaultTimeout(PATIENCE);
  await visitor.context.addInitScript(() => {
    window.clicks = [];
    window.inFlight = 0;
    addEventListener("click", ({ timeStamp }) => window.clicks.push(timeStamp), true);
    const { fetch } = window;
    window.fetch = async (...call) => {
      window.inFlight++;
      return fetch(...call).finally(() => window.inFlight--);
    };
    const { send } = XMLHttpRequest.prototype;
    XMLHttpRequest.prototype.send = function (body) {
      window.inFlight++;
      this.addEventListener("loadend", () => window.inFlight--);
      return send.call(this, body);
    };
  });
}

/** Clicks the first button `count` times. Returns false if the machine was too busy to do so within the time of one click. */
export async function click(page, count, gap) {
  const { x, y, width, height } = await page.locator("form button").first().boundingBox();
  await page.evaluate(() => (window.clicks.length = 0));
  for (let number = 0; number < count; number++) {
    if (number) await new Promise((go) => setTimeout(go, gap));
    await page.mouse.click(x + width / 2, y + height / 2);
  }
  const times = await page.evaluate(() => window.clicks);
  return times.length == count && times.at(-1) - times[0] < WINDOW;
}

/** Waits until no request is in flight and no form is busy. */
export async function quiet(page) {
  let since = Date.now();
  await until("no request in flight", async () => {
    const isBusy = await page.evaluate(() => window.inFlight > 0 || !!document.querySelector("form[aria-busy=true]"));
    if (isBusy) since = Date.now();
    return Date.now() - since > 250;
  }, PATIENCE);
}

// The shop as its visitors find it: the real service on a free port, and the browser of the SDK's stage before it.

import { execFileSync, spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Stage, until, Visitor } from "../../client-sdk/web/browser/stage.mjs";

const ROOT = new URL("../..", import.meta.url).pathname;

/** The service alone, on a free port. */
export async function startService(settings = []) {
  const service = spawn(program(), ["--listen", "127.0.0.1:0", "--log", "json", ...settings], { stdio: ["ignore", "pipe", "inherit"] });
  const lines = createInterface(service.stdout);
  const [line] = await new Promise((go) => lines.once("line", (...what) => go(what)));
  return { url: `http://${JSON.parse(line).address}`, stop: () => service.kill("SIGKILL") };
}

/** The service and the browser. */
export class Shop {
  static async open(settings = []) {
    const shop = new Shop();
    shop.service = await startService(settings);
    shop.url = shop.service.url;
    shop.stage = await Stage.open();
    shop.browser = shop.stage.browser;
    return shop;
  }

  /** Somebody new in front of the page. */
  async enter(options = {}) {
    const customer = new Customer(await Visitor.come(this, options));
    await customer.visitor.open("/");
    return customer;
  }

  async close() {
    await this.stage.close();
    this.service.stop();
  }
}

/** Where `cargo build` puts it. */
function program() {
  const metadata = execFileSync("cargo", ["metadata", "--no-deps", "--offline", "--format-version", "1"], { cwd: ROOT });
  return join(JSON.parse(metadata).target_directory, "debug", "onceward");
}

/** Somebody who plays with the page, and asks the server what came of it. */
class Customer {
  constructor(visitor) {
    this.visitor = visitor;
    this.page = visitor.page;
  }

  /** What the server has counted for this visitor. */
  async tally() {
    return (await (await this.visitor.context.request.get(`${this.visitor.stage.url}/demo/state`)).json()).tally;
  }

  /** Waits until the server has counted so many orders of each form, and the page says the same. */
  async sees(unguarded, guarded) {
    const shown = async (id) => Number(await this.page.textContent(`#${id}-count`));
    const is = async () => (await shown("unguarded")) === unguarded && (await shown("guarded")) === guarded;
    await until(`${unguarded} and ${guarded} orders are shown`, is);
    const tally = await this.tally();
    if (tally.unguarded !== unguarded || tally.guarded !== guarded) throw new Error(JSON.stringify(tally));
  }

  /** Turns a switch, or chooses a policy, as a person does. */
  async turn(...values) {
    for (const value of values) await this.page.click(`.switches label:has([value=${value}])`);
  }

  /** What the picture of the wire shows for the newest submission of a form, without how long it took. */
  async wire(form, count) {
    const all = this.page.locator(`#${form}-wire > li`).filter({ hasNotText: "The next submission" });
    const trips = all.first().locator(".trip:not([data-kind=plain])");
    const isThere = async () => (await trips.count()) === count && (await trips.locator("..").locator("[data-kind=under-way]").count()) === 0;
    await until(`${count} requests are drawn for ${form}`, isThere).catch(async (error) => {
      throw new Error(`${error.message}: ${await this.page.innerText(`#${form}-wire`)}`);
    });
    const kinds = await trips.evaluateAll((trips) => trips.map((trip) => trip.dataset.kind));
    return kinds.sort();
  }

  /** Clicks so often, as fast as a finger can. */
  async click(form, times = 1) {
    await this.page.click(`#${form} .order`, { clickCount: times, delay: 15 });
  }

  /** Goes; nothing may have been wrong. */
  async leave() {
    const wrong = await this.visitor.leave();
    if (wrong.length > 0) throw new Error(wrong.join("\n"));
  }
}

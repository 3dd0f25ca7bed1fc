// The test environment of the demo: the real service on a free port, and the browser of the SDK's tests.

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

  /** Opens the page with a new visitor. */
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

/** The path of the program, built by `cargo build`. */
function program() {
  const metadata = execFileSync("cargo", ["metadata", "--no-deps", "--offline", "--format-version", "1"], { cwd: ROOT });
  return join(JSON.parse(metadata).target_directory, "debug", "onceward");
}

/** A visitor who uses the page, and reads the counts from the server. */
class Customer {
  constructor(visitor) {
    this.visitor = visitor;
    this.page = visitor.page;
  }

  /** The server's counts for this visitor. */
  async tally() {
    return (await (await this.visitor.context.request.get(`${this.visitor.stage.url}/demo/state`)).json()).tally;
  }

  /** Waits until the page shows this number of orders for each form, and checks it with the server. */
  async sees(unguarded, guarded) {
    const shown = async (id) => Number(await this.page.textContent(`#${id}-count`));
    const is = async () => (await shown("unguarded")) === unguarded && (await shown("guarded")) === guarded;
    await until(`${unguarded} and ${guarded} orders are shown`, is);
    const tally = await this.tally();
    if (tally.unguarded !== unguarded || tally.guarded !== guarded) throw new Error(JSON.stringify(tally));
  }

  /** Clicks switches or policies. */
  async turn(...values) {
    for (const value of values) await this.page.click(`.switches label:has([value=${value}])`);
  }

  /** The kinds of the responses shown for the newest submission of a form. */
  async wire(form, count) {
    const all = this.page.locator(`#${form}-wire > li`).filter({ hasNotText: /Next submission|下一次提交/ });
    const trips = all.first().locator(".trip:not([data-kind=plain])");
    const isThere = async () => (await trips.count()) === count && (await trips.locator("..").locator("[data-kind=under-way]").count()) === 0;
    await until(`${count} requests are drawn for ${form}`, isThere).catch(async (error) => {
      throw new Error(`${error.message}: ${await this.page.innerText(`#${form}-wire`)}`);
    });
    const kinds = await trips.evaluateAll((trips) => trips.map((trip) => trip.dataset.kind));
    return kinds.sort();
  }

  /** Clicks the order button several times, as fast as a user can. */
  async click(form, times = 1) {
    await this.page.click(`#${form} .order`, { clickCount: times, delay: 15 });
  }

  /** Closes the page, and fails if there were errors. */
  async leave() {
    const wrong = await this.visitor.leave();
    if (wrong.length > 0) throw new Error(wrong.join("\n"));
  }
}

// Tests that run on every stack.

import { test } from "node:test";
import { startProxy } from "./faulty_proxy.mjs";
import { startService } from "./service.mjs";
import { createLedger, startShop, STACKS } from "./shop.mjs";

/** Runs a test on every stack, with its own shop and ledger beside one service. */
export function onEveryStack(name, run, { plan, env } = {}) {
  for (const stack of STACKS) {
    test(`${stack}: ${name}`, async (t) => {
      const service = await startService(t);
      const proxy = plan && (await startProxy(t, service.url, plan()));
      const ledger = createLedger(t);
      const shop = await startShop(t, stack, (proxy ?? service).url, ledger, env);
      await run({ t, stack, service, proxy, ledger, shop });
    });
  }
}

export const statusAndOutcome = ({ status, outcome }) => [status, outcome];

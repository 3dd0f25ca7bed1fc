// The retry rules, as tables: every line is one case.

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { chooseToken, endOfAttempt, nextStep, type TokenChoice, type AttemptEnd, type NextStep, type AttemptProblem } from "../src/retry_rules.js";
import type { Code, Retry } from "../src/wire_contract.js";

describe("the token of the next attempt of a form", () => {
  const table: [ended: AttemptEnd, same: TokenChoice, edited: TokenChoice, sameButExpired: TokenChoice][] = [
    ["none", "keep", "ask", "ask"],
    ["lost", "keep", "ask", "ask"],
    ["doubt", "ask", "ask", "ask"],
    ["seen", "ask", "fresh", "ask"],
    ["again", "keep", "fresh", "fresh"],
    ["final", "fresh", "fresh", "fresh"],
  ];
  test.each(table)("after %s: the same %s, edited %s, expired %s", (ended, same, edited, sameButExpired) => {
    expect(chooseToken(ended, true, false)).toBe(same);
    expect(chooseToken(ended, false, false)).toBe(edited);
    expect(chooseToken(ended, false, true)).toBe(edited);
    expect(chooseToken(ended, true, true)).toBe(sameButExpired);
  });

  test("edited content never uses the token of an attempt that may have run", () => {
    for (const [ended] of table) expect(chooseToken(ended, false, false)).not.toBe("keep");
  });
});

describe("the end of an attempt, by its response", () => {
  // The sender of the response, and the state of the token afterwards.
  const table: [way: string, status: number, outcome: string, ended: AttemptEnd, endedAfterALostOne: AttemptEnd][] = [
    ["any", 200, "", "final", "final"],
    ["any", 303, "", "final", "final"],
    // The guard, whose outcome tells whether the token was released.
    ["guard", 200, "executed", "final", "final"],
    // A handler that states the effect of a success, or a proxy whose format of rejections has the status 200.
    ["guard", 200, "unknown", "doubt", "doubt"],
    ["guard", 303, "unknown", "doubt", "doubt"],
    ["guard", 200, "not_applied", "again", "lost"],
    ["guard", 303, "not_applied", "again", "lost"],
    ["guard", 200, "not_released", "final", "final"],
    ["guard", 200, "replayed", "final", "final"],
    ["guard", 200, "unprotected", "final", "final"],
    ["guard", 422, "not_applied", "final", "final"],
    ["guard", 409, "not_applied", "final", "final"],
    ["guard", 409, "replayed", "final", "final"],
    ["guard", 409, "replayable", "final", "final"],
    ["guard", 409, "unprotected", "final", "final"],
    ["guard", 409, "reply_not_kept", "doubt", "doubt"],
    ["guard", 500, "not_applied", "again", "lost"],
    ["guard", 501, "not_applied", "again", "lost"],
    ["guard", 503, "not_applied", "again", "lost"],
    ["guard", 500, "not_released", "final", "final"],
    ["guard", 500, "unprotected", "final", "final"],
    ["guard", 502, "unprotected", "doubt", "doubt"],
    ["guard", 500, "executed", "final", "final"],
    ["guard", 500, "replayed", "final", "final"],
    ["guard", 422, "unknown", "doubt", "doubt"],
    ["guard", 502, "unknown", "doubt", "doubt"],
    ["guard", 504, "unknown", "doubt", "doubt"],
    ["guard", 507, "unknown", "doubt", "doubt"],
    ["guard", 500, "internal", "doubt", "doubt"],
    ["guard", 503, "store_unavailable", "again", "lost"],
    ["guard", 503, "overloaded", "again", "lost"],
    ["guard", 503, "redeem_unknown", "final", "doubt"],
    ["guard", 400, "token_missing", "final", "doubt"],
    ["guard", 409, "token_used", "doubt", "doubt"],
    ["guard", 409, "in_progress", "doubt", "doubt"],
    ["guard", 409, "too_soon", "final", "doubt"],
    ["guard", 409, "outcome_unknown", "doubt", "doubt"],
    ["guard", 410, "token_expired", "final", "doubt"],
    // nginx, Caddy, Envoy, HAProxy: the token is used, whatever the application returns.
    ["gateway", 200, "executed", "final", "final"],
    ["gateway", 409, "executed", "final", "final"],
    ["gateway", 422, "executed", "final", "final"],
    ["gateway", 500, "executed", "final", "final"],
    ["gateway", 501, "executed", "final", "final"],
    ["gateway", 503, "executed", "final", "final"],
    ["gateway", 505, "executed", "doubt", "doubt"],
    ["gateway", 502, "unknown", "doubt", "doubt"],
    ["gateway", 503, "unknown", "doubt", "doubt"],
    ["gateway", 504, "unknown", "doubt", "doubt"],
    ["gateway", 503, "redeem_unknown", "final", "doubt"],
    ["gateway", 503, "store_unavailable", "again", "lost"],
    ["gateway", 503, "unauthorized", "again", "lost"],
    ["gateway", 409, "token_used", "doubt", "doubt"],
    // Traefik: it cannot distinguish a 500 of the application from its own.
    ["Traefik", 200, "redeemed", "final", "final"],
    ["Traefik", 422, "redeemed", "final", "doubt"],
    ["Traefik", 500, "redeemed", "doubt", "doubt"],
    ["Traefik", 503, "redeemed", "doubt", "doubt"],
    ["Traefik", 502, "unknown", "doubt", "doubt"],
    ["Traefik", 403, "store_unavailable", "again", "lost"],
    // A backend that redeems tokens and sends no outcome, or a proxy.
    ["backend", 400, "", "final", "doubt"],
    ["backend", 409, "", "doubt", "doubt"],
    ["backend", 422, "", "final", "doubt"],
    ["backend", 500, "", "final", "doubt"],
    ["backend", 501, "", "final", "doubt"],
    ["backend", 502, "", "none", "lost"],
    ["backend", 503, "", "none", "lost"],
    ["backend", 504, "", "none", "lost"],
    ["backend", 507, "", "none", "lost"],
    // A later version of the contract.
    ["guard", 500, "something", "doubt", "doubt"],
    ["guard", 409, "something", "doubt", "doubt"],
    ["guard", 200, "something", "doubt", "doubt"],
  ];
  test.each(table)("%s %i %s is %s, and %s after an attempt without a response", (_, status, outcome, ended, afterALostOne) => {
    expect(endOfAttempt(status, outcome, false)).toBe(ended);
    expect(endOfAttempt(status, outcome, true)).toBe(afterALostOne);
  });

  test("every code ends an attempt in the same way, whatever status the application gives it", () => {
    const codes: string[] = JSON.parse(readFileSync(new URL("../../../openapi/openapi.json", import.meta.url), "utf8")).components.schemas.Code.enum;
    const doubt = ["token_used", "in_progress", "outcome_unknown", "reply_not_kept", "claim_lost", "upstream_unavailable", "upstream_timeout", "upstream_failed", "internal"];
    for (const status of [200, 202, 400, 409, 422, 500, 502, 503, 504]) {
      const by = (ended: AttemptEnd) => codes.filter((code) => endOfAttempt(status, code, false) == ended);
      const again = ["store_unavailable", "overloaded", ...(status < 500 ? [] : ["unauthorized"])];
      expect([status, by("again")]).toEqual([status, again]);
      expect([status, by("doubt")]).toEqual([status, doubt]);
      expect([status, by("final")]).toEqual([status, codes.filter((code) => !again.includes(code) && !doubt.includes(code))]);
      const afterALostOne = codes.filter((code) => endOfAttempt(status, code, true) != (again.includes(code) ? "lost" : "doubt"));
      expect([status, afterALostOne]).toEqual([status, []]);
    }
  });

  test("every outcome of a handler with a 503 has its line", () => {
    const outcomes = ["executed", "replayable", "not_applied", "not_released", "unknown", "replayed", "unprotected", "redeemed", ""];
    const ends = ["final", "final", "again", "final", "doubt", "final", "final", "doubt", "none"];
    expect(outcomes.map((outcome) => endOfAttempt(503, outcome, false))).toEqual(ends);
  });

  test("no failure that may have taken effect leads to a new token without a question", () => {
    for (const [, status, outcome, ended] of table) {
      const isUnknown = outcome == "unknown" || outcome == "internal" || (status > 500 && !/501|503/.test(`${status}`));
      if (isUnknown) for (const isExpired of [false, true]) expect(chooseToken(ended, true, isExpired)).not.toBe("fresh");
    }
  });
});

describe("the next step of `fetch`", () => {
  const answers: Record<string, AttemptProblem> = { lost: undefined };
  const add = (code: Code, retry: Retry) => (answers[code] = { code, retry });
  add("token_expired", "new_token");
  add("token_stale", "new_token");
  add("redeem_unknown", "new_token");
  add("store_unavailable", "same");
  add("too_soon", "no");
  add("locked", "same");
  add("in_progress", "same");
  add("token_used", "no");
  add("token_revoked", "no");
  add("reply_not_kept", "no");
  add("outcome_unknown", "no");
  add("internal", "no");
  add("upstream_unavailable", "same");
  add("upstream_timeout", "no");
  add("upstream_failed", "no");
  add("key_reused", "no");
  add("unauthorized", "no");
  // Codes of a later version of the contract.
  const addLater = (code: string, retry?: Retry) => (answers[code] = { code: code as Code, ...(retry && { retry }) });
  addLater("something", "no");
  addLater("something_again", "same");
  addLater("something_else", "new_token");
  addLater("something_hidden");

  const table: [attempts: string, whileItMayRepeat: NextStep, atTheEnd: NextStep][] = [
    ["lost", "same", "unknown"],
    ["token_expired", "new_token", "rejected"],
    ["redeem_unknown", "new_token", "rejected"],
    ["token_expired token_stale", "new_token", "rejected"],
    ["lost token_expired", "unknown", "unknown"],
    ["lost token_stale", "unknown", "unknown"],
    ["token_expired lost token_expired", "unknown", "unknown"],
    ["in_progress token_expired", "unknown", "unknown"],
    ["store_unavailable token_expired", "rejected", "rejected"],
    ["store_unavailable", "same", "rejected"],
    ["lost store_unavailable", "same", "unknown"],
    ["too_soon", "duplicate", "duplicate"],
    ["token_expired too_soon", "duplicate", "duplicate"],
    ["lost too_soon", "unknown", "unknown"],
    ["in_progress too_soon", "unknown", "unknown"],
    ["store_unavailable too_soon", "unknown", "unknown"],
    ["locked", "same", "rejected"],
    ["store_unavailable locked", "same", "rejected"],
    ["lost locked", "unknown", "unknown"],
    ["in_progress", "same", "unknown"],
    ["lost in_progress", "same", "unknown"],
    ["token_used", "duplicate", "duplicate"],
    ["token_expired token_used", "duplicate", "duplicate"],
    ["store_unavailable token_used", "unknown", "unknown"],
    ["lost token_used", "unknown", "unknown"],
    ["token_revoked", "rejected", "rejected"],
    ["lost token_revoked", "unknown", "unknown"],
    ["reply_not_kept", "duplicate", "duplicate"],
    ["lost reply_not_kept", "duplicate", "duplicate"],
    ["outcome_unknown", "unknown", "unknown"],
    ["internal", "unknown", "unknown"],
    ["upstream_timeout", "unknown", "unknown"],
    ["upstream_failed", "unknown", "unknown"],
    ["upstream_unavailable", "same", "rejected"],
    ["lost upstream_unavailable", "same", "unknown"],
    ["key_reused", "rejected", "rejected"],
    ["unauthorized", "rejected", "rejected"],
    ["lost unauthorized", "unknown", "unknown"],
    ["something", "unknown", "unknown"],
    ["something_again", "same", "unknown"],
    ["something_else", "new_token", "unknown"],
    ["lost something_else", "unknown", "unknown"],
    ["something_again unauthorized", "rejected", "rejected"],
    ["something_hidden", "unknown", "unknown"],
  ];
  test.each(table)("after %s: %s, and at the end %s", (attempts, whileItMayRepeat, atTheEnd) => {
    const problems = attempts.split(" ").map((name) => answers[name]);
    expect(nextStep(problems, true)).toBe(whileItMayRepeat);
    expect(nextStep(problems, false)).toBe(atTheEnd);
  });

  test("every code that says that nothing ran is known by its first letters", () => {
    const codes: Code[] = JSON.parse(readFileSync(new URL("../../../openapi/openapi.json", import.meta.url), "utf8")).components.schemas.Code.enum;
    const others = ["token_used", "too_soon", "in_progress", "outcome_unknown", "reply_not_kept", "upstream_timeout", "upstream_failed", "internal"];
    for (const code of codes) expect([code, nextStep([{ code, retry: "no" }], false) == "rejected"]).toEqual([code, !others.includes(code)]);
  });

  test("an attempt without a response never leads to a new token", () => {
    for (const before of Object.values(answers)) {
      for (const last of Object.values(answers)) {
        expect(nextStep([before, undefined, last], true)).not.toBe("new_token");
        expect(nextStep([undefined, before, last], true)).not.toBe("new_token");
      }
    }
  });
});

// The intent rule and rule 13, as tables: every line is one case.

import { describe, expect, test } from "vitest";
import { choose, learned, nextStep, type Choice, type Ended, type Step, type Tried } from "../src/intent.js";
import type { Code, Retry } from "../src/wire.js";

describe("which token the next try of a form takes", () => {
  const table: [ended: Ended, same: Choice, edited: Choice, sameButExpired: Choice][] = [
    ["none", "keep", "ask", "ask"],
    ["lost", "keep", "ask", "ask"],
    ["doubt", "ask", "ask", "ask"],
    ["seen", "ask", "fresh", "ask"],
    ["again", "keep", "fresh", "fresh"],
    ["final", "fresh", "fresh", "fresh"],
  ];
  test.each(table)("after %s: the same %s, edited %s, expired %s", (ended, same, edited, sameButExpired) => {
    expect(choose(ended, true, false)).toBe(same);
    expect(choose(ended, false, false)).toBe(edited);
    expect(choose(ended, false, true)).toBe(edited);
    expect(choose(ended, true, true)).toBe(sameButExpired);
  });

  test("edited content never takes the token of a try that may have run", () => {
    for (const [ended] of table) expect(choose(ended, false, false)).not.toBe("keep");
  });
});

describe("how a try ended, by the status of its answer", () => {
  const table: [status: number, ended: Ended, endedAfterALostOne: Ended][] = [
    [200, "final", "final"],
    [303, "final", "final"],
    [400, "final", "doubt"],
    [409, "doubt", "doubt"],
    [410, "final", "doubt"],
    [422, "final", "doubt"],
    [500, "again", "lost"],
    [502, "again", "lost"],
    [503, "again", "lost"],
    [504, "again", "lost"],
  ];
  test.each(table)("%i is %s, and %s after a try without an answer", (status, ended, afterALostOne) => {
    expect(learned(status, false)).toBe(ended);
    expect(learned(status, true)).toBe(afterALostOne);
  });
});

describe("rule 13", () => {
  const answers: Record<string, Tried> = { lost: undefined };
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
  add("key_reused", "no");
  add("unauthorized", "no");

  const table: [tries: string, whileItMayRepeat: Step, atTheEnd: Step][] = [
    ["lost", "same", "unknown"],
    ["token_expired", "new_token", "refused"],
    ["redeem_unknown", "new_token", "refused"],
    ["token_expired token_stale", "new_token", "refused"],
    ["lost token_expired", "unknown", "unknown"],
    ["lost token_stale", "unknown", "unknown"],
    ["token_expired lost token_expired", "unknown", "unknown"],
    ["in_progress token_expired", "unknown", "unknown"],
    ["store_unavailable token_expired", "refused", "refused"],
    ["store_unavailable", "same", "refused"],
    ["lost store_unavailable", "same", "unknown"],
    ["too_soon", "duplicate", "duplicate"],
    ["token_expired too_soon", "duplicate", "duplicate"],
    ["lost too_soon", "unknown", "unknown"],
    ["in_progress too_soon", "unknown", "unknown"],
    ["store_unavailable too_soon", "unknown", "unknown"],
    ["locked", "same", "refused"],
    ["store_unavailable locked", "same", "refused"],
    ["lost locked", "unknown", "unknown"],
    ["in_progress", "same", "unknown"],
    ["lost in_progress", "same", "unknown"],
    ["token_used", "duplicate", "duplicate"],
    ["token_expired token_used", "duplicate", "duplicate"],
    ["store_unavailable token_used", "unknown", "unknown"],
    ["lost token_used", "unknown", "unknown"],
    ["token_revoked", "refused", "refused"],
    ["lost token_revoked", "unknown", "unknown"],
    ["reply_not_kept", "duplicate", "duplicate"],
    ["lost reply_not_kept", "duplicate", "duplicate"],
    ["outcome_unknown", "unknown", "unknown"],
    ["internal", "unknown", "unknown"],
    ["key_reused", "refused", "refused"],
    ["unauthorized", "refused", "refused"],
    ["lost unauthorized", "unknown", "unknown"],
  ];
  test.each(table)("after %s: %s, and at the end %s", (tries, whileItMayRepeat, atTheEnd) => {
    const tried = tries.split(" ").map((name) => answers[name]);
    expect(nextStep(tried, true)).toBe(whileItMayRepeat);
    expect(nextStep(tried, false)).toBe(atTheEnd);
  });

  test("whatever came before, a try without an answer never leads to a new token", () => {
    for (const before of Object.values(answers)) {
      for (const last of Object.values(answers)) {
        expect(nextStep([before, undefined, last], true)).not.toBe("new_token");
        expect(nextStep([undefined, before, last], true)).not.toBe("new_token");
      }
    }
  });
});

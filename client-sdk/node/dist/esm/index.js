// Makes a submission take effect once, however often it is sent.
export { Claim, Replay } from "./claim.js";
export { Onceward, Redeemed } from "./onceward.js";
export { Rejected } from "./problem.js";
export { anonymous } from "./protection.js";
export { NotApplied, stateEffect, Unknown } from "./statement.js";

// Makes a submission take effect once, however often it is sent.

export { Claim, Replay, type Settled } from "./claim.js";
export type { Effect } from "./effect.js";
export type { ClaimOptions, Intent, KeyIntent, TokenIntent } from "./intent.js";
export type { LookupIntent } from "./lookup.js";
export { type IssuedToken, type IssueOptions, Onceward, type OncewardOptions, Redeemed, type RedeemIntent } from "./onceward.js";
export { type Problem, Rejected, type Retry } from "./problem.js";
export { anonymous, type KeyOptions, type ProtectOptions, type TokenOptions } from "./protection.js";
export type { Header, Reply } from "./reply.js";
export type { Log } from "./service.js";
export type { Subject } from "./subject.js";
export { NotApplied, stateEffect, Unknown } from "./statement.js";

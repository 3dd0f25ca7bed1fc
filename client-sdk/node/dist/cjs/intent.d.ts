import type { Policy } from "./effect.js";
import { type Subject } from "./subject.js";
/** The lease that the service uses if the claim names none, in milliseconds. */
export declare const DEFAULT_LEASE = 15000;
/** Options of a claim. Times are in milliseconds. */
export interface ClaimOptions {
    /** Time until the claim expires unless it is renewed, which happens in the background. Default: 15 s. */
    lease?: number;
    /** Time that a duplicate waits for the first run. Default: 0. */
    wait?: number;
    /** Retention of the stored response, or of an unknown outcome. Default: a day. */
    retain?: number;
}
interface AnyIntent extends ClaimOptions {
    /** The operation, such as `POST /orders`. */
    action: string;
    /** The client, as the application knows it. One client never receives the response to another. */
    subject: Subject;
    /** The content, or a digest of it. The same key with another fingerprint is rejected. */
    fingerprint?: string;
}
/** A claim on a key that the client chose. */
export interface KeyIntent extends AnyIntent {
    key: string;
    /** `false`: after a crash the key is free when its lease expires, so the work may run twice. */
    atMostOnce?: boolean;
}
/** A claim on a token that Onceward issued. */
export interface TokenIntent extends AnyIntent {
    token: string;
    /** Accept only a token that was issued for this action and this subject. */
    bound?: boolean;
}
export type Intent = KeyIntent | TokenIntent;
export declare function policyOf(intent: Intent): Policy;
/** Returns the body of the claim. It names a new attempt: create it once, and send the same again. */
export declare function intentToWire(intent: Intent): Record<string, unknown>;
export {};

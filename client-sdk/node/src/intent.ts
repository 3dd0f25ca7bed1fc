// What a request asks for: the body of `POST /claim`.

import { createHash, randomUUID } from "node:crypto";
import { duration } from "./duration.js";
import type { Policy } from "./effect.js";
import { type Subject, subjectText } from "./subject.js";

/** The lease that the service uses if the claim names none, in milliseconds. */
export const DEFAULT_LEASE = 15_000;

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

/** The number of characters up to which a fingerprint is sent as it is: the service limits the size of a claim. */
const LONGEST_FINGERPRINT = 256;

function short(fingerprint: string): string {
  return fingerprint.length > LONGEST_FINGERPRINT ? createHash("sha256").update(fingerprint).digest("hex") : fingerprint;
}

export type Intent = KeyIntent | TokenIntent;

export function policyOf(intent: Intent): Policy {
  if ("token" in intent) return "token";
  return intent.atMostOnce === false ? "retryable" : "at_most_once";
}

/** Returns the body of the claim. It names a new attempt: create it once, and send the same again. */
export function intentToWire(intent: Intent): Record<string, unknown> {
  const subject = subjectText(intent.subject);
  if (!subject) throw new Error("subject is required: pass the id of the client as the application knows it, such as a user's id");
  const { action, fingerprint } = intent;
  const wire: Record<string, unknown> = { action, subject, fingerprint: fingerprint && short(fingerprint), attempt: randomUUID() };
  if ("token" in intent) Object.assign(wire, { token: intent.token, bound: intent.bound });
  else Object.assign(wire, { key: intent.key, at_most_once: intent.atMostOnce ?? true });
  for (const name of ["lease", "wait", "retain"] as const) {
    if (intent[name]) wire[name] = duration(intent[name]);
  }
  return wire;
}

// Digests of what a form sends: two submits are compared without keeping any content.

import { FIELD } from "./wire_contract.js";

/** A digest of everything a form sends except its token, and of `target`: where and how it is sent. */
export function digest(data: FormData, target: unknown): number {
  const entries = [target];
  for (const [name, value] of data) {
    if (name == FIELD) continue;
    entries.push(name, typeof value == "string" ? value : [value.name, value.size, value.lastModified]);
  }
  return hash(JSON.stringify(entries));
}

/** A quick hash (after FNV-1a), which is no secret. A server that compares content does so by itself. */
function hash(text: string): number {
  return [...text].reduce((hash, char) => Math.imul(hash ^ char.codePointAt(0)!, 0x1000193), 0);
}

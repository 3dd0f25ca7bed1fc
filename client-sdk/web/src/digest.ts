// Digests of the content of a form: two submits are compared without storing any content.

import { FIELD } from "./wire_contract.js";

/** Returns a digest of everything that a form sends except its token, and of `target`. */
export function digest(data: FormData, target: unknown): number {
  const entries = [target];
  for (const [name, value] of data) {
    if (name == FIELD) continue;
    entries.push(name, typeof value == "string" ? value : [value.name, value.size, value.lastModified]);
  }
  return hash(JSON.stringify(entries));
}

/** A fast hash (like FNV-1a), not a cryptographic one. The server compares content itself. */
function hash(text: string): number {
  return [...text].reduce((hash, char) => Math.imul(hash ^ char.codePointAt(0)!, 0x1000193), 0);
}

// The value of an `Onceward-Look` header.

import { createProblem, Rejected } from "./problem.js";

/**
 * Returns whether the client asks for the stored response only, so that nothing may run. Throws `Rejected` for any other value than `true`
 * and `false`: the client wants to control whether the handler runs.
 */
export function isLook(header = "false"): boolean {
  if (header === "true" || header === "false") return header === "true";
  throw new Rejected(createProblem("bad_request", "Onceward-Look has to be true or false."));
}

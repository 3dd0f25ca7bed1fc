// Reports the response to a form that a library sent.

import type { Onceward } from "./index.js";
import { findField } from "./token_field.js";
import { FIELD } from "./wire_contract.js";

/** The data of a request, as far as they are needed to find the token in them. */
interface SentData {
  get?: (name: string) => unknown;
}

/**
 * Reports the response to the request with these data, or `null` if none came. A response to an earlier submit of the form, with another token, does
 * not settle the last one.
 */
export function reportResponse(onceward: Onceward, form: unknown, sent: unknown, response: Response | null): void {
  if (!(form instanceof HTMLFormElement)) return;
  const field = findField(form);
  if (!field || field.value == (sent as SentData)?.get?.(FIELD)) onceward.answered(form, response);
}

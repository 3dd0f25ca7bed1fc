// Errors of calls that were cut off: what such a call asked for may have happened.

/** The number of errors that are read of a chain of causes, which may be a cycle. */
const LENGTH = 20;

/** Returns whether an error, or one in the chain of its causes, is that of a timeout or of an abort. */
export function isTimeout(error: unknown): boolean {
  let each = error;
  for (let count = 0; count < LENGTH && isObject(each); count += 1) {
    if (showsTimeout(each)) return true;
    each = each["cause"];
  }
  return false;
}

function showsTimeout({ name, code }: Record<string, unknown>): boolean {
  return name === "AbortError" || [name, code].some((text) => typeof text === "string" && /timeout|timedout/i.test(text));
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

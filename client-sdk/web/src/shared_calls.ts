// Deduplicates calls that belong to the same submission.

import { DOUBLE_CLICK } from "./retry_rules.js";

/** Starts a call, or returns the result of the call that it repeats: the last one of this owner, if it has the same content. */
export type ShareCall = <T>(owner: unknown, content: number, begin: () => Promise<T>, form?: EventTarget) => Promise<T>;

/**
 * Remembers the last call of each owner while it is in flight. A call for a form is remembered for the duration of a double click, unless the
 * form is edited or reset. A call whose promise is rejected is forgotten at once.
 */
export function sharedCalls(): ShareCall {
  const calls = new Map<unknown, [content: number, result: Promise<any>]>();
  return (owner, content, begin, form) => {
    const last = calls.get(owner);
    if (last?.[0] == content) return last[1];
    const result = begin();
    const call: [number, Promise<any>] = [content, result];
    calls.set(owner, call);
    const click = form && new Promise((go) => {
      setTimeout(go, DOUBLE_CLICK);
      ["input", "reset"].forEach((name) => form.addEventListener(name, go, { once: true }));
    });
    const end = () => calls.get(owner) == call && calls.delete(owner);
    Promise.all([result, click]).then(end, end);
    return result;
  };
}

/** Starts a call, or returns the result of the call that it repeats: the last one of this owner, if it has the same content. */
export type ShareCall = <T>(owner: unknown, content: number, begin: () => Promise<T>, form?: EventTarget) => Promise<T>;
/**
 * Remembers the last call of each owner while it is in flight. A call for a form is remembered for the duration of a double click, unless the
 * form is edited or reset. A call whose promise is rejected is forgotten at once.
 */
export declare function sharedCalls(): ShareCall;

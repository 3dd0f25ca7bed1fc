/** Begins a call, or returns the result of the one that it repeats: the last of this owner, with the same content. */
export type ShareCall = <T>(owner: unknown, content: number, begin: () => Promise<T>, form?: EventTarget) => Promise<T>;
/**
 * Remembers the last call of each owner while it is in flight. A call for a form is remembered for as long as a double click takes, unless the
 * form is edited or reset. A call that is rejected is forgotten at once.
 */
export declare function sharedCalls(): ShareCall;

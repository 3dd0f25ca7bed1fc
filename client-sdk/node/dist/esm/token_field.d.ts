/** The name of the form field. */
export declare const FIELD = "_onceward";
/** Returns the token in the body of a form, `undefined` if there is none. */
export declare function tokenField(contentType: string, body: Uint8Array): string | undefined;

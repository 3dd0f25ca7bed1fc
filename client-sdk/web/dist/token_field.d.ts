/** Returns the hidden field. It may be missing: a library that replaces the fields of a form removes it. */
export declare function findField(form: HTMLFormElement): HTMLInputElement | null;
/** Writes a token into the hidden field. It is the first field: in an upload the token must come first. */
export declare function writeToField(form: HTMLFormElement, token: string): void;
/** Omits the token from this submit. */
export declare function omitToken(form: HTMLFormElement): void;
/** Writes a token into the query of the form's action, or of the button's. */
export declare function writeToQuery(form: HTMLFormElement, submitter: HTMLElement | null, url: URL, token: string): void;

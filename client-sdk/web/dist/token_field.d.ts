/** The hidden field, if there is one: a library that replaces the fields of a form removes it. */
export declare function findField(form: HTMLFormElement): HTMLInputElement | null;
/** Writes a token into the hidden field, which comes first in an upload. */
export declare function writeToField(form: HTMLFormElement, token: string): void;
/** Leaves the token out of this submit. */
export declare function omitToken(form: HTMLFormElement): void;
/** Writes a token into the query of the action, or of the button's. */
export declare function writeToQuery(form: HTMLFormElement, submitter: HTMLElement | null, url: URL, token: string): void;

/** Returns an attribute of the form, or its override on the submit button. Not by property: a field may have the same name. */
export declare function attribute(form: HTMLFormElement, submitter: Element | null, name: "action" | "method" | "target"): string;
/** Returns the URL of a submit. */
export declare function target(form: HTMLFormElement, submitter: Element | null): URL;
/** Returns a URL without its query, or undefined if it is invalid. */
export declare function bare(address: string): string | undefined;
/** Returns the URLs in the attributes of a form and its button, such as `action`, `formaction` or `hx-post`, without their queries. */
export declare function addresses(form: HTMLFormElement, submitter: Element | null): unknown[];

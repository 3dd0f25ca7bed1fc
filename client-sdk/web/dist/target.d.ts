/** What a form, or the button that submits it, says of how it is sent. Not by property: a field may have the name of one. */
export declare function attribute(form: HTMLFormElement, submitter: Element | null, name: "action" | "method" | "target"): string;
/** Where a submit goes. */
export declare function target(form: HTMLFormElement, submitter: Element | null): URL;
/** An address without its query, or nothing if it is none. */
export declare function bare(address: string): string | undefined;
/** The addresses that a form and its button name in attributes, such as `action`, `formaction` or `hx-post`, without their queries. */
export declare function addresses(form: HTMLFormElement, submitter: Element | null): unknown[];

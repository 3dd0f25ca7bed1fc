/** A digest of everything a form would send but its token. It is salted with the token and says nothing by itself. */
export declare function digest(form: HTMLFormElement, submitter: HTMLElement | null, salt?: string): number;
/** What a form, or the button that submits it, says of how it is sent. Not by property: a field may have the name of one. */
export declare function attribute(form: HTMLFormElement, submitter: HTMLElement | null, name: "action" | "method" | "target"): string;

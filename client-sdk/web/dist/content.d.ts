/** A digest of everything a form would send but its token, and of where to. */
export declare function digest(form: HTMLFormElement, submitter: HTMLElement | null, url: URL): number;
/** What a form, or the button that submits it, says of how it is sent. Not by property: a field may have the name of one. */
export declare function attribute(form: HTMLFormElement, submitter: HTMLElement | null, name: "action" | "method" | "target"): string;

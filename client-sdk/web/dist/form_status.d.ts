/** The messages shown to users. Assign your own texts to change or translate them. */
export declare const messages: {
    offline: string;
    noToken: string;
    slow: string;
    twice: string;
    unknown: string;
    confirm: string;
};
/** The messages shown to users. */
export type Messages = typeof messages;
/** The state of a form, in its attribute `data-onceward-state`. */
export type FormState = "idle" | "ready" | "waiting" | "sending" | "unknown" | "error";
/** Shows a state, or none on a form without a token. Nothing is disabled: that would drop the name and value of the pressed button. */
export declare function showState(form: HTMLFormElement, state?: FormState): void;
/** Shows a message in the form, with a button if there is something to confirm. An empty text removes the message. */
export declare function showMessage(form: HTMLFormElement, text: string, label?: string, confirm?: () => void): void;
/** Dispatches an event to the page. Returns false if the page handles it itself (`preventDefault`). */
export declare function dispatch(form: HTMLFormElement, name: string, detail?: object): boolean;

/** What is told to people. Change it to tell it in other words. */
export declare const messages: {
    offline: string;
    noToken: string;
    slow: string;
    twice: string;
    unknown: string;
    confirm: string;
};
/** What is told to people. */
export type Messages = typeof messages;
/** The state of a form, in its attribute `data-onceward-state`. */
export type FormState = "idle" | "ready" | "waiting" | "sending" | "unknown" | "error";
/** Shows a state, or none on a form that is left alone. Nothing is disabled: that would drop the name and value of the pressed button. */
export declare function showState(form: HTMLFormElement, state?: FormState): void;
/** Says a sentence in the form, with a button if there is something to confirm; or takes back what was said. */
export declare function showMessage(form: HTMLFormElement, text: string, label?: string, confirm?: () => void): void;
/** Tells the page. False if it wants to say it in its own way. */
export declare function dispatch(form: HTMLFormElement, name: string, detail?: object): boolean;

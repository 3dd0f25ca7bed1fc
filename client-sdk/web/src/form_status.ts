// What a form shows of itself: its state, an accessible busy mark, and one message.

/** What is told to people. Change it to tell it in other words. */
export const messages = {
  offline: "You are offline. Nothing was sent.",
  noToken: "The server cannot take this now. Nothing was sent.",
  slow: "No answer yet. Sending the same again is safe.",
  twice: "You have sent this before.",
  unknown: "What you sent before may have arrived.",
  confirm: "Send this as well",
};

/** What is told to people. */
export type Messages = typeof messages;

/** The state of a form, in its attribute `data-onceward-state`. */
export type FormState = "idle" | "ready" | "waiting" | "sending" | "unknown" | "error";

/** Shows a state, or none on a form that is left alone. Nothing is disabled: that would drop the name and value of the pressed button. */
export function showState(form: HTMLFormElement, state?: FormState): void {
  // A form that has shown no state may have a busy mark of the page's.
  if (!state && !form.dataset.oncewardState) return;
  // While it is waiting or sending.
  form.ariaBusy = state ? `${/ing$/.test(state)}` : null;
  if (state) form.dataset.oncewardState = state;
  else delete form.dataset.oncewardState;
}

/** Says a sentence in the form, with a button if there is something to confirm; or takes back what was said. */
export function showMessage(form: HTMLFormElement, text: string, label?: string, confirm?: () => void): void {
  let place = form.querySelector<HTMLElement>("[data-onceward-message]");
  if (!place) {
    if (!text) return;
    form.append((place = document.createElement("p")));
    place.dataset.oncewardMessage = "";
  }
  place.role = "alert";
  place.textContent = text;
  if (confirm) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label!;
    button.onclick = confirm;
    place.append(" ", button);
  }
}

/** Tells the page. False if it wants to say it in its own way. */
export function dispatch(form: HTMLFormElement, name: string, detail?: object): boolean {
  return form.dispatchEvent(new CustomEvent(`onceward:${name}`, { bubbles: true, cancelable: true, detail }));
}

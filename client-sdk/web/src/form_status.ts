// The visible status of a form: its state, `aria-busy`, and one message.

/** The messages shown to users. Assign your own texts to change or translate them. */
export const messages = {
  offline: "You are offline. Nothing was sent.",
  noToken: "The server is not available. Nothing was sent.",
  slow: "No response yet. It is safe to send it again.",
  twice: "You have sent this before.",
  unknown: "Your earlier submission may have arrived.",
  confirm: "Send this as well",
};

/** The messages shown to users. */
export type Messages = typeof messages;

/** The state of a form, in its attribute `data-onceward-state`. */
export type FormState = "idle" | "ready" | "waiting" | "sending" | "unknown" | "error";

/** Shows a state, or none on a form without a token. Nothing is disabled: that would drop the name and value of the pressed button. */
export function showState(form: HTMLFormElement, state?: FormState): void {
  // If this form never showed a state, `aria-busy` belongs to the page.
  if (!state && !form.dataset.oncewardState) return;
  // waiting, sending
  form.ariaBusy = state ? `${/ing$/.test(state)}` : null;
  if (state) form.dataset.oncewardState = state;
  else delete form.dataset.oncewardState;
}

/** Shows a message in the form, with a button if there is something to confirm. An empty text removes the message. */
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

/** Dispatches an event to the page. Returns false if the page handles it itself (`preventDefault`). */
export function dispatch(form: HTMLFormElement, name: string, detail?: object): boolean {
  return form.dispatchEvent(new CustomEvent(`onceward:${name}`, { bubbles: true, cancelable: true, detail }));
}

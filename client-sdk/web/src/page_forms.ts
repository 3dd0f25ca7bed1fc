// All guarded forms of a page, also those that are added later. One set of listeners on the page serves all of them.

import { createFormController } from "./form_controller.js";
import type { FormContext, FormController } from "./form_contract.js";
import { recordResponsePage } from "./history.js";

/** The guarded forms of a page, each with its controller. */
export interface PageForms {
  /** Starts to guard the forms of the page. */
  watch(): void;
  /** The forms that are guarded now. */
  all: Map<HTMLFormElement, FormController>;
}

/** Creates the set of forms: all of the page, or those with `data-onceward`. It guards none until `watch` is called. */
export function pageForms(context: FormContext, isAll: boolean): PageForms {
  // Not by `method`: a button may have another one. The controller leaves a form alone that no button sends with POST.
  const selector = `form${isAll ? "" : "[data-onceward]"}:not([data-onceward=off])`;
  const forms = new Map<HTMLFormElement, FormController>();
  /** True if the last navigation was caused by a form, and the controller of the form that was sent last. */
  let isForm = false;
  let last: FormController | undefined;
  /** The click or key press that is being handled. */
  let gesture: Event | undefined;

  function controllerOf(form: HTMLFormElement): FormController {
    let controller = forms.get(form);
    if (!controller) forms.set(form, (controller = createFormController(form, context)));
    return controller;
  }

  function watch(): void {
    const find = () => {
      document.querySelectorAll<HTMLFormElement>(selector).forEach(controllerOf);
      // A removed form is kept only while the response to its last attempt is pending.
      forms.forEach((controller, form) => form.isConnected || controller.awaitsResponse() || forms.delete(form));
    };
    const on: typeof addEventListener = (name: string, act: EventListenerOrEventListenerObject) => addEventListener(name, act, true);
    recordResponsePage();
    globalThis.navigation?.addEventListener("navigate", ({ formData }) => (isForm = !!formData));
    // `pageswap` is dispatched when another page has loaded, and not when loading failed. A page of another origin is not visible here: it may be
    // the response or not.
    on("pageswap", ({ activation }) => {
      const isAnswer = isForm && activation && /push|replace/.test(activation.navigationType);
      if (isAnswer) last?.leavePage(navigation.currentEntry!.id + activation.entry.url);
    });
    on("pageshow", ({ persisted }) => persisted && forms.forEach((form) => form.reset()));
    on("visibilitychange", () => forms.forEach((form) => form.renew()));
    on("focusin", (event) => controllerFor(event)?.ensureToken());
    ["input", "reset"].forEach((name) => on(name, (event) => controllerFor(event)?.touch()));
    ["click", "keypress"].forEach((name) =>
      on(name, (event) => {
        // Ignore clicks by script.
        if (!event.isTrusted) return;
        gesture = event;
        // The submit event follows in the same task.
        setTimeout(() => (gesture = undefined));
      }),
    );
    on("submit", (event) => {
      const form = controllerFor(event);
      form?.submit(event, gesture);
      if (!event.defaultPrevented) last = form;
    });
    // Libraries replace forms, also by clones that still show the state of the original.
    new MutationObserver(find).observe(document, { childList: true, subtree: true });
    const requests = new PerformanceObserver((list) =>
      list.getEntries().forEach((entry) => forms.forEach((form) => form.requestEnded(entry as PerformanceResourceTiming))),
    );
    requests.observe({ type: "resource" });
    find();
  }

  /** Returns the controller of the guarded form that an event belongs to. */
  function controllerFor({ target }: Event): FormController | undefined {
    // A form may have a field named `form`; a field may belong to a form outside of it.
    const form = target instanceof HTMLFormElement ? target : (target as HTMLInputElement).form;
    return form?.matches(selector) ? controllerOf(form) : undefined;
  }

  return { watch, all: forms };
}

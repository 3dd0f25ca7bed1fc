// All guarded forms of a page, also those that are added later: one set of listeners on the page finds them.

import { guard, type GuardedForm, type Surroundings } from "./form.js";
import { learn } from "./past.js";

const SELECTOR = "form[data-onceward]";

/** The guarded forms of a page. */
export interface Page {
  /** Guards the forms below `root`, now and later. */
  watch(root: Document | ShadowRoot): void;
  /** What is known of a form. */
  of(form: HTMLFormElement): GuardedForm;
}

/** Makes one that guards nothing yet. */
export function page(around: Surroundings): Page {
  const forms = new Map<HTMLFormElement, GuardedForm>();
  /** Whether the navigation that began last is a form's. */
  let isForm = false;

  function of(form: HTMLFormElement): GuardedForm {
    let guarded = forms.get(form);
    if (!guarded) forms.set(form, (guarded = guard(form, around)));
    return guarded;
  }

  function watchNavigation(): void {
    const on: typeof addEventListener = addEventListener;
    globalThis.navigation?.addEventListener("navigate", (event) => {
      if (!event.hashChange && !event.downloadRequest) isForm = !!event.formData;
    });
    // It comes when another page has been loaded, and not when the loading failed. A page of another origin does not show
    // itself: it may be the answer or not.
    on("pageswap", ({ activation }) => {
      const isAnswer = isForm && activation && /push|replace/.test(activation.navigationType);
      if (isAnswer) forms.forEach((form) => form.left(activation.entry.id));
    });
    on("pageshow", ({ persisted }) => persisted && forms.forEach((form) => form.reset()));
    on("visibilitychange", () => document.hidden || forms.forEach((form) => form.renew()));
  }

  function watch(root: Document | ShadowRoot): void {
    if (root == document) {
      learn();
      watchNavigation();
    }
    for (const name of ["focusin", "input", "reset", "submit"]) {
      const heard = (event: Event) => {
        const target = event.target as Element & { form?: HTMLFormElement | null };
        // A form may have a field that is called `form`; a field may belong to a form that it does not stand in.
        const form = target instanceof HTMLFormElement ? target : target.form;
        if (!form?.matches(SELECTOR)) return;
        if (name == "submit") of(form).submit(event as SubmitEvent);
        else if (name == "reset") of(form).cleared();
        else of(form).warm();
      };
      root.addEventListener(name, heard, true);
    }
    root.querySelectorAll<HTMLFormElement>(SELECTOR).forEach(of);
  }

  return { watch, of };
}

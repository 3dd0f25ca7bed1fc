// Forms sent by Hotwired Turbo: reports each response when it arrives. Importing this module has no side effects.

import { reportResponse } from "./form_response.js";
import type { Onceward } from "./index.js";

/** Members of the detail of `turbo:submit-end`. `fetchResponse` is missing if the request failed. */
interface Detail {
  formSubmission: { formElement: HTMLFormElement; body: unknown };
  fetchResponse?: { response: Response };
}

/** Reports the responses of guarded forms that Turbo sends. A form recovers as soon as its response arrives. */
export function watchTurbo(onceward: Onceward): void {
  // Turbo dispatches the event on the document if the form was removed.
  document.addEventListener(
    "turbo:submit-end",
    (event) => {
      const { formSubmission, fetchResponse } = (event as CustomEvent<Detail>).detail;
      reportResponse(onceward, formSubmission.formElement, formSubmission.body, fetchResponse?.response ?? null);
    },
    true,
  );
}

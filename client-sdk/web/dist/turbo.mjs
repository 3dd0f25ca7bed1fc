// src/wire_contract.ts
var FIELD = "_onceward";

// src/token_field.ts
function findField(form) {
  return form.querySelector(`input[name="${FIELD}"]`);
}

// src/form_response.ts
function reportResponse(onceward, form, sent, response) {
  if (!(form instanceof HTMLFormElement)) return;
  const field = findField(form);
  if (!field || field.value == sent?.get?.(FIELD)) onceward.answered(form, response);
}

// src/turbo.ts
function watchTurbo(onceward) {
  document.addEventListener(
    "turbo:submit-end",
    (event) => {
      const { formSubmission, fetchResponse } = event.detail;
      reportResponse(onceward, formSubmission.formElement, formSubmission.body, fetchResponse?.response ?? null);
    },
    true
  );
}
export {
  watchTurbo
};

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

// src/htmx.ts
var URLS = ["hx-post", "hx-put", "hx-patch"].flatMap((name) => [name, `data-${name}`]);
function watchHtmx(onceward, { forms } = {}) {
  const marked = forms == "all" ? "" : "[data-onceward]";
  const selector = URLS.map((name) => `form${marked}[${name}]:not([method])`).join();
  const find = () => document.querySelectorAll(selector).forEach(describe);
  new MutationObserver(find).observe(document, { childList: true, subtree: true });
  find();
  const on = (name, report) => document.addEventListener(`htmx:${name}`, (event) => report(event.detail), true);
  const report2 = ({ elt, xhr, requestConfig }, response) => xhr && reportResponse(onceward, elt, requestConfig?.formData, response);
  const report4 = ({ ctx }, response) => ctx && reportResponse(onceward, ctx.sourceElement, ctx.request.body, response);
  on("beforeOnLoad", (detail) => report2(detail, responseOf(detail.xhr)));
  for (const name of ["sendError", "sendAbort", "timeout"]) on(name, (detail) => report2(detail, null));
  on("after:request", (detail) => report4(detail, detail.ctx?.response?.raw ?? null));
  on("error", (detail) => detail.ctx?.text ?? report4(detail, null));
}
function describe(form) {
  const name = URLS.find((name2) => form.hasAttribute(name2));
  if (!form.hasAttribute("action")) form.setAttribute("action", form.getAttribute(name));
  form.setAttribute("method", "post");
}
function responseOf(xhr) {
  const lines = xhr.getAllResponseHeaders().trim().split(/\r?\n/).filter(Boolean);
  const headers = lines.map((line) => line.split(/: ?(.*)/s, 2));
  return new Response(null, { status: xhr.status, headers });
}
export {
  watchHtmx
};

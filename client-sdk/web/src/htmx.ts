// Forms sent by htmx 2 and 4: guards `<form hx-post="…">`, and reports each response when it arrives. Importing this module has no side effects.

import { reportResponse } from "./form_response.js";
import type { Onceward, Options } from "./index.js";

/** The attributes that name the URL of a form with a body. */
const URLS = ["hx-post", "hx-put", "hx-patch"].flatMap((name) => [name, `data-${name}`]);

/** Members of the events of htmx 2 (`elt`, `xhr`, `requestConfig`) and of htmx 4 (`ctx`). */
interface Detail {
  elt?: Element;
  xhr?: XMLHttpRequest;
  requestConfig?: { formData: FormData };
  ctx?: { sourceElement: Element; request: { body: unknown }; response?: { raw: Response }; text?: string };
}

/**
 * Guards the forms that htmx sends: each `form[hx-post]` (`hx-put`, `hx-patch`) with `data-onceward`, or each of them with `forms: "all"`, gets
 * `method="post"` and the URL as `action`. A form recovers as soon as its response arrives.
 */
export function watchHtmx(onceward: Onceward, { forms }: Pick<Options, "forms"> = {}): void {
  const marked = forms == "all" ? "" : "[data-onceward]";
  const selector = URLS.map((name) => `form${marked}[${name}]:not([method])`).join();
  const find = () => document.querySelectorAll<HTMLFormElement>(selector).forEach(describe);
  new MutationObserver(find).observe(document, { childList: true, subtree: true });
  find();
  const on = (name: string, report: (detail: Detail) => void) =>
    document.addEventListener(`htmx:${name}`, (event) => report((event as CustomEvent<Detail>).detail), true);
  const report2 = ({ elt, xhr, requestConfig }: Detail, response: Response | null) =>
    xhr && reportResponse(onceward, elt, requestConfig?.formData, response);
  const report4 = ({ ctx }: Detail, response: Response | null) =>
    ctx && reportResponse(onceward, ctx.sourceElement, ctx.request.body, response);
  on("beforeOnLoad", (detail) => report2(detail, responseOf(detail.xhr!)));
  for (const name of ["sendError", "sendAbort", "timeout"]) on(name, (detail) => report2(detail, null));
  on("after:request", (detail) => report4(detail, detail.ctx?.response?.raw ?? null));
  // An error after the response was read does not change the outcome.
  on("error", (detail) => detail.ctx?.text ?? report4(detail, null));
}

/** Tells the core where htmx sends this form. */
function describe(form: HTMLFormElement): void {
  const name = URLS.find((name) => form.hasAttribute(name))!;
  if (!form.hasAttribute("action")) form.setAttribute("action", form.getAttribute(name)!);
  form.setAttribute("method", "post");
}

/** Returns the status and the headers of a response. */
function responseOf(xhr: XMLHttpRequest): Response {
  const lines = xhr.getAllResponseHeaders().trim().split(/\r?\n/).filter(Boolean);
  const headers = lines.map((line) => line.split(/: ?(.*)/s, 2) as [string, string]);
  return new Response(null, { status: xhr.status, headers });
}

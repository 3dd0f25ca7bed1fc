// src/react.ts
import { useCallback, useState } from "react";

// src/wire_contract.ts
var TOKEN = "onceward-token";
var FIELD = "_onceward";

// src/digest.ts
function digest(data, target) {
  const entries = [target];
  for (const [name, value] of data) {
    if (name == FIELD) continue;
    entries.push(name, typeof value == "string" ? value : [value.name, value.size, value.lastModified]);
  }
  return hash(JSON.stringify(entries));
}
function hash(text) {
  return [...text].reduce((hash2, char) => Math.imul(hash2 ^ char.codePointAt(0), 16777619), 0);
}

// src/component_submit.ts
import { createOnceward } from "./onceward.mjs";

// src/retry_rules.ts
var DOUBLE_CLICK = 1e3;

// src/shared_calls.ts
function sharedCalls() {
  const calls = /* @__PURE__ */ new Map();
  return (owner, content, begin, form) => {
    const last = calls.get(owner);
    if (last?.content == content) return last.result;
    const call = { content, result: begin() };
    calls.set(owner, call);
    const click = form && new Promise((go) => {
      setTimeout(go, DOUBLE_CLICK);
      ["input", "reset"].forEach((name) => form.addEventListener(name, go, { once: true }));
    });
    const end = () => calls.get(owner) == call && calls.delete(owner);
    Promise.all([call.result, click]).then(end, end);
    return call.result;
  };
}

// src/component_submit.ts
function componentSubmit(show) {
  const share = sharedCalls();
  let onceward;
  let inFlight;
  let token = null;
  let open;
  async function run(url, { method = "POST", headers, action, ...settings }, body, content, type) {
    const { fetch = (...call) => globalThis.fetch(...call) } = settings;
    const seen = (request, init2) => {
      token = request.headers?.get(TOKEN) ?? token;
      return fetch(request, init2);
    };
    onceward ??= createOnceward({ ...settings, fetch: seen });
    const sent = new Headers(headers);
    if (type && !sent.has("content-type")) sent.set("content-type", type);
    const isRepeated = open == content && token;
    if (isRepeated) sent.set(TOKEN, isRepeated);
    const init = { method, headers: sent, body: body ?? null, ...action && { action } };
    const result = await onceward.fetch(url, init).catch((error) => ({ outcome: "rejected", error }));
    open = result.outcome == "unknown" ? content : void 0;
    if (isRepeated && result.outcome == "rejected") result.outcome = "unknown";
    return result;
  }
  return (url, options, given) => {
    const event = given && "preventDefault" in given ? given : void 0;
    event?.preventDefault();
    const element = event?.currentTarget ?? event?.target ?? void 0;
    const { body, type } = event ? { body: fieldsOf(element, event), type: void 0 } : bodyOf(given);
    const content = digest(isEntries(body) ? body : new FormData(), [`${url}`, isEntries(body) ? "" : body]);
    const begin = () => {
      show({ pending: true });
      return inFlight = run(url, options, body, content, type).then((result) => {
        inFlight = void 0;
        show({ pending: false, result: copyOf(result) });
        return result;
      });
    };
    return (inFlight ?? share(element ?? begin, content, begin, element)).then(copyOf);
  };
}
function fieldsOf(form, event) {
  if (!(form instanceof HTMLFormElement)) return;
  const { submitter } = event.nativeEvent ?? event;
  const data = new FormData(form, submitter);
  data.delete(FIELD);
  return data;
}
function bodyOf(given) {
  const isJson = given && [Object.prototype, Array.prototype, null].includes(Object.getPrototypeOf(given));
  return isJson ? { body: JSON.stringify(given), type: "application/json" } : { body: given };
}
function isEntries(body) {
  return body instanceof FormData || body instanceof URLSearchParams;
}
function copyOf(result) {
  return { ...result, response: result.response?.clone() };
}

// src/react.ts
var NONE = {};
function useSubmission(url, options = NONE) {
  const [state, show] = useState({ pending: false });
  const [send] = useState(() => componentSubmit(show));
  const submit = useCallback((given) => send(url, options, given), [send, url, options]);
  return { ...state, submit };
}
export {
  useSubmission
};

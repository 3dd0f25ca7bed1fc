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

// src/body_digest.ts
var streams = 0;
var LARGE = 16 << 20;
function digestOf(body, target) {
  const fields = new FormData();
  const compared = [];
  if (body instanceof FormData || body instanceof URLSearchParams) {
    for (const [name, value] of body) {
      if (typeof value == "string") fields.append(name, value);
      else compared.push(name, comparable(value));
    }
  } else compared.push(comparable(body));
  const finish = (compared2) => digest(fields, [...target, ...compared2]);
  return compared.some((part) => part instanceof Promise) ? Promise.all(compared).then(finish) : finish(compared);
}
function comparable(body) {
  if (body instanceof ReadableStream) return [++streams];
  if (body instanceof Blob) return comparableBlob(body);
  if (ArrayBuffer.isView(body)) return [hashOf(new Uint8Array(body.buffer, body.byteOffset, body.byteLength))];
  if (body instanceof ArrayBuffer) return [hashOf(new Uint8Array(body))];
  return body;
}
function comparableBlob(blob) {
  const { name, type, size, lastModified } = blob;
  if (!size) return [name, type];
  if (name && name != "blob" && size > LARGE) return [name, size, lastModified];
  return blob.arrayBuffer().then((bytes) => [name, type, hashOf(new Uint8Array(bytes))]);
}
function hashOf(bytes) {
  return [bytes.length, bytes.reduce((hash2, byte) => Math.imul(hash2 ^ byte, 16777619), 0)];
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
    if (last?.[0] == content) return last[1];
    const result = begin();
    const call = [content, result];
    calls.set(owner, call);
    const click = form && new Promise((go) => {
      setTimeout(go, DOUBLE_CLICK);
      ["input", "reset"].forEach((name) => form.addEventListener(name, go, { once: true }));
    });
    const end = () => calls.get(owner) == call && calls.delete(owner);
    Promise.all([result, click]).then(end, end);
    return result;
  };
}

// src/component_submit.ts
function componentSubmit(show) {
  const share = sharedCalls();
  const component = new EventTarget();
  const open = /* @__PURE__ */ new Map();
  let last = Promise.resolve();
  const tokens = /* @__PURE__ */ new Map();
  async function run(url, { method = "POST", headers, action, ...settings }, { body, type, content }) {
    const { fetch = (...call) => globalThis.fetch(...call) } = settings;
    const earlier = tokens.get(content);
    let token = null;
    const seen = (request, init) => {
      token = request.headers?.get(TOKEN) ?? token;
      return fetch(request, init);
    };
    let result;
    try {
      const sent = new Headers(headers);
      if (type && !sent.has("content-type")) sent.set("content-type", type);
      if (earlier) sent.set(TOKEN, earlier);
      const init = { method, headers: sent, body: body ?? null, ...action && { action } };
      result = await createOnceward({ ...settings, fetch: seen }).fetch(url, init);
    } catch (error) {
      result = { outcome: "rejected", error };
    }
    if (earlier && result.outcome == "rejected") result.outcome = "unknown";
    const kept = token ?? earlier;
    if (result.outcome == "unknown" && kept) tokens.set(content, kept);
    else tokens.delete(content);
    return result;
  }
  function begin(send, content) {
    show({ pending: true });
    const result = last.then(send).then((result2) => {
      open.delete(content);
      show({ pending: open.size > 0, result: copyOf(result2) });
      return result2;
    });
    open.set(content, result);
    last = result;
    return result;
  }
  return async (url, options, given) => {
    const event = eventOf(given);
    event?.preventDefault();
    const element = event?.currentTarget ?? event?.target ?? void 0;
    let sent;
    try {
      const { body, type } = event ? { body: fieldsOf(element, event), type: void 0 } : bodyOf(given);
      const content = digestOf(body, [options.method, `${url}`]);
      sent = { body, type, content: content instanceof Promise ? await content : content };
    } catch (error) {
      const result = { outcome: "rejected", error };
      show({ pending: open.size > 0, result });
      return result;
    }
    const start = () => begin(() => run(url, options, sent), sent.content);
    const owner = element ?? component;
    return copyOf(await (open.get(sent.content) ?? share(owner, sent.content, start, owner)));
  };
}
function eventOf(given) {
  return typeof given == "object" && given && "preventDefault" in given ? given : void 0;
}
function fieldsOf(form, event) {
  if (!(form instanceof HTMLFormElement)) return;
  const { submitter } = event.nativeEvent ?? event;
  const data = new FormData(form, submitter);
  data.delete(FIELD);
  return data;
}
function bodyOf(given) {
  if (given === void 0 || given === null) return { body: void 0 };
  const isBody = typeof given == "string" || ArrayBuffer.isView(given) || [FormData, URLSearchParams, Blob, ArrayBuffer, ReadableStream].some((type) => given instanceof type);
  return isBody ? { body: given } : { body: JSON.stringify(given), type: "application/json" };
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

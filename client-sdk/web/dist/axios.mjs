// src/axios.ts
import { getAdapter } from "axios";

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

// src/axios.ts
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

// src/axios.ts
function guardAxios(instance, { onceward, ...options } = {}) {
  const clicks = /* @__PURE__ */ new WeakMap();
  instance.interceptors.request.use(
    (config) => {
      if (!globalThis.location || /^(get|head|options)$/i.test(config.method) || typeof config.adapter == "function") return config;
      const origins = [location.href, options.baseUrl ?? "", ...options.origins ?? []].map(originOf);
      if (!origins.includes(originOf(instance.getUri(config)))) return config;
      const form = formOf(config.data);
      config.adapter = (config2) => adapt(config2, form);
      return config;
    },
    null,
    // Called in the submit event.
    { synchronous: true }
  );
  function adapt({ ...config }, form) {
    const { data, headers, onceward: settings, method } = config;
    const field = data?.get?.(FIELD);
    if (field) headers.set(TOKEN, field);
    const call = async (request) => {
      const begin = () => send(options, request, settings);
      const { result, token } = await (form ? clicksOf(form)(`${method} ${request.url}`, await digestOf(data, []), begin, form) : begin());
      if (settings?.outcome == "unknown" && result.outcome == "rejected") result.outcome = "unknown";
      config.onceward = { ...settings, outcome: result.outcome };
      if (token && result.outcome != "rejected") headers.set(TOKEN, token);
      const response = result.response?.clone();
      const page = onceward ?? globalThis.onceward;
      if (field && page) reportResponse(page, form, data, response ?? null);
      if (!response) throw result.error;
      return response;
    };
    config.fetchOptions = { ...config.fetchOptions, call };
    return getAdapter("fetch", { env: { ...config.env, fetch: callOf } })(config);
  }
  function clicksOf(form) {
    let share = clicks.get(form);
    if (!share) clicks.set(form, share = sharedCalls());
    return share;
  }
  return instance;
}
function callOf(request, init) {
  return init.call(request);
}
async function send(options, request, { key, action } = {}) {
  const { fetch = (...call) => globalThis.fetch(...call) } = options;
  let token = null;
  let isSent = false;
  const seen = (attempt, init2) => {
    token = attempt.headers?.get(TOKEN) ?? token;
    isSent ||= attempt instanceof Request;
    return fetch(attempt, init2);
  };
  const { url, method, headers, credentials, signal } = request;
  const body = await request.blob();
  const init = { method, headers, credentials, signal, body: body.size ? body : null, ...key && { key }, ...action && { action } };
  const result = await createOnceward({ ...options, fetch: seen }).fetch(url, init).catch((error) => {
    return { outcome: isSent ? "unknown" : "rejected", error };
  });
  return { result, token: token ?? void 0 };
}
function formOf(data) {
  const { type, target } = globalThis.event ?? {};
  const form = data instanceof HTMLFormElement ? data : type == "submit" && target;
  return form instanceof HTMLFormElement ? form : void 0;
}
function originOf(url) {
  return new URL(url, location.href).origin;
}
export {
  guardAxios
};

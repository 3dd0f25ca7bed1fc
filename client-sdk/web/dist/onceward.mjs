// src/wire_contract.ts
var TOKEN = "onceward-token";
var IDEMPOTENCY_KEY = "idempotency-key";
var IDEMPOTENT_REPLAYED = "idempotent-replayed";
var OUTCOME = "onceward-outcome";
var RETRY = "onceward-retry";
var RETRY_AFTER = "retry-after";
var FIELD = "_onceward";

// src/digest.ts
function digest(data, target2) {
  const entries = [target2];
  for (const [name, value] of data) {
    if (name == FIELD) continue;
    entries.push(name, typeof value == "string" ? value : [value.name, value.size, value.lastModified]);
  }
  return hash(JSON.stringify(entries));
}
function hash(text) {
  return [...text].reduce((hash2, char) => Math.imul(hash2 ^ char.codePointAt(0), 16777619), 0);
}

// src/form_status.ts
var messages = {
  offline: "You are offline. Nothing was sent.",
  noToken: "The server is not available. Nothing was sent.",
  slow: "No response yet. It is safe to send it again.",
  twice: "You have sent this before.",
  unknown: "Your earlier submission may have arrived.",
  confirm: "Send this as well"
};
function showState(form, state) {
  if (!state && !form.dataset.oncewardState) return;
  form.ariaBusy = state ? `${/ing$/.test(state)}` : null;
  if (state) form.dataset.oncewardState = state;
  else delete form.dataset.oncewardState;
}
function showMessage(form, text, label, confirm) {
  let place = form.querySelector("[data-onceward-message]");
  if (!place) {
    if (!text) return;
    form.append(place = document.createElement("p"));
    place.dataset.oncewardMessage = "";
  }
  place.role = "alert";
  place.textContent = text;
  if (confirm) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.onclick = confirm;
    place.append(" ", button);
  }
}
function dispatch(form, name, detail) {
  return form.dispatchEvent(new CustomEvent(`onceward:${name}`, { bubbles: true, cancelable: true, detail }));
}

// src/retry_rules.ts
var UNANSWERED = "ask keep ask";
var TOKEN_CHOICES = {
  doubt: "ask ask ask",
  seen: "fresh ask ask",
  again: "fresh keep fresh",
  final: "fresh fresh fresh"
};
function chooseToken(ended, isSame, isExpired) {
  return (TOKEN_CHOICES[ended] ?? UNANSWERED).split(" ")[isSame ? +isExpired + 1 : 0];
}
var DOUBLE_CLICK = 1e3;
function isSameClick(gap, isByHand, isAnswered) {
  return gap < DOUBLE_CLICK && (isByHand || isAnswered);
}
function endOfAttempt(status, outcome, wasLost) {
  const said = `${status} ${outcome}`;
  if (/^[23].* (redeemed)?$/.test(said)) return "final";
  const ended = / (st|ov)|^5.* una|^[^4].* not_a/.test(said) ? "again" : / ([bklm]|t(?!oken_u)|ra|redeem_|un[as]|not_)|^([234]|50[013]).* (e|repla|unp)|^4(?!09).* (red|$)|50[01] $/.test(said) ? "final" : /^5.* $/.test(said) ? "none" : "doubt";
  if (!wasLost) return ended;
  return /ag|no/.test(ended) ? "lost" : isHandlers(outcome) ? ended : "doubt";
}
function isRejection(outcome) {
  return !isHandlers(outcome) && !/^(redeemed)?$/.test(outcome);
}
function isHandlers(outcome) {
  return /^(e|repla|un[kp]|not_[ar])/.test(outcome);
}
function nextStep(attempts, mayRepeat) {
  const last = attempts.at(-1);
  const code = last?.code;
  const retry = last ? last.retry : "same";
  const isUsed = /_used|soon/.test(code);
  const isOpen = attempts.some((attempt) => !attempt || attempt.code == "in_progress" || isUsed && attempt.retry == "same");
  if (/kept/.test(code)) return "duplicate";
  if (/^int|outc|m_[tf]/.test(code) || isOpen && code == "locked") return "unknown";
  if (mayRepeat && (retry == "same" || retry == "new_token" && attempts.every((attempt) => attempt?.retry == retry))) return retry;
  if (isOpen) return "unknown";
  return isUsed ? "duplicate" : /^([bklm]|to|ra|re|st|ov|cl|no|up|un[as])/.test(code) ? "rejected" : "unknown";
}

// src/history.ts
var PREFIX = "onceward";
function nameOf(form) {
  return [PREFIX, location.pathname, form.getAttribute("id") ?? [...document.forms].indexOf(form)].join();
}
function load(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
  }
}
function save(name, value) {
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch {
  }
}
function saveResponsePage(name, page) {
  save(PREFIX, { name, page });
}
function timingOutcome({ serverTiming }) {
  return serverTiming?.filter(({ name }) => name == PREFIX).at(-1)?.description ?? "";
}
function recordResponsePage() {
  const responsePage = load(PREFIX);
  const lastAttempt = responsePage && load(responsePage.name);
  const [entry] = performance.getEntriesByType("navigation");
  const status = entry?.responseStatus;
  if (lastAttempt && status && responsePage.page == navigation.activation?.from?.id + location.href) {
    save(responsePage.name, { ...lastAttempt, ended: endOfAttempt(status, timingOutcome(entry), lastAttempt.ended == "doubt") });
  }
}

// src/token.ts
function isFresh(timed) {
  return !!timed && Date.now() < timed.until - timed.life / 5;
}
function sleep(millis) {
  return new Promise((go) => setTimeout(go, millis));
}
function backoff(response, attempts) {
  return +response?.headers.get(RETRY_AFTER) * 1e3 || Math.random() * 250 * 2 ** attempts;
}
function timeoutSignal(limit, ...others) {
  return AbortSignal.any([AbortSignal.timeout(limit), ...others]);
}
async function fetchToken(fetch, url, action, limit, ...outer) {
  const deadline = Date.now() + limit;
  const signal = timeoutSignal(limit, ...outer);
  const init = { method: "POST", signal };
  if (action) {
    init.headers = { "content-type": "application/json" };
    init.body = JSON.stringify({ action });
  }
  const here = globalThis.location?.origin;
  let cause;
  let isReached;
  for (let attempts = 1; ; attempts++) {
    let response;
    try {
      response = await fetch(url, init);
      isReached = 0;
      const { token, expires_in } = await response.json();
      const life = expires_in * 1e3;
      if (token && life > 0) return { token, until: Date.now() + life, life };
    } catch {
      outer[0]?.throwIfAborted();
      if (isReached) cause ??= `${here} is not in cors_origins`;
      else if (here && here != url.origin && !response) isReached = await fetch(url, { mode: "no-cors", signal }).catch(() => {
      });
    }
    const status = response?.status ?? 503;
    const wait = backoff(response, attempts);
    const isHopeless = cause || status < 500 && status != 429 || globalThis.navigator?.onLine === false;
    if (isHopeless || Date.now() + wait > deadline) {
      const error = Error(`Onceward: no token from ${url}: ${cause ?? status}`, { cause });
      if (cause) console.error(error);
      throw error;
    }
    await sleep(wait);
  }
}

// src/submission.ts
var MAX_ATTEMPTS = 4;
async function submit({ fetch, token, limit }, request, init) {
  const headers = new Headers(request.headers);
  const deadline = Date.now() + limit;
  const signal = timeoutSignal(limit, request.signal);
  const isOwn = headers.has(TOKEN) || headers.has(IDEMPOTENCY_KEY);
  if (init.key && !isOwn) headers.set(IDEMPOTENCY_KEY, init.key);
  const isSafe = /^(GE|HE|OP)/.test(request.method);
  let needsToken = !isSafe && !isOwn && !init.key;
  const attempts = [];
  for (; ; ) {
    let response;
    let problem;
    let error;
    try {
      if (needsToken) headers.set(TOKEN, (await token(init.action, signal)).token);
      needsToken = false;
      response = await fetch(new Request(request.clone(), { headers, signal }));
      const said = outcomeOf(response);
      problem = await problemOf(response, said);
      const isGateways = !isHandlers(said) && /50[234]/.test(response.status);
      if (isSafe || !(problem || isGateways)) {
        return { outcome: said == "unknown" ? said : response.headers.get(IDEMPOTENT_REPLAYED) ? "replayed" : "executed", response };
      }
    } catch (thrown) {
      request.signal.throwIfAborted();
      error = thrown;
      if (needsToken) return { outcome: "rejected", error };
    }
    attempts.push(problem);
    const wait = backoff(response, attempts.length);
    const mayRepeat = attempts.length < MAX_ATTEMPTS && Date.now() + wait < deadline && !(isOwn && problem?.retry == "new_token");
    const step = nextStep(attempts, mayRepeat);
    if (step == "same") await sleep(wait);
    else if (!(needsToken = step == "new_token")) return { outcome: step, response, problem, error };
  }
}
async function problemOf(response, outcome) {
  const retry = response.headers.get(RETRY);
  const code = retry ? outcome.replace(/^not_[ar].*/, "upstream_unavailable") : outcome;
  if (code ? !isRejection(code) : response.ok) return;
  const body = await response.clone().json().catch(() => {
  });
  return code ? { ...body, code, retry: retry ?? body?.retry } : body?.retry && body;
}
function outcomeOf(response) {
  return response.headers.get(OUTCOME) ?? "";
}

// src/target.ts
function attribute(form, submitter, name) {
  return submitter?.getAttribute("form" + name) ?? form.getAttribute(name) ?? "";
}
function target(form, submitter) {
  const url = new URL(attribute(form, submitter, "action") || location.href, document.baseURI);
  url.searchParams.delete(FIELD);
  return url;
}
function bare(address) {
  try {
    const { origin, pathname } = new URL(address, document.baseURI);
    return origin + pathname;
  } catch {
  }
}
function addresses(form, submitter) {
  return [form, submitter].flatMap(
    (element) => (
      // Not by `attributes`: a field may have that name. A value that starts with # is an anchor for a script.
      element?.getAttributeNames().map((name) => {
        const value = element.getAttribute(name);
        return /(action|post|put|patch|delete)$/.test(name) && /^[^#]/.test(value) && bare(value);
      })
    )
  );
}

// src/token_field.ts
function findField(form) {
  return form.querySelector(`input[name="${FIELD}"]`);
}
function writeToField(form, token) {
  const field = findField(form) ?? document.createElement("input");
  field.type = "hidden";
  field.name = FIELD;
  field.value = token;
  field.disabled = false;
  form.prepend(field);
}
function omitToken(form) {
  const field = findField(form);
  if (!field) return;
  field.disabled = true;
  setTimeout(() => field.disabled = false);
}
function writeToQuery(form, submitter, url, token) {
  url.searchParams.set(FIELD, token);
  if (submitter?.hasAttribute("formaction")) submitter.setAttribute("formaction", url.href);
  else form.setAttribute("action", url.href);
}

// src/form_controller.ts
function createFormController(form, { token, isAllowedOrigin, patience }) {
  const name = nameOf(form);
  const rendered = findField(form);
  const life = +rendered?.dataset.expiresIn * 1e3;
  let spare;
  let fetching;
  let lastAttempt;
  let sending;
  let isWaiting = false;
  let isBarred = false;
  let sent;
  let named;
  let isTouched = false;
  let isAnswered = true;
  let isUnheard = false;
  let wasUnheard = false;
  let tells = false;
  let isConfirmed = false;
  let isOnline = false;
  function fetch() {
    return fetching ??= token(form.dataset.oncewardAction).then((fetched) => {
      spare = fetched;
      isBarred = false;
      setTimeout(renew, fetched.life * 0.8);
      if (!isWaiting && !sending) showIdleStateUnlessAsking();
      dispatch(form, "ready");
    }).finally(() => fetching = void 0);
  }
  function ensureToken() {
    if (isFresh(spare) || sending || isWaiting) return;
    showIdleStateUnlessAsking();
    if (!isLeftAlone() && !isBarred && !document.hidden) fetch().catch(({ cause }) => isBarred = !!cause);
  }
  function renew() {
    if (spare && form.isConnected) ensureToken();
  }
  function isLeft(submitter) {
    try {
      return !/^post$/i.test(attribute(form, submitter, "method")) || !isAllowedOrigin(target(form, submitter).origin);
    } catch {
      return true;
    }
  }
  function isLeftAlone() {
    return [null, ...form].every(isLeft);
  }
  function submit2(event, gesture) {
    const { submitter, defaultPrevented } = event;
    if (defaultPrevented) return;
    if (isLeft(submitter)) return omitToken(form);
    if (sending?.defaultPrevented) handOver();
    const known = load(name);
    if (lastAttempt?.ended == "again" && known?.token == lastAttempt.token) lastAttempt = known;
    const url = target(form, submitter);
    const content = digest(new FormData(form, submitter), url);
    const isSame = lastAttempt?.digest == content;
    const isClicked = !isTouched && isSameClick((gesture ?? event).timeStamp - sent?.timeStamp, !!gesture, isAnswered);
    if (isWaiting || isSame && (sending || isClicked)) {
      stop(event);
      return void dispatch(form, "duplicate");
    }
    const choice = lastAttempt && !isConfirmed ? chooseToken(lastAttempt.ended, isSame, lastAttempt.until < Date.now()) : "fresh";
    if (choice == "ask") return ask(event, lastAttempt.ended);
    const chosen = choice == "keep" ? lastAttempt : isFresh(spare) && spare;
    if (chosen && (navigator.onLine || isOnline)) send(event, chosen, content, url);
    else holdUntilToken(event);
  }
  function send(event, { token: token2, until }, content, url) {
    const { submitter } = event;
    writeToField(form, token2);
    named = [bare(url.href), ...addresses(form, submitter)];
    if (form.dataset.onceward == "query") writeToQuery(form, submitter, url, token2);
    const isRepeated = token2 == lastAttempt?.token;
    const wasLost = isRepeated && isOpen();
    wasUnheard = isRepeated && isUnheard;
    isUnheard = true;
    remember({ token: token2, until, digest: content, ended: wasLost ? "lost" : "none" });
    if (token2 == spare?.token) spare = void 0;
    sending = sent = event;
    isTouched = isAnswered = false;
    showMessage(form, "");
    showState(form, "sending");
    const isElsewhere = !/^(_self)?$/i.test(attribute(form, submitter, "target"));
    setTimeout(() => {
      if (sending != event) return;
      if (event.defaultPrevented) return handOver();
      setTimeout(
        () => {
          if (sending != event) return;
          recover();
          if (!isElsewhere) showMessage(form, messages.slow);
        },
        isElsewhere ? DOUBLE_CLICK : patience
      );
    });
  }
  function handOver() {
    if (lastAttempt?.ended == "none") end("again");
    recover();
  }
  async function holdUntilToken(event) {
    const wasConfirmed = isConfirmed;
    stop(event);
    isWaiting = true;
    showMessage(form, "");
    showState(form, "waiting");
    try {
      await fetch();
    } catch (error) {
      const { cause } = error;
      return fail(navigator.onLine ? messages.noToken + (cause ? ` ${cause}.` : "") : messages.offline, error);
    }
    recover();
    resubmit(event, wasConfirmed, true);
  }
  function resubmit({ submitter }, confirmed, online) {
    isConfirmed = confirmed;
    isOnline = online;
    form.requestSubmit(currentSubmitter(submitter));
    isConfirmed = isOnline = false;
  }
  function currentSubmitter(submitter) {
    return submitter?.form == form ? submitter : null;
  }
  function ask(event, ended) {
    stop(event);
    showState(form, "unknown");
    const confirm = () => {
      showMessage(form, "");
      resubmit(event, true, false);
    };
    const isSeen = ended == "seen";
    if (dispatch(form, isSeen ? "duplicate" : "unknown", { confirm })) {
      showMessage(form, isSeen ? messages.twice : messages.unknown, messages.confirm, confirm);
    }
  }
  function fail(message, error) {
    recover("error");
    if (dispatch(form, "error", { message, error })) showMessage(form, message);
  }
  function stop(event) {
    event.preventDefault();
    event.stopImmediatePropagation();
  }
  function recover(state) {
    sending = void 0;
    isWaiting = false;
    showIdleState(state);
  }
  function showIdleState(state = isFresh(spare) ? "ready" : "idle") {
    refill();
    showState(form, isLeftAlone() ? void 0 : state);
  }
  function showIdleStateUnlessAsking() {
    if (form.dataset.oncewardState != "unknown") showIdleState();
  }
  function refill() {
    if (isFresh(spare) && !awaitsResponse() && findField(form)?.value != spare.token) writeToField(form, spare.token);
  }
  function awaitsResponse() {
    return !!sent && !isAnswered && lastAttempt.ended != "final";
  }
  function remember(what) {
    save(name, lastAttempt = what);
  }
  function end(ended) {
    if (lastAttempt) remember({ ...lastAttempt, ended });
    refill();
  }
  function isOpen() {
    return /none|lost/.test(lastAttempt?.ended);
  }
  function reset() {
    lastAttempt = load(name) ?? lastAttempt;
    sent = void 0;
    recover();
    if (lastAttempt || form.contains(document.activeElement)) ensureToken();
  }
  if (life && rendered.value != load(name)?.token) spare = { token: rendered.value, until: performance.timeOrigin + life, life };
  reset();
  return {
    reset,
    ensureToken,
    renew,
    touch() {
      isTouched = true;
      ensureToken();
    },
    submit: submit2,
    awaitsResponse,
    attemptToken() {
      if (!awaitsResponse()) return;
      const button = currentSubmitter(sent.submitter);
      if (sending || lastAttempt.digest == digest(new FormData(form, button), target(form, button))) return lastAttempt.token;
    },
    requestEnded(entry) {
      const { initiatorType, name: name2, startTime, responseStatus = 200 } = entry;
      const isResponse = sent?.defaultPrevented && startTime >= sent.timeStamp && /^(fe|x)/.test(initiatorType) && responseStatus;
      const isAwaited = isResponse && !tells && /o[ns]|ag/.test(lastAttempt.ended);
      if (!isAwaited || !named.includes(bare(name2))) return;
      isUnheard = false;
      end(endOfAttempt(responseStatus, timingOutcome(entry), wasUnheard || lastAttempt.ended == "lost"));
    },
    answered(response) {
      tells = true;
      isAnswered = !!response;
      const wasLost = lastAttempt?.ended == "lost";
      end(response ? endOfAttempt(response.status, outcomeOf(response), wasLost) : wasLost ? "lost" : "none");
      ensureToken();
    },
    leavePage(page) {
      if (!isOpen()) return;
      showMessage(form, "");
      end(lastAttempt.ended == "lost" ? "doubt" : "seen");
      saveResponsePage(name, page);
    }
  };
}

// src/page_forms.ts
function pageForms(context, isAll) {
  const selector = `form${isAll ? "" : "[data-onceward]"}:not([data-onceward=off])`;
  const forms = /* @__PURE__ */ new Map();
  let isForm = false;
  let last;
  let gesture;
  function controllerOf(form) {
    let controller = forms.get(form);
    if (!controller) forms.set(form, controller = createFormController(form, context));
    return controller;
  }
  function watch() {
    const find = () => {
      document.querySelectorAll(selector).forEach(controllerOf);
      forms.forEach((controller, form) => form.isConnected || controller.awaitsResponse() || forms.delete(form));
    };
    const on = (name, act) => addEventListener(name, act, true);
    recordResponsePage();
    globalThis.navigation?.addEventListener("navigate", ({ formData }) => isForm = !!formData);
    on("pageswap", ({ activation }) => {
      const isAnswer = isForm && activation && /push|replace/.test(activation.navigationType);
      if (isAnswer) last?.leavePage(navigation.currentEntry.id + activation.entry.url);
    });
    on("pageshow", ({ persisted }) => persisted && forms.forEach((form) => form.reset()));
    on("visibilitychange", () => forms.forEach((form) => form.renew()));
    on("focusin", (event) => controllerFor(event)?.ensureToken());
    ["input", "reset"].forEach((name) => on(name, (event) => controllerFor(event)?.touch()));
    ["click", "keypress"].forEach(
      (name) => on(name, (event) => {
        if (!event.isTrusted) return;
        gesture = event;
        setTimeout(() => gesture = void 0);
      })
    );
    on("submit", (event) => {
      const form = controllerFor(event);
      form?.submit(event, gesture);
      if (!event.defaultPrevented) last = form;
    });
    new MutationObserver(find).observe(document, { childList: true, subtree: true });
    const requests = new PerformanceObserver(
      (list) => list.getEntries().forEach((entry) => forms.forEach((form) => form.requestEnded(entry)))
    );
    requests.observe({ type: "resource" });
    find();
  }
  function controllerFor({ target: target2 }) {
    const form = target2 instanceof HTMLFormElement ? target2 : target2.form;
    return form?.matches(selector) ? controllerOf(form) : void 0;
  }
  return { watch, all: forms };
}

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

// src/index.ts
function createOnceward(options = {}) {
  const { baseUrl = "", origins = [], fetch = (...call) => globalThis.fetch(...call), limit = 6e4, patience = 1e4 } = options;
  const tokens = new URL(baseUrl.replace(/\/?$/, "/token"), globalThis.location?.href);
  const here = globalThis.location?.href ?? tokens;
  const named = [here, tokens, ...origins].map((url) => new URL(url).origin);
  const token = (action, ...signal) => fetchToken(fetch, tokens, action, patience, ...signal);
  const isAllowedOrigin = (origin) => named.includes(origin);
  const forms = pageForms({ token, isAllowedOrigin, patience }, options.forms == "all");
  const share = sharedCalls();
  return {
    messages,
    watch: forms.watch,
    answered: (form, response) => forms.all.get(form)?.answered(response),
    async token(form) {
      const fresh = () => token(form?.dataset.oncewardAction);
      return form && forms.all.get(form)?.attemptToken() || (await share(form ?? fresh, digest(new FormData(form), 0), fresh, form)).token;
    },
    async fetch(url, init = {}) {
      const target2 = new URL(url, here);
      if (!isAllowedOrigin(target2.origin)) throw Error(`Onceward: ${target2.origin} is not in origins`);
      const [member, stay] = target2.origin == named[0] ? ["mode", "same-origin"] : ["redirect", "error"];
      const { form, key } = init;
      const body = init.body ?? (form && new FormData(form));
      if (form) body.delete?.(FIELD);
      const request = new Request(target2, { ...init, [member]: init[member] ?? stay, method: init.method ?? (form && "POST"), body });
      const send = () => submit({ fetch, token, limit }, request, init);
      if (!key && (!form || /^\[object (?!Fo)/.test(body))) return send();
      const name = request.method + target2 + key + body;
      const content = digest(body instanceof FormData ? body : new FormData(form), name);
      const shared = await share(key ? name : form, content, send, form);
      return { ...shared, response: shared.response?.clone() };
    }
  };
}
export {
  createOnceward
};

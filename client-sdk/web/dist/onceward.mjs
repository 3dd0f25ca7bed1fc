// src/wire.ts
var TOKEN = "onceward-token";
var IDEMPOTENCY_KEY = "idempotency-key";
var IDEMPOTENT_REPLAYED = "idempotent-replayed";
var OUTCOME = "onceward-outcome";
var RETRY_AFTER = "retry-after";
var FIELD = "_onceward";

// src/content.ts
function digest(data, target2) {
  const entries = [target2];
  for (const [name, value] of data) {
    if (name == FIELD) continue;
    entries.push(name, typeof value == "string" ? value : [value.name, value.size, value.lastModified]);
  }
  return hash(JSON.stringify(entries));
}
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
      // Not by `attributes`: a field may have that name. What begins with # is an anchor for a script.
      element?.getAttributeNames().map((name) => {
        const value = element.getAttribute(name);
        return /(action|post|put|patch|delete)$/.test(name) && /^[^#]/.test(value) && bare(value);
      })
    )
  );
}
function hash(text) {
  return [...text].reduce((hash2, char) => Math.imul(hash2 ^ char.codePointAt(0), 16777619), 0);
}

// src/notice.ts
var messages = {
  offline: "You are offline. Nothing was sent.",
  noToken: "The server cannot take this now. Nothing was sent.",
  slow: "No answer yet. Sending the same again is safe.",
  twice: "You have sent this before.",
  unknown: "What you sent before may have arrived.",
  confirm: "Send this as well"
};
function show(form, state) {
  if (!state && !form.dataset.oncewardState) return;
  form.ariaBusy = state ? `${/ing$/.test(state)}` : null;
  if (state) form.dataset.oncewardState = state;
  else delete form.dataset.oncewardState;
}
function say(form, text, label, confirm) {
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
function tell(form, name, detail) {
  return form.dispatchEvent(new CustomEvent(`onceward:${name}`, { bubbles: true, cancelable: true, detail }));
}

// src/field.ts
function find(form) {
  return form.querySelector(`input[name="${FIELD}"]`);
}
function fill(form, token) {
  const field = find(form) ?? document.createElement("input");
  field.type = "hidden";
  field.name = FIELD;
  field.value = token;
  field.disabled = false;
  form.prepend(field);
}
function leaveOut(form) {
  const field = find(form);
  if (!field) return;
  field.disabled = true;
  setTimeout(() => field.disabled = false);
}
function carryInQuery(form, submitter, url, token) {
  url.searchParams.set(FIELD, token);
  if (submitter?.hasAttribute("formaction")) submitter.setAttribute("formaction", url.href);
  else form.setAttribute("action", url.href);
}

// src/intent.ts
var UNANSWERED = "ask keep ask";
var CHOICES = {
  doubt: "ask ask ask",
  seen: "fresh ask ask",
  again: "fresh keep fresh",
  final: "fresh fresh fresh"
};
function choose(ended, isSame, isExpired) {
  return (CHOICES[ended] ?? UNANSWERED).split(" ")[isSame ? +isExpired + 1 : 0];
}
var DOUBLE_CLICK = 1e3;
function isSameClick(gap, isByHand, isAnswered) {
  return gap < DOUBLE_CLICK && (isByHand || isAnswered);
}
var ENDS = [
  // unknown, internal; and a duplicate: any 409 but the handler's own. After too_soon the interval decides about the next one.
  [/ (unk|int)|^409 (?!e|no|too|repla|unp)/, "doubt"],
  // not_applied, store_unavailable, overloaded, unauthorized: the token is still valid.
  [/^5.* (not_a|st|ov|una)/, "again"],
  // not_released, redeem_unknown; executed, replayed, unprotected; no outcome: no effect, and the token is used, or may be.
  [/^4| (not_r|redeem_)|50[013] (e|repla|unp)|50[01] $/, "final"],
  [/ $/, "none"]
];
function learned(status, outcome, wasLost) {
  if (status < 400) return "final";
  const ended = ENDS.find(([answer]) => answer.test(`${status} ${outcome}`))?.[1] ?? "doubt";
  if (!wasLost) return ended;
  return /ag|no/.test(ended) ? "lost" : isHandlers(outcome) ? ended : "doubt";
}
function isHandlers(outcome) {
  return /^(e|repla|un[kp]|not_[ar])/.test(outcome);
}
function nextStep(tries, mayRepeat) {
  const last = tries.at(-1);
  const code = last?.code;
  const retry = last ? last.retry : "same";
  const isUsed = /_used|soon/.test(code);
  const isOpen = tries.some((tried) => !tried || tried.code == "in_progress" || isUsed && tried.retry == "same");
  if (code == "reply_not_kept") return "duplicate";
  if (code == "outcome_unknown" || code == "internal" || isOpen && code == "locked") return "unknown";
  if (mayRepeat && (retry == "same" || retry == "new_token" && tries.every((tried) => tried?.retry == retry))) return retry;
  return isOpen ? "unknown" : isUsed ? "duplicate" : "refused";
}

// src/past.ts
var POINTER = "onceward";
function nameOf(form) {
  return [POINTER, location.pathname, form.getAttribute("id") ?? [...document.forms].indexOf(form)].join();
}
function recall(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
  }
}
function keep(name, value) {
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch {
  }
}
function point(name, page2) {
  keep(POINTER, { name, page: page2 });
}
function told({ serverTiming }) {
  return serverTiming?.filter(({ name }) => name == POINTER).at(-1)?.description ?? "";
}
function learn() {
  const pointer = recall(POINTER);
  const past = pointer && recall(pointer.name);
  const [entry] = performance.getEntriesByType("navigation");
  const status = entry?.responseStatus;
  if (past && status && pointer.page == navigation.activation?.from?.id + location.href) {
    keep(pointer.name, { ...past, ended: learned(status, told(entry), past.ended == "doubt") });
  }
}

// src/token.ts
function isGood(held) {
  return !!held && Date.now() < held.until - held.life / 5;
}
function pause(millis) {
  return new Promise((go) => setTimeout(go, millis));
}
function waitAfter(response, tries) {
  return +response?.headers.get(RETRY_AFTER) * 1e3 || Math.random() * 250 * 2 ** tries;
}
function within(limit, ...others) {
  return AbortSignal.any([AbortSignal.timeout(limit), ...others]);
}
async function fetchToken(fetch, url, action, limit, ...outer) {
  const deadline = Date.now() + limit;
  const signal = within(limit, ...outer);
  const init = { method: "POST", signal };
  if (action) {
    init.headers = { "content-type": "application/json" };
    init.body = JSON.stringify({ action });
  }
  const here = globalThis.location?.origin;
  let cause;
  let isReached = false;
  for (let tries = 1; ; tries++) {
    let response;
    try {
      response = await fetch(url, init);
      isReached = false;
      const { token, expires_in } = await response.json();
      const life = expires_in * 1e3;
      if (token && life > 0) return { token, until: Date.now() + life, life };
    } catch {
      outer[0]?.throwIfAborted();
      if (isReached) cause ??= `${here} is not in cors_origins`;
      else if (here && here != url.origin && !response) isReached = await fetch(url, { mode: "no-cors", signal }).then(() => true, () => false);
    }
    const status = response?.status ?? 503;
    const wait = waitAfter(response, tries);
    const isHopeless = cause || status < 500 && status != 429 || globalThis.navigator?.onLine === false;
    if (isHopeless || Date.now() + wait > deadline) {
      const error = Error(`Onceward: no token from ${url}: ${cause ?? status}`, { cause });
      if (cause) console.error(error);
      throw error;
    }
    await pause(wait);
  }
}

// src/submission.ts
var TRIES = 4;
async function submit({ fetch, token, limit }, request, init) {
  const headers = new Headers(request.headers);
  const deadline = Date.now() + limit;
  const signal = within(limit, request.signal);
  const isOwn = headers.has(TOKEN) || headers.has(IDEMPOTENCY_KEY);
  if (init.key && !isOwn) headers.set(IDEMPOTENCY_KEY, init.key);
  const isSafe = /^(GET|HEAD|OPTIONS)$/.test(request.method);
  let needsToken = !isSafe && !isOwn && !init.key;
  const tries = [];
  for (; ; ) {
    let response;
    let problem;
    let error;
    try {
      if (needsToken) headers.set(TOKEN, (await token(init.action, signal)).token);
      needsToken = false;
      response = await fetch(new Request(request.clone(), { headers, signal }));
      problem = await problemOf(response);
      if (isSafe || !problem && !isGateways(response)) {
        const isUnknown = outcomeOf(response) == "unknown";
        return { outcome: isUnknown ? "unknown" : response.headers.get(IDEMPOTENT_REPLAYED) ? "replayed" : "executed", response };
      }
    } catch (thrown) {
      request.signal.throwIfAborted();
      error = thrown;
      if (needsToken) return { outcome: "refused", error };
    }
    tries.push(problem);
    const wait = waitAfter(response, tries.length);
    const mayRepeat = tries.length < TRIES && Date.now() + wait < deadline && !(isOwn && problem?.retry == "new_token");
    const step = nextStep(tries, mayRepeat);
    if (step == "same") await pause(wait);
    else if (step == "new_token") needsToken = true;
    else return { outcome: step, response, problem, error };
  }
}
async function problemOf(response) {
  if (response.ok || isHandlers(outcomeOf(response))) return;
  const said = await response.clone().json().catch(() => {
  });
  return said?.retry && said;
}
function outcomeOf(response) {
  return response.headers.get(OUTCOME) ?? "";
}
function isGateways(response) {
  return /^50[234]$/.test(`${response.status}`) && !isHandlers(outcomeOf(response));
}

// src/form.ts
function guard(form, { token, isNamed, patience }) {
  const name = nameOf(form);
  const rendered = find(form);
  const life = +rendered?.dataset.expiresIn * 1e3;
  let spare;
  let fetching;
  let past;
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
    return fetching ??= token(form.dataset.oncewardAction).then((held) => {
      spare = held;
      isBarred = false;
      setTimeout(renew, held.life * 0.8);
      if (!isWaiting && !sending) settle();
      tell(form, "ready");
    }).finally(() => fetching = void 0);
  }
  function warm() {
    if (isGood(spare) || sending || isWaiting) return;
    settle();
    if (!isLeftAlone() && !isBarred && !document.hidden) fetch().catch(({ cause }) => isBarred = !!cause);
  }
  function renew() {
    if (spare && form.isConnected) warm();
  }
  function isLeft(submitter) {
    try {
      return !/^post$/i.test(attribute(form, submitter, "method")) || !isNamed(target(form, submitter).origin);
    } catch {
      return true;
    }
  }
  function isLeftAlone() {
    return [null, ...form].every((button) => isLeft(button));
  }
  function submit2(event, gesture) {
    const { submitter, defaultPrevented } = event;
    if (defaultPrevented) return;
    if (isLeft(submitter)) return leaveOut(form);
    if (sending?.defaultPrevented) handOver();
    const known = recall(name);
    if (past?.ended == "again" && known?.token == past.token) past = known;
    const url = target(form, submitter);
    const content = digest(new FormData(form, submitter), url);
    const isSame = past?.digest == content;
    const isClicked = !isTouched && isSameClick((gesture ?? event).timeStamp - sent?.timeStamp, !!gesture, isAnswered);
    if (isWaiting || isSame && (sending || isClicked)) {
      stop(event);
      return void tell(form, "duplicate");
    }
    const choice = past && !isConfirmed ? choose(past.ended, isSame, past.until < Date.now()) : "fresh";
    if (choice == "ask") return ask(event, past.ended);
    const held = choice == "keep" ? past : isGood(spare) && spare;
    if (held && (navigator.onLine || isOnline)) send(event, held, content, url);
    else hold(event);
  }
  function send(event, { token: token2, until }, content, url) {
    const { submitter } = event;
    fill(form, token2);
    named = [bare(url.href), ...addresses(form, submitter)];
    if (form.dataset.onceward == "query") carryInQuery(form, submitter, url, token2);
    const isRepeated = token2 == past?.token;
    const wasLost = isRepeated && isOpen();
    wasUnheard = isRepeated && isUnheard;
    isUnheard = true;
    note({ token: token2, until, digest: content, ended: wasLost ? "lost" : "none" });
    if (token2 == spare?.token) spare = void 0;
    sending = sent = event;
    isTouched = isAnswered = false;
    say(form, "");
    show(form, "sending");
    const isElsewhere = !/^(_self)?$/i.test(attribute(form, submitter, "target"));
    setTimeout(() => {
      if (sending != event) return;
      if (event.defaultPrevented) return handOver();
      setTimeout(
        () => {
          if (sending != event) return;
          recover();
          if (!isElsewhere) say(form, messages.slow);
        },
        isElsewhere ? DOUBLE_CLICK : patience
      );
    });
  }
  function handOver() {
    if (past?.ended == "none") end("again");
    recover();
  }
  async function hold(event) {
    const wasConfirmed = isConfirmed;
    stop(event);
    isWaiting = true;
    say(form, "");
    show(form, "waiting");
    try {
      await fetch();
    } catch (error) {
      const { cause } = error;
      return fail(navigator.onLine ? messages.noToken + (cause ? ` ${cause}.` : "") : messages.offline, error);
    }
    recover();
    again(event, wasConfirmed, true);
  }
  function again({ submitter }, confirmed, online) {
    isConfirmed = confirmed;
    isOnline = online;
    form.requestSubmit(own(submitter));
    isConfirmed = isOnline = false;
  }
  function own(submitter) {
    return submitter?.form == form ? submitter : null;
  }
  function ask(event, ended) {
    stop(event);
    show(form, "unknown");
    const confirm = () => {
      say(form, "");
      again(event, true, false);
    };
    const isSeen = ended == "seen";
    if (tell(form, isSeen ? "duplicate" : "unknown", { confirm })) {
      say(form, isSeen ? messages.twice : messages.unknown, messages.confirm, confirm);
    }
  }
  function fail(message, error) {
    recover("error");
    if (tell(form, "error", { message, error })) say(form, message);
  }
  function stop(event) {
    event.preventDefault();
    event.stopImmediatePropagation();
  }
  function recover(state) {
    sending = void 0;
    isWaiting = false;
    rest(state);
  }
  function rest(state = isGood(spare) ? "ready" : "idle") {
    refill();
    show(form, isLeftAlone() ? void 0 : state);
  }
  function settle() {
    if (form.dataset.oncewardState != "unknown") rest();
  }
  function refill() {
    if (isGood(spare) && !isOwed() && find(form)?.value != spare.token) fill(form, spare.token);
  }
  function isOwed() {
    return !!sent && !isAnswered && past.ended != "final";
  }
  function note(what) {
    keep(name, past = what);
  }
  function end(ended) {
    if (past) note({ ...past, ended });
    refill();
  }
  function isOpen() {
    return /none|lost/.test(past?.ended);
  }
  function reset() {
    past = recall(name) ?? past;
    sent = void 0;
    recover();
    if (past || form.contains(document.activeElement)) warm();
  }
  if (life && rendered.value != recall(name)?.token) spare = { token: rendered.value, until: performance.timeOrigin + life, life };
  reset();
  return {
    reset,
    warm,
    renew,
    touch() {
      isTouched = true;
      warm();
    },
    submit: submit2,
    isOwed,
    taken() {
      if (!isOwed()) return;
      const button = own(sent.submitter);
      if (sending || past.digest == digest(new FormData(form, button), target(form, button))) return past.token;
    },
    heard(entry) {
      const { initiatorType, name: name2, startTime, responseStatus = 200 } = entry;
      const isResponse = sent?.defaultPrevented && startTime >= sent.timeStamp && /^(fe|x)/.test(initiatorType) && responseStatus;
      const isAwaited = isResponse && !tells && /o[ns]|ag/.test(past.ended);
      if (!isAwaited || !named.includes(bare(name2))) return;
      isUnheard = false;
      end(learned(responseStatus, told(entry), wasUnheard || past.ended == "lost"));
    },
    answered(response) {
      tells = true;
      isAnswered = !!response;
      const wasLost = past?.ended == "lost";
      end(response ? learned(response.status, outcomeOf(response), wasLost) : wasLost ? "lost" : "none");
      warm();
    },
    left(page2) {
      if (!isOpen()) return;
      say(form, "");
      end(past.ended == "lost" ? "doubt" : "seen");
      point(name, page2);
    }
  };
}

// src/page.ts
var SELECTOR = "form[data-onceward]";
function page(around) {
  const forms = /* @__PURE__ */ new Map();
  let isForm = false;
  let last;
  let gesture;
  function of(form) {
    let guarded2 = forms.get(form);
    if (!guarded2) forms.set(form, guarded2 = guard(form, around));
    return guarded2;
  }
  function watch() {
    const find2 = () => {
      document.querySelectorAll(SELECTOR).forEach((form) => of(form));
      forms.forEach((guarded2, form) => form.isConnected || guarded2.isOwed() || forms.delete(form));
    };
    const on = (name, act) => addEventListener(name, act, true);
    learn();
    globalThis.navigation?.addEventListener("navigate", ({ formData }) => isForm = !!formData);
    on("pageswap", ({ activation }) => {
      const isAnswer = isForm && activation && /push|replace/.test(activation.navigationType);
      if (isAnswer) last?.left(navigation.currentEntry.id + activation.entry.url);
    });
    on("pageshow", ({ persisted }) => persisted && forms.forEach((form) => form.reset()));
    on("visibilitychange", () => forms.forEach((form) => form.renew()));
    on("focusin", (event) => guarded(event)?.warm());
    ["input", "reset"].forEach((name) => on(name, (event) => guarded(event)?.touch()));
    ["click", "keypress"].forEach(
      (name) => on(name, (event) => {
        if (!event.isTrusted) return;
        gesture = event;
        setTimeout(() => gesture = void 0);
      })
    );
    on("submit", (event) => {
      const form = guarded(event);
      form?.submit(event, gesture);
      if (!event.defaultPrevented) last = form;
    });
    new MutationObserver(find2).observe(document, { childList: true, subtree: true });
    const requests = new PerformanceObserver(
      (list) => list.getEntries().forEach((entry) => forms.forEach((form) => form.heard(entry)))
    );
    requests.observe({ type: "resource" });
    find2();
  }
  function guarded({ target: target2 }) {
    const form = target2 instanceof HTMLFormElement ? target2 : target2.form;
    return form?.matches(SELECTOR) ? of(form) : void 0;
  }
  return { watch, all: forms };
}

// src/sharing.ts
function sharing() {
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

// src/index.ts
function createOnceward(options = {}) {
  const { baseUrl = "", origins = [], fetch = (...call) => globalThis.fetch(...call), limit = 6e4, patience = 1e4 } = options;
  const tokens = new URL(baseUrl.replace(/\/?$/, "/token"), globalThis.location?.href);
  const here = globalThis.location?.href ?? tokens;
  const named = [here, tokens, ...origins].map((url) => new URL(url).origin);
  const token = (action, ...signal) => fetchToken(fetch, tokens, action, patience, ...signal);
  const isNamed = (origin) => named.includes(origin);
  const forms = page({ token, isNamed, patience });
  const share = sharing();
  return {
    messages,
    watch: forms.watch,
    answered: (form, response) => forms.all.get(form)?.answered(response),
    async token(form) {
      const fresh = () => token(form?.dataset.oncewardAction);
      return form && forms.all.get(form)?.taken() || (await share(form ?? fresh, digest(new FormData(form), 0), fresh, form)).token;
    },
    async fetch(url, given = {}) {
      const init = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== void 0));
      const target2 = new URL(url, here);
      if (!isNamed(target2.origin)) throw Error(`Onceward: ${target2.origin} is not in origins`);
      const stay = target2.origin == named[0] ? { mode: "same-origin" } : { redirect: "error" };
      const { form, key } = init;
      const body = init.body ?? (form && new FormData(form));
      if (form) body.delete?.(FIELD);
      const request = new Request(target2, { ...stay, ...form && { method: "POST", body }, ...init });
      const send = () => submit({ fetch, token, limit }, request, init);
      if (!form && !key) return send();
      const name = [request.method, target2, key, body].join(" ");
      const content = digest(body instanceof FormData ? body : new FormData(form), name);
      const shared = await share(key ? name : form, content, send, form);
      return { ...shared, response: shared.response?.clone() };
    }
  };
}
export {
  createOnceward
};

// src/notice.ts
var messages = {
  offline: "You are offline. Nothing was sent.",
  noToken: "The server does not answer. Nothing was sent.",
  slow: "No answer yet. You can send the same again: it counts once.",
  twice: "You have sent exactly this before.",
  unknown: "Nobody knows whether what you sent before has arrived.",
  confirm: "Send this as well",
  elsewhere: "This form leads to another site. Nothing was sent."
};
function show(form, state) {
  form.dataset.oncewardState = state;
  form.ariaBusy = `${state == "waiting" || state == "sending"}`;
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

// src/wire.ts
var HEADER = {
  token: "onceward-token",
  key: "idempotency-key",
  replayed: "idempotent-replayed",
  outcome: "onceward-outcome",
  retryAfter: "retry-after"
};
var FIELD = "_onceward";

// src/content.ts
function digest(form, submitter, salt) {
  const entries = [salt, attribute(form, submitter, "action")];
  for (const [name, value] of new FormData(form, submitter)) {
    if (name == FIELD) continue;
    entries.push(name, typeof value == "string" ? value : [value.name, value.size, value.type, value.lastModified]);
  }
  return hash(JSON.stringify(entries));
}
function attribute(form, submitter, name) {
  return submitter?.getAttribute("form" + name) ?? form.getAttribute(name) ?? "";
}
function hash(text) {
  let [one, other] = [7, 11];
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    one = Math.imul(one ^ unit, 16777619);
    other = Math.imul(other, 31) + unit | 0;
  }
  return `${one}.${other}`;
}

// src/intent.ts
var CHOICES = {
  none: ["keep", "ask", "ask"],
  doubt: ["ask", "ask", "ask"],
  seen: ["ask", "fresh", "ask"],
  again: ["keep", "fresh", "fresh"],
  final: ["fresh", "fresh", "fresh"]
};
function choose(ended, isSame, isExpired) {
  return CHOICES[ended][isSame ? isExpired ? 2 : 0 : 1];
}
function learned(status, wasLost) {
  if (status < 400) return "final";
  if (status >= 500) return wasLost ? "none" : "again";
  return wasLost || status == 409 ? "doubt" : "final";
}
function nextStep(tries, mayRepeat) {
  const last = tries[tries.length - 1];
  const isOpen = tries.slice(0, -1).some((tried) => tried == "lost" || tried == "running");
  const nothingRan = isOpen ? "unknown" : "refused";
  switch (last) {
    case "answered":
      return last;
    case "not_kept":
      return "duplicate";
    case "used":
      return isOpen ? "unknown" : "duplicate";
    case "lost":
    case "running":
      return mayRepeat ? "same" : "unknown";
    case "same":
      return mayRepeat ? last : nothingRan;
    case "new_token":
      return mayRepeat && tries.every((tried) => tried == last) ? last : nothingRan;
    case "refused":
      return nothingRan;
    default:
      return "unknown";
  }
}

// src/past.ts
var POINTER = "onceward";
function nameOf(form) {
  const number = [...document.querySelectorAll("form[data-onceward]")].indexOf(form);
  return `${POINTER}:${location.pathname}:${form.getAttribute("id") ?? number}`;
}
function recall(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name)) ?? void 0;
  } catch {
    return;
  }
}
function keep(name, value) {
  try {
    sessionStorage.setItem(name, JSON.stringify(value ?? null));
  } catch {
  }
}
function point(name, page2) {
  keep(POINTER, { name, page: page2 });
}
function learn() {
  const pointer = recall(POINTER);
  const past = pointer && recall(pointer.name);
  const [entry] = performance.getEntriesByType("navigation");
  const status = entry?.responseStatus;
  if (past && status && pointer.page == globalThis.navigation?.currentEntry?.id) {
    keep(pointer.name, { ...past, ended: learned(status, past.wasLost) });
    keep(POINTER, void 0);
  }
}

// src/token.ts
function isGood(held) {
  return !!held && Date.now() < held.until - Math.min(2e3, held.life / 10);
}
function pause(millis) {
  return new Promise((go) => setTimeout(go, millis));
}
function waitAfter(response, tries) {
  return Number(response?.headers.get(HEADER.retryAfter)) * 1e3 || Math.random() * 250 * 2 ** tries;
}
function before(deadline, signal) {
  const timeout = AbortSignal.timeout(Math.max(0, deadline - Date.now()));
  return signal ? AbortSignal.any([timeout, signal]) : timeout;
}
async function fetchToken(fetch, url, asked, deadline, signal) {
  const init = { method: "POST", cache: "no-store" };
  if (asked.action) {
    init.headers = { "content-type": "application/json" };
    init.body = JSON.stringify(asked);
  }
  for (let tries = 1; ; tries++) {
    let response;
    try {
      response = await fetch(url, { ...init, signal: before(deadline, signal) });
      const { token, expires_in } = await response.json();
      const life = expires_in * 1e3;
      if (token && life > 0) return { token, until: Date.now() + life, life };
    } catch {
      signal?.throwIfAborted();
    }
    const status = response?.status ?? 503;
    const wait = waitAfter(response, tries);
    if (status < 500 && status != 429 || Date.now() + wait > deadline) {
      throw new Error(`Onceward: no token from ${url}${response ? `, but ${status}` : ""}`);
    }
    await pause(wait);
  }
}

// src/submission.ts
var TRIES = 4;
async function submit({ fetch, token, limit }, request, init) {
  const { method, signal } = request;
  const headers = new Headers(request.headers);
  const deadline = Date.now() + limit;
  const isGuarded = !/^(GET|HEAD|OPTIONS)$/.test(method);
  const isOwn = headers.has(HEADER.token) || headers.has(HEADER.key);
  if (init.key && !isOwn) headers.set(HEADER.key, init.key);
  let needsToken = isGuarded && !isOwn && !init.key;
  const tries = [];
  for (; ; ) {
    let response;
    let problem;
    let error;
    try {
      if (needsToken) headers.set(HEADER.token, (await token(init.action, before(deadline, signal))).token);
    } catch (error2) {
      signal.throwIfAborted();
      return { outcome: "refused", error: error2 };
    }
    try {
      response = await fetch(new Request(request.clone(), { headers, signal: before(deadline, signal) }));
      problem = await problemOf(response);
    } catch (thrown) {
      signal.throwIfAborted();
      response = void 0;
      error = thrown;
    }
    tries.push(isGuarded || !response ? whatCameOf(response, problem) : "answered");
    const wait = waitAfter(response, tries.length);
    const mayRepeat = tries.length < TRIES && Date.now() + wait < deadline;
    const step = nextStep(tries, mayRepeat && !(isOwn && problem?.retry == "new_token"));
    if (step == "answered") {
      return { outcome: response.headers.get(HEADER.replayed) ? "replayed" : "executed", response };
    }
    needsToken = step == "new_token";
    if (step == "same") await pause(wait);
    else if (step != "new_token") return { outcome: step, response, problem, error };
  }
}
async function problemOf(response) {
  const isProblem = response.headers.get("content-type")?.startsWith("application/problem+json");
  if (!isProblem || isHandlers(response)) return;
  const problem = await response.clone().json();
  return problem.code && problem.retry ? problem : void 0;
}
function isHandlers(response) {
  return /^(executed|replayed|unprotected)$/.test(response.headers.get(HEADER.outcome));
}
function whatCameOf(response, problem) {
  if (!response) return "lost";
  switch (problem?.code) {
    case void 0: {
      const { status } = response;
      if (status == 502 || status == 504) return isHandlers(response) ? "unsettled" : "lost";
      return status == 503 && !isHandlers(response) ? "lost" : "answered";
    }
    case "in_progress":
      return "running";
    case "token_used":
      return "used";
    case "reply_not_kept":
      return "not_kept";
    case "outcome_unknown":
    case "internal":
      return "unsettled";
    default:
      return problem.retry == "no" ? "refused" : problem.retry;
  }
}

// src/form.ts
var DOUBLE_CLICK = 1e3;
var DAY = 864e5;
function guard(form, { token, isNamed, messages: messages2, patience }) {
  const name = nameOf(form);
  const field = form.querySelector(`input[name="${FIELD}"]`) ?? document.createElement("input");
  const rendered = field.value;
  let spare;
  let fetching;
  let past;
  let sending;
  let isWaiting = false;
  let isConfirmed = false;
  let isOnline = false;
  let watchdog;
  let renewal;
  function fetch() {
    return fetching ??= token(form.dataset.oncewardAction).then((held) => {
      spare = held;
      if (!sending) field.value = held.token;
      clearTimeout(renewal);
      renewal = setTimeout(() => document.hidden || renew(), held.life * 0.8);
      if (!isWaiting && !sending) show(form, "ready");
      tell(form, "ready");
    }).finally(() => fetching = void 0);
  }
  function warm() {
    if (!isGood(spare) && !sending) fetch().catch(() => {
    });
  }
  function renew() {
    if (spare && Date.now() > spare.until - spare.life / 4) {
      spare = void 0;
      warm();
    }
  }
  function submit2(event) {
    const { submitter, defaultPrevented } = event;
    if (defaultPrevented) return;
    if (attribute(form, submitter, "method").toLowerCase() != "post") return leaveOut();
    if (sending?.defaultPrevented) handOver();
    const isSame = past?.digest == digest(form, submitter, past?.token);
    if (isWaiting || sending && isSame) {
      stop(event);
      return void tell(form, "duplicate");
    }
    if (!isNamed(action(submitter).origin)) return fail(event, messages2.elsewhere);
    const choice = past && !isConfirmed ? choose(past.ended, isSame, past.until < Date.now()) : "fresh";
    if (choice == "ask") return ask(event, past.ended);
    const held = choice == "keep" ? past : isGood(spare) && spare;
    if (held && (navigator.onLine || isOnline)) send(event, held, held == past && past.ended == "none");
    else hold(event);
  }
  function send(event, { token: token2, until, life }, wasLost) {
    const { submitter } = event;
    field.value = token2;
    if (form.dataset.onceward == "query") carryInQuery(submitter, token2);
    if (token2 == spare?.token) spare = void 0;
    sending = event;
    note({ token: token2, until, life, digest: digest(form, submitter, token2), ended: "none", wasLost });
    say(form, "");
    show(form, "sending");
    const isElsewhere = !/^(_self)?$/i.test(attribute(form, submitter, "target"));
    setTimeout(() => {
      if (sending != event) return;
      if (event.defaultPrevented) return handOver();
      clearTimeout(watchdog);
      watchdog = setTimeout(
        () => {
          recover();
          if (!isElsewhere) say(form, messages2.slow);
        },
        isElsewhere ? DOUBLE_CLICK : patience
      );
    });
  }
  function handOver() {
    end("again");
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
      if (!navigator.onLine) return fail(event, messages2.offline, error);
      if (!rendered || rendered == past?.token) return fail(event, messages2.noToken, error);
      spare = { token: rendered, until: Date.now() + DAY, life: DAY };
    }
    isWaiting = false;
    again(event, wasConfirmed, true);
  }
  function again({ submitter }, confirmed, online) {
    [isConfirmed, isOnline] = [confirmed, online];
    show(form, "ready");
    HTMLFormElement.prototype.requestSubmit.call(form, submitter?.isConnected ? submitter : null);
    isConfirmed = isOnline = false;
  }
  function ask(event, ended) {
    stop(event);
    recover();
    show(form, "unknown");
    const confirm = () => {
      say(form, "");
      again(event, true, false);
    };
    const isSeen = ended == "seen";
    if (tell(form, isSeen ? "duplicate" : "unknown", { confirm })) {
      say(form, isSeen ? messages2.twice : messages2.unknown, messages2.confirm, confirm);
    }
  }
  function fail(event, message, error) {
    stop(event);
    recover();
    show(form, "error");
    if (tell(form, "error", { message, error })) say(form, message);
  }
  function stop(event) {
    event.preventDefault();
    event.stopImmediatePropagation();
  }
  function recover() {
    clearTimeout(watchdog);
    sending = void 0;
    isWaiting = false;
    show(form, spare ? "ready" : "idle");
  }
  function note(what) {
    keep(name, past = what);
  }
  function end(ended) {
    if (past) note({ ...past, ended });
  }
  function leaveOut() {
    field.disabled = true;
    setTimeout(() => field.disabled = false);
  }
  function action(submitter) {
    return new URL(attribute(form, submitter, "action") || location.href, document.baseURI);
  }
  function carryInQuery(submitter, token2) {
    const url = action(submitter);
    url.searchParams.set(FIELD, token2);
    const isButtons = submitter?.hasAttribute("formaction");
    (isButtons ? submitter : form).setAttribute(isButtons ? "formaction" : "action", url.href);
  }
  function reset() {
    past = recall(name);
    recover();
    if (past || form.contains(document.activeElement)) warm();
  }
  field.type = "hidden";
  field.name = FIELD;
  form.prepend(field);
  reset();
  return {
    reset,
    warm,
    renew,
    submit: submit2,
    cleared() {
      if (!sending && !/none|doubt/.test(past?.ended ?? "")) note(void 0);
      say(form, "");
    },
    answered(response) {
      if (!response) end("none");
      else if (response.status < 500 && isHandlers(response)) end("final");
      else end(learned(response.status, past?.wasLost));
      warm();
    },
    left(page2) {
      if (!sending) return;
      end(past?.wasLost ? "doubt" : "seen");
      point(name, page2);
    }
  };
}

// src/page.ts
var SELECTOR = "form[data-onceward]";
function page(around) {
  const forms = /* @__PURE__ */ new Map();
  let isForm = false;
  function of(form) {
    let guarded = forms.get(form);
    if (!guarded) forms.set(form, guarded = guard(form, around));
    return guarded;
  }
  function watchNavigation() {
    const on = addEventListener;
    globalThis.navigation?.addEventListener("navigate", (event) => {
      if (!event.hashChange && !event.downloadRequest) isForm = !!event.formData;
    });
    on("pageswap", ({ activation }) => {
      const isAnswer = isForm && activation && /push|replace/.test(activation.navigationType);
      if (isAnswer) forms.forEach((form) => form.left(activation.entry.id));
    });
    on("pageshow", ({ persisted }) => persisted && forms.forEach((form) => form.reset()));
    on("visibilitychange", () => document.hidden || forms.forEach((form) => form.renew()));
  }
  function watch(root) {
    if (root == document) {
      learn();
      watchNavigation();
    }
    for (const name of ["focusin", "input", "reset", "submit"]) {
      const heard = (event) => {
        const target = event.target;
        const form = target instanceof HTMLFormElement ? target : target.form;
        if (!form?.matches(SELECTOR)) return;
        if (name == "submit") of(form).submit(event);
        else if (name == "reset") of(form).cleared();
        else of(form).warm();
      };
      root.addEventListener(name, heard, true);
    }
    root.querySelectorAll(SELECTOR).forEach(of);
  }
  return { watch, of };
}

// src/index.ts
function createOnceward(options = {}) {
  const { tokenLimit = 1e4, limit = 6e4, patience = 1e4, origins = [] } = options;
  const here = globalThis.location?.href;
  const base = new URL(options.baseUrl ?? "/", here);
  if (!base.pathname.endsWith("/")) base.pathname += "/";
  const named = [here ?? base, base, ...origins].map((url) => new URL(url).origin);
  const fetch = options.fetch ?? ((...call) => globalThis.fetch(...call));
  const token = (action, signal) => fetchToken(fetch, new URL("token", base), action ? { action } : {}, Date.now() + tokenLimit, signal);
  const isNamed = (origin) => named.includes(origin);
  const told = { ...messages, ...options.messages };
  const forms = page({ token, isNamed, messages: told, patience });
  const underWay = /* @__PURE__ */ new Map();
  return {
    messages: told,
    watch: (root = document) => forms.watch(root),
    answered: (form, response) => forms.of(form).answered(response),
    async fetch(url, init = {}) {
      const target = new URL(url, here ?? base);
      if (!isNamed(target.origin)) throw new Error(`Onceward: ${target.origin} is not in origins, so it gets no token`);
      const mode = init.mode ?? (target.origin == named[0] ? "same-origin" : "cors");
      const request = new Request(target, { ...init, mode });
      const send = () => submit({ fetch, token, limit }, request, init);
      if (!init.key) return send();
      const name = [request.method, target, init.key].join(" ");
      const first = underWay.get(name);
      const result = first && first.body === init.body ? first.result : send();
      if (!first) {
        underWay.set(name, { body: init.body, result });
        const over = () => underWay.delete(name);
        result.then(over, over);
      }
      const shared = await result;
      return { ...shared, response: shared.response?.clone() };
    }
  };
}
export {
  createOnceward
};

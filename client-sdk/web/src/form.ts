// One guarded form: which token its next try takes, and how it gets back to work whatever becomes of that try.

import { attribute, digest } from "./content.js";
import { choose, learned, type Ended } from "./intent.js";
import { messages, say, show, tell, type State } from "./notice.js";
import { keep, nameOf, point, recall, type Past } from "./past.js";
import { outcomeOf } from "./submission.js";
import { isGood, type Held } from "./token.js";
import { FIELD } from "./wire.js";

/** What a form needs of its surroundings. */
export interface Surroundings {
  token(action: string | undefined): Promise<Held>;
  /** Whether a token may be sent to this origin. */
  isNamed(origin: string): boolean;
  /** How long a form waits for an answer, in milliseconds. */
  patience: number;
}

/** A form under guard. */
export interface GuardedForm {
  /** Begins anew, when the page comes back from the back/forward cache. */
  reset(): void;
  /** Sees to it that a token is there, or on its way, with time enough to write and send. */
  warm(): void;
  /** The same for a form that somebody has touched: before its token expires, and on return to the tab. */
  renew(): void;
  /** Decides on a submit event, before the page hears of it. */
  submit(event: SubmitEvent): void;
  /** The page says how the try ended that it sent by itself. */
  answered(response: Response | null): void;
  /** This page makes way for the one that is the answer, as far as can be seen from here. */
  left(page: string): void;
}

/** How long a double click may take, where the answer is shown elsewhere. */
const DOUBLE_CLICK = 1000;

/** Guards a form. */
export function guard(form: HTMLFormElement, { token, isNamed, patience }: Surroundings): GuardedForm {
  const name = nameOf(form);
  const field = form.querySelector<HTMLInputElement>(`input[name="${FIELD}"]`) ?? document.createElement("input");
  /** How long the token lives that the server has written into the page, if it has. */
  const life = +field.dataset.expiresIn! * 1000;
  /** A token that no try has taken yet. */
  let spare: Held | undefined;
  /** The one fetch that all who need a token share. */
  let fetching: Promise<void> | undefined;
  let past: Past | null | undefined;
  /** The try that is under way. */
  let sending: SubmitEvent | undefined;
  let isWaiting = false;
  let isBarred = false;
  /** Of a submit event that is ours: whether the person has confirmed it, and whether we are online. */
  let isConfirmed = false;
  let isOnline = false;

  function fetch(): Promise<void> {
    return (fetching ??= token(form.dataset.oncewardAction)
      .then((held) => {
        spare = held;
        // For whoever calls form.submit(), which tells nobody.
        if (!sending) field.value = held.token;
        setTimeout(renew, held.life * 0.8);
        if (!isWaiting && !sending) show(form, "ready");
        tell(form, "ready");
      })
      .finally(() => (fetching = undefined)));
  }

  function warm(): void {
    // If it fails, the submit will say so. Where the page may not fetch tokens, only a submit tries again.
    if (!isGood(spare) && !sending && !isBarred && !document.hidden) fetch().catch(({ cause }) => (isBarred = !!cause));
  }

  function renew(): void {
    if (spare) warm();
  }

  function submit(event: SubmitEvent): void {
    const { submitter, defaultPrevented } = event;
    if (defaultPrevented) return;
    const url = new URL(attribute(form, submitter, "action") || location.href, document.baseURI);
    // It may be there from the last time.
    url.searchParams.delete(FIELD);
    if (!/^post$/i.test(attribute(form, submitter, "method")) || !isNamed(url.origin)) return leaveOut();
    if (sending?.defaultPrevented) handOver();
    const content = digest(form, submitter, url);
    const isSame = past?.digest == content;
    if (isWaiting || (sending && isSame)) {
      stop(event);
      return void tell(form, "duplicate");
    }
    const choice = past && !isConfirmed ? choose(past.ended, isSame, past.until < Date.now()) : "fresh";
    if (choice == "ask") return ask(event, past!.ended);
    const held = choice == "keep" ? past : isGood(spare) && spare;
    if (held && (navigator.onLine || isOnline)) send(event, held, content, url);
    else hold(event);
  }

  /** Lets it go: from here on it may run. */
  function send(event: SubmitEvent, { token, until }: Held | Past, content: number, url: URL): void {
    const { submitter } = event;
    field.value = token;
    field.disabled = false;
    if (form.dataset.onceward == "query") carryInQuery(submitter, url, token);
    const wasLost = token == past?.token && isOpen();
    note({ token, until, digest: content, ended: wasLost ? "lost" : "none" });
    if (token == spare?.token) spare = undefined;
    sending = event;
    say(form, "");
    show(form, "sending");
    const isElsewhere = !/^(_self)?$/i.test(attribute(form, submitter, "target"));
    // The page has its say after this: it may stop the event, or send by itself.
    setTimeout(() => {
      if (sending != event) return;
      if (event.defaultPrevented) return handOver();
      setTimeout(
        () => {
          if (sending != event) return;
          recover();
          if (!isElsewhere) say(form, messages.slow);
        },
        isElsewhere ? DOUBLE_CLICK : patience,
      );
    });
  }

  /** The page took the event over: nothing was sent, or the page sends by itself and may tell with `answered`. */
  function handOver(): void {
    if (past?.ended == "none") end("again");
    recover();
  }

  /** Holds a submit until a token is there, or until it is clear that there will be none. */
  async function hold(event: SubmitEvent): Promise<void> {
    const wasConfirmed = isConfirmed;
    stop(event);
    isWaiting = true;
    say(form, "");
    show(form, "waiting");
    try {
      await fetch();
    } catch (error) {
      const { cause } = error as Error;
      return fail(cause ? `${messages.barred} ${cause}.` : navigator.onLine ? messages.noToken : messages.offline, error);
    }
    recover();
    again(event, wasConfirmed, true);
  }

  /** Submits the form once more, as the person did. */
  function again({ submitter }: SubmitEvent, confirmed: boolean, online: boolean): void {
    isConfirmed = confirmed;
    isOnline = online;
    // The button may be gone by now.
    form.requestSubmit((submitter as HTMLButtonElement | null)?.form == form ? submitter : null);
    isConfirmed = isOnline = false;
  }

  /** Asks the person, who alone can know whether this is meant as a second submission. */
  function ask(event: SubmitEvent, ended: Ended): void {
    stop(event);
    // What is under way stays so: its answer may still come.
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

  function fail(message: string, error: unknown): void {
    recover("error");
    if (tell(form, "error", { message, error })) say(form, message);
  }

  function stop(event: SubmitEvent): void {
    event.preventDefault();
    event.stopImmediatePropagation();
  }

  /** The form can be used again. */
  function recover(state: State = spare ? "ready" : "idle"): void {
    sending = undefined;
    isWaiting = false;
    show(form, state);
  }

  function note(what: Past): void {
    keep(name, (past = what));
  }

  function end(ended: Ended): void {
    if (past) note({ ...past, ended });
  }

  /** Whether the last try has no answer yet. */
  function isOpen(): boolean {
    return /none|lost/.test(past?.ended!);
  }

  /** With GET it would show in the address, and another origin has no use for it: this time the token is left out. */
  function leaveOut(): void {
    field.disabled = true;
    setTimeout(() => (field.disabled = false));
  }

  function carryInQuery(submitter: HTMLElement | null, url: URL, token: string): void {
    url.searchParams.set(FIELD, token);
    if (submitter?.hasAttribute("formaction")) submitter.setAttribute("formaction", url.href);
    else form.setAttribute("action", url.href);
  }

  function reset(): void {
    past = recall(name);
    recover();
    if (past || form.contains(document.activeElement)) warm();
  }

  field.type = "hidden";
  field.name = FIELD;
  form.prepend(field);
  if (life && field.value != recall(name)?.token) spare = { token: field.value, until: performance.timeOrigin + life, life };
  reset();

  return {
    reset,
    warm,
    renew,
    submit,
    answered(response) {
      const wasLost = past?.ended == "lost";
      end(response ? learned(response.status, outcomeOf(response), wasLost) : wasLost ? "lost" : "none");
      warm();
    },
    left(page) {
      // It may have come when the form had long been given back.
      if (!isOpen()) return;
      say(form, "");
      end(past!.ended == "lost" ? "doubt" : "seen");
      point(name, page);
    },
  };
}

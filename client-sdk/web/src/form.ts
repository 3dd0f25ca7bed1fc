// One guarded form: which token its next try takes, and how it gets back to work whatever becomes of that try.

import { addresses, attribute, bare, digest, target } from "./content.js";
import { carryInQuery, fill, find, leaveOut } from "./field.js";
import type { GuardedForm, Surroundings } from "./guarded.js";
import { choose, DOUBLE_CLICK, isSameClick, learned, type Ended } from "./intent.js";
import { messages, say, show, tell, type State } from "./notice.js";
import { keep, nameOf, point, recall, told, type Past } from "./past.js";
import { outcomeOf } from "./submission.js";
import { isGood, type Held } from "./token.js";

/** Guards a form. */
export function guard(form: HTMLFormElement, { token, isNamed, patience }: Surroundings): GuardedForm {
  const name = nameOf(form);
  const rendered = find(form);
  /** How long the token lives that the server has written into the page, if it has. */
  const life = +rendered?.dataset.expiresIn! * 1000;
  /** A token that no try has taken yet. */
  let spare: Held | undefined;
  /** The one fetch that all who need a token share. */
  let fetching: Promise<void> | undefined;
  let past: Past | null | undefined;
  /** The try that is under way. */
  let sending: SubmitEvent | undefined;
  let isWaiting = false;
  /** Whether the page may not fetch tokens. */
  let isBarred = false;
  /** The last try that was sent, and the addresses that the form named then. */
  let sent: SubmitEvent | undefined;
  let named: unknown[];
  /** Since then: whether the form was edited or reset, and whether the page has reported a response. */
  let isTouched = false;
  let isAnswered = true;
  /** Whether no response to the last try was seen, and none to an earlier one with its token: that may still run. */
  let isUnheard = false;
  let wasUnheard = false;
  /** Whether the page reports responses at all. */
  let tells = false;
  /** Of a submit event that is ours: whether the person has confirmed it, and whether we are online. */
  let isConfirmed = false;
  let isOnline = false;

  function fetch(): Promise<void> {
    return (fetching ??= token(form.dataset.oncewardAction)
      .then((held) => {
        spare = held;
        isBarred = false;
        setTimeout(renew, held.life * 0.8);
        if (!isWaiting && !sending) settle();
        tell(form, "ready");
      })
      .finally(() => (fetching = undefined)));
  }

  function warm(): void {
    if (isGood(spare) || sending || isWaiting) return;
    settle();
    // If it fails, the submit will say so. Where the page may not fetch tokens, only a submit tries again.
    if (!isLeftAlone() && !isBarred && !document.hidden) fetch().catch(({ cause }) => (isBarred = !!cause));
  }

  function renew(): void {
    if (spare && form.isConnected) warm();
  }

  /** Whether a submit takes no token: with GET it would show in the address, and another origin has no use for it. */
  function isLeft(submitter: Element | null): boolean {
    try {
      return !/^post$/i.test(attribute(form, submitter, "method")) || !isNamed(target(form, submitter).origin);
    } catch {
      // The action is no address.
      return true;
    }
  }

  /** Whether no button of the form sends a token. */
  function isLeftAlone(): boolean {
    return [null, ...form].every((button) => isLeft(button));
  }

  function submit(event: SubmitEvent, gesture?: Event): void {
    const { submitter, defaultPrevented } = event;
    if (defaultPrevented) return;
    if (isLeft(submitter)) return leaveOut(form);
    if (sending?.defaultPrevented) handOver();
    // The form that was here before this one may have learned more of the same try.
    const known = recall(name);
    if (past?.ended == "again" && known?.token == past.token) past = known;
    const url = target(form, submitter);
    const content = digest(new FormData(form, submitter), url);
    const isSame = past?.digest == content;
    const isClicked = !isTouched && isSameClick((gesture ?? event).timeStamp - sent?.timeStamp!, !!gesture, isAnswered);
    if (isWaiting || (isSame && (sending || isClicked))) {
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
    fill(form, token);
    named = [bare(url.href), ...addresses(form, submitter)];
    if (form.dataset.onceward == "query") carryInQuery(form, submitter, url, token);
    const isRepeated = token == past?.token;
    const wasLost = isRepeated && isOpen();
    wasUnheard = isRepeated && isUnheard;
    isUnheard = true;
    note({ token, until, digest: content, ended: wasLost ? "lost" : "none" });
    if (token == spare?.token) spare = undefined;
    sending = sent = event;
    isTouched = isAnswered = false;
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

  /** The page took the event over: it sends by itself, or not at all. The same content keeps its token until there is a response. */
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
      return fail(navigator.onLine ? messages.noToken + (cause ? ` ${cause}.` : "") : messages.offline, error);
    }
    recover();
    again(event, wasConfirmed, true);
  }

  /** Submits the form once more, as the person did. */
  function again({ submitter }: SubmitEvent, confirmed: boolean, online: boolean): void {
    isConfirmed = confirmed;
    isOnline = online;
    form.requestSubmit(own(submitter));
    isConfirmed = isOnline = false;
  }

  /** The button of a submit, which may be gone by now. */
  function own(submitter: HTMLElement | null): HTMLElement | null {
    return (submitter as HTMLButtonElement | null)?.form == form ? submitter : null;
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
  function recover(state?: State): void {
    sending = undefined;
    isWaiting = false;
    rest(state);
  }

  /** Shows the state of a form that is neither waiting nor sending. */
  function rest(state: State = isGood(spare) ? "ready" : "idle"): void {
    refill();
    show(form, isLeftAlone() ? undefined : state);
  }

  /** The same, unless the person is being asked. */
  function settle(): void {
    if (form.dataset.oncewardState != "unknown") rest();
  }

  /** Writes the spare token into the form, for code that sends without a submit event; not while a try may need the one that is there. */
  function refill(): void {
    if (isGood(spare) && !isOwed() && find(form)?.value != spare.token) fill(form, spare.token);
  }

  function isOwed(): boolean {
    return !!sent && !isAnswered && past!.ended != "final";
  }

  function note(what: Past): void {
    keep(name, (past = what));
  }

  function end(ended: Ended): void {
    if (past) note({ ...past, ended });
    refill();
  }

  /** Whether the last try has no answer yet. */
  function isOpen(): boolean {
    return /none|lost/.test(past?.ended!);
  }

  function reset(): void {
    past = recall(name) ?? past;
    sent = undefined;
    recover();
    if (past || form.contains(document.activeElement)) warm();
  }

  if (life && rendered!.value != recall(name)?.token) spare = { token: rendered!.value, until: performance.timeOrigin + life, life };
  reset();

  return {
    reset,
    warm,
    renew,
    touch() {
      isTouched = true;
      warm();
    },
    submit,
    isOwed,
    taken() {
      if (!isOwed()) return;
      const button = own(sent!.submitter);
      // In the submit handler itself, the token belongs to whatever the page makes of the form.
      if (sending || past!.digest == digest(new FormData(form, button), target(form, button))) return past!.token;
    },
    heard(entry) {
      const { initiatorType, name, startTime, responseStatus = 200 } = entry;
      // Only a request to an address that the form names can be the one that carries it: a poll of the page must not end a slow try.
      const isResponse = sent?.defaultPrevented && startTime >= sent.timeStamp && /^(fe|x)/.test(initiatorType) && responseStatus;
      // none, lost, again
      const isAwaited = isResponse && !tells && /o[ns]|ag/.test(past!.ended);
      if (!isAwaited || !named.includes(bare(name))) return;
      isUnheard = false;
      end(learned(responseStatus, told(entry), wasUnheard || past!.ended == "lost"));
    },
    answered(response) {
      tells = true;
      isAnswered = !!response;
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

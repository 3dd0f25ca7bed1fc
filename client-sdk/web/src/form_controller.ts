// The controller of one guarded form: it chooses the token of each attempt, and makes the form usable again after every attempt.

import { digest } from "./digest.js";
import { dispatch, messages, showMessage, showState, type FormState } from "./form_status.js";
import type { FormContext, FormController } from "./form_contract.js";
import { load, nameOf, save, saveResponsePage, timingOutcome, type LastAttempt } from "./history.js";
import { chooseToken, DOUBLE_CLICK, endOfAttempt, isSameClick, type AttemptEnd } from "./retry_rules.js";
import { outcomeOf } from "./submission.js";
import { addresses, attribute, bare, target } from "./target.js";
import { isFresh, type TimedToken } from "./token.js";
import { findField, omitToken, writeToField, writeToQuery } from "./token_field.js";

/** Creates the controller that guards a form. */
export function createFormController(form: HTMLFormElement, { token, isAllowedOrigin, patience }: FormContext): FormController {
  const name = nameOf(form);
  const rendered = findField(form);
  /** The lifetime of the token that the server rendered into the page, if any. */
  const life = +rendered?.dataset.expiresIn! * 1000;
  /** A token that no attempt has used yet. */
  let spare: TimedToken | undefined;
  /** The fetch of a token in flight. */
  let fetching: Promise<void> | undefined;
  let lastAttempt: LastAttempt | null | undefined;
  /** The attempt in flight. */
  let sending: SubmitEvent | undefined;
  let isWaiting = false;
  /** True if CORS does not allow the page to fetch tokens. */
  let isBarred = false;
  /** The last attempt that was sent, and the URLs that the form named then. */
  let sent: SubmitEvent | undefined;
  let named: unknown[];
  /** Since then: true if the form was edited or reset, and true if the page has reported a response. */
  let isTouched = false;
  let isAnswered = true;
  /** True if no response was seen to the last attempt, and to an earlier one with the same token: it may still run. */
  let isUnheard = false;
  let wasUnheard = false;
  /** True if the page calls `answered`. */
  let tells = false;
  /** During `resubmit`: true if the user has confirmed, and true if the browser is online. */
  let isConfirmed = false;
  let isOnline = false;

  function fetch(): Promise<void> {
    return (fetching ??= token(form.dataset.oncewardAction)
      .then((fetched) => {
        spare = fetched;
        isBarred = false;
        setTimeout(renew, fetched.life * 0.8);
        if (!isWaiting && !sending) showIdleStateUnlessAsking();
        dispatch(form, "ready");
      })
      .finally(() => (fetching = undefined)));
  }

  function ensureToken(): void {
    if (isFresh(spare) || sending || isWaiting) return;
    showIdleStateUnlessAsking();
    // If the fetch fails, the submit shows the error. If CORS forbids it, only a submit tries again.
    if (!isLeftAlone() && !isBarred && !document.hidden) fetch().catch(({ cause }) => (isBarred = !!cause));
  }

  function renew(): void {
    if (spare && form.isConnected) ensureToken();
  }

  /** True if a submit carries no token: with GET it would appear in the URL, and another origin must not receive it. */
  function isLeft(submitter: Element | null): boolean {
    try {
      return !/^post$/i.test(attribute(form, submitter, "method")) || !isAllowedOrigin(target(form, submitter).origin);
    } catch {
      // The action is not a valid URL.
      return true;
    }
  }

  /** True if no button of the form sends a token. */
  function isLeftAlone(): boolean {
    return [null, ...form].every(isLeft);
  }

  function submit(event: SubmitEvent, gesture?: Event): void {
    const { submitter, defaultPrevented } = event;
    if (defaultPrevented) return;
    if (isLeft(submitter)) return omitToken(form);
    if (sending?.defaultPrevented) handOver();
    // A form that this one replaced may have recorded the end of the same attempt.
    const known = load(name);
    if (lastAttempt?.ended == "again" && known?.token == lastAttempt.token) lastAttempt = known;
    const url = target(form, submitter);
    const content = digest(new FormData(form, submitter), url);
    const isSame = lastAttempt?.digest == content;
    const isClicked = !isTouched && isSameClick((gesture ?? event).timeStamp - sent?.timeStamp!, !!gesture, isAnswered);
    if (isWaiting || (isSame && (sending || isClicked))) {
      stop(event);
      return void dispatch(form, "duplicate");
    }
    const choice = lastAttempt && !isConfirmed ? chooseToken(lastAttempt.ended, isSame, lastAttempt.until < Date.now()) : "fresh";
    if (choice == "ask") return ask(event, lastAttempt!.ended);
    const chosen = choice == "keep" ? lastAttempt : isFresh(spare) && spare;
    if (chosen && (navigator.onLine || isOnline)) send(event, chosen, content, url);
    else holdUntilToken(event);
  }

  /** Lets the browser send the submit: from here on it may run. */
  function send(event: SubmitEvent, { token, until }: TimedToken | LastAttempt, content: number, url: URL): void {
    const { submitter } = event;
    writeToField(form, token);
    named = [bare(url.href), ...addresses(form, submitter)];
    if (form.dataset.onceward == "query") writeToQuery(form, submitter, url, token);
    const isRepeated = token == lastAttempt?.token;
    const wasLost = isRepeated && isOpen();
    wasUnheard = isRepeated && isUnheard;
    isUnheard = true;
    remember({ token, until, digest: content, ended: wasLost ? "lost" : "none" });
    if (token == spare?.token) spare = undefined;
    sending = sent = event;
    isTouched = isAnswered = false;
    showMessage(form, "");
    showState(form, "sending");
    const isElsewhere = !/^(_self)?$/i.test(attribute(form, submitter, "target"));
    // The page's own listeners run next: they may cancel the event, or send the form themselves.
    setTimeout(() => {
      if (sending != event) return;
      if (event.defaultPrevented) return handOver();
      setTimeout(
        () => {
          if (sending != event) return;
          recover();
          if (!isElsewhere) showMessage(form, messages.slow);
        },
        isElsewhere ? DOUBLE_CLICK : patience,
      );
    });
  }

  /** Handles a cancelled event: the page sends the form itself, or not at all. The same content keeps its token until there is a response. */
  function handOver(): void {
    if (lastAttempt?.ended == "none") end("again");
    recover();
  }

  /** Holds a submit until a token is fetched, or until fetching it has failed. */
  async function holdUntilToken(event: SubmitEvent): Promise<void> {
    const wasConfirmed = isConfirmed;
    stop(event);
    isWaiting = true;
    showMessage(form, "");
    showState(form, "waiting");
    try {
      await fetch();
    } catch (error) {
      const { cause } = error as Error;
      return fail(navigator.onLine ? messages.noToken + (cause ? ` ${cause}.` : "") : messages.offline, error);
    }
    recover();
    resubmit(event, wasConfirmed, true);
  }

  /** Submits the form again with the same button. */
  function resubmit({ submitter }: SubmitEvent, confirmed: boolean, online: boolean): void {
    isConfirmed = confirmed;
    isOnline = online;
    form.requestSubmit(currentSubmitter(submitter));
    isConfirmed = isOnline = false;
  }

  /** Returns the button of a submit, unless it was removed from the form. */
  function currentSubmitter(submitter: HTMLElement | null): HTMLElement | null {
    return (submitter as HTMLButtonElement | null)?.form == form ? submitter : null;
  }

  /** Asks the user, since only the user knows whether a second submission is intended. */
  function ask(event: SubmitEvent, ended: AttemptEnd): void {
    stop(event);
    // An attempt in flight continues: its response may still come.
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

  function fail(message: string, error: unknown): void {
    recover("error");
    if (dispatch(form, "error", { message, error })) showMessage(form, message);
  }

  function stop(event: SubmitEvent): void {
    event.preventDefault();
    event.stopImmediatePropagation();
  }

  /** Makes the form usable again. */
  function recover(state?: FormState): void {
    sending = undefined;
    isWaiting = false;
    showIdleState(state);
  }

  /** Shows the state of a form that is neither waiting nor sending. */
  function showIdleState(state: FormState = isFresh(spare) ? "ready" : "idle"): void {
    refill();
    showState(form, isLeftAlone() ? undefined : state);
  }

  /** Does the same, unless the user is being asked. */
  function showIdleStateUnlessAsking(): void {
    if (form.dataset.oncewardState != "unknown") showIdleState();
  }

  /** Writes the spare token into the form, for code that sends without a submit event; not while an attempt may need the current one. */
  function refill(): void {
    if (isFresh(spare) && !awaitsResponse() && findField(form)?.value != spare.token) writeToField(form, spare.token);
  }

  function awaitsResponse(): boolean {
    return !!sent && !isAnswered && lastAttempt!.ended != "final";
  }

  function remember(what: LastAttempt): void {
    save(name, (lastAttempt = what));
  }

  function end(ended: AttemptEnd): void {
    if (lastAttempt) remember({ ...lastAttempt, ended });
    refill();
  }

  /** True if the last attempt has no response yet. */
  function isOpen(): boolean {
    return /none|lost/.test(lastAttempt?.ended!);
  }

  function reset(): void {
    lastAttempt = load(name) ?? lastAttempt;
    sent = undefined;
    recover();
    if (lastAttempt || form.contains(document.activeElement)) ensureToken();
  }

  if (life && rendered!.value != load(name)?.token) spare = { token: rendered!.value, until: performance.timeOrigin + life, life };
  reset();

  return {
    reset,
    ensureToken,
    renew,
    touch() {
      isTouched = true;
      ensureToken();
    },
    submit,
    awaitsResponse,
    attemptToken() {
      if (!awaitsResponse()) return;
      const button = currentSubmitter(sent!.submitter);
      // Inside the submit handler, the token is valid for any content that the page sends.
      if (sending || lastAttempt!.digest == digest(new FormData(form, button), target(form, button))) return lastAttempt!.token;
    },
    requestEnded(entry) {
      const { initiatorType, name, startTime, responseStatus = 200 } = entry;
      // Only a request to a URL that the form names counts: a poll of the page must not end a slow attempt.
      const isResponse = sent?.defaultPrevented && startTime >= sent.timeStamp && /^(fe|x)/.test(initiatorType) && responseStatus;
      // none, lost, again
      const isAwaited = isResponse && !tells && /o[ns]|ag/.test(lastAttempt!.ended);
      if (!isAwaited || !named.includes(bare(name))) return;
      isUnheard = false;
      end(endOfAttempt(responseStatus, timingOutcome(entry), wasUnheard || lastAttempt!.ended == "lost"));
    },
    answered(response) {
      tells = true;
      isAnswered = !!response;
      const wasLost = lastAttempt?.ended == "lost";
      end(response ? endOfAttempt(response.status, outcomeOf(response), wasLost) : wasLost ? "lost" : "none");
      ensureToken();
    },
    leavePage(page) {
      // The response may come after the form became usable again.
      if (!isOpen()) return;
      showMessage(form, "");
      end(lastAttempt!.ended == "lost" ? "doubt" : "seen");
      saveResponsePage(name, page);
    },
  };
}

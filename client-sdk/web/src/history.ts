// What became of a form's last attempt, kept for this tab: it has to outlive the page that sent it.

import { endOfAttempt, type AttemptEnd } from "./retry_rules.js";
import type { TimedToken } from "./token.js";

/** The last attempt of a form. */
export interface LastAttempt extends Omit<TimedToken, "life"> {
  /** Of its content. */
  digest: number;
  ended: AttemptEnd;
}

/** Says which page is the response to which form: by its address, and the page in this tab's history that it came from. */
interface ResponsePage {
  name: string;
  page: string;
}

const PREFIX = "onceward";

/** The name under which a form is known in this tab. */
export function nameOf(form: HTMLFormElement): string {
  return [PREFIX, location.pathname, form.getAttribute("id") ?? [...document.forms].indexOf(form)].join();
}

/** What is kept under a name. A browser that keeps nothing is no reason to send nothing: the page itself still knows. */
export function load<T = LastAttempt>(name: string): T | null | undefined {
  try {
    return JSON.parse(sessionStorage.getItem(name)!);
  } catch {}
}

/** Keeps something under a name. */
export function save(name: string, value: LastAttempt | ResponsePage): void {
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch {}
}

/** On the page that sent a form: which page is the response. */
export function saveResponsePage(name: string, page: string): void {
  save(PREFIX, { name, page });
}

/** The outcome that a response names: of its headers, timing shows a script no other. A gateway adds its entry after those of the application. */
export function timingOutcome({ serverTiming }: PerformanceResourceTiming): string {
  return serverTiming?.filter(({ name }) => name == PREFIX).at(-1)?.description ?? "";
}

/** On the page that is the response: how the attempt ended. */
export function recordResponsePage(): void {
  const responsePage = load<ResponsePage>(PREFIX);
  const lastAttempt = responsePage && load(responsePage.name);
  const [entry] = performance.getEntriesByType("navigation") as PerformanceNavigationTiming[];
  const status = entry?.responseStatus;
  if (lastAttempt && status && responsePage.page == navigation.activation?.from?.id + location.href) {
    save(responsePage.name, { ...lastAttempt, ended: endOfAttempt(status, timingOutcome(entry), lastAttempt.ended == "doubt") });
  }
}

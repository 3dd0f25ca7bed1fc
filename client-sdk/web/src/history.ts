// The last attempt of a form, stored per tab: it must survive the page that sent it.

import { endOfAttempt, type AttemptEnd } from "./retry_rules.js";
import type { TimedToken } from "./token.js";

/** The last attempt of a form. */
export interface LastAttempt extends Omit<TimedToken, "life"> {
  /** The digest of its content. */
  digest: number;
  ended: AttemptEnd;
}

/** Maps a response page to its form: by the URL of the page, and by the entry in the tab's history that it came from. */
interface ResponsePage {
  name: string;
  page: string;
}

const PREFIX = "onceward";

/** Returns the name of a form in this tab. */
export function nameOf(form: HTMLFormElement): string {
  return [PREFIX, location.pathname, form.getAttribute("id") ?? [...document.forms].indexOf(form)].join();
}

/** Loads the value stored under a name. Storage may be blocked: then only the page itself knows the last attempt. */
export function load<T = LastAttempt>(name: string): T | null | undefined {
  try {
    return JSON.parse(sessionStorage.getItem(name)!);
  } catch {}
}

/** Stores a value under a name. */
export function save(name: string, value: LastAttempt | ResponsePage): void {
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch {}
}

/** Stores which page is the response. Called on the page that sent the form. */
export function saveResponsePage(name: string, page: string): void {
  save(PREFIX, { name, page });
}

/** Returns the outcome in `Server-Timing`, the only header that is readable here. A gateway adds its entry after those of the application. */
export function timingOutcome({ serverTiming }: PerformanceResourceTiming): string {
  return serverTiming?.filter(({ name }) => name == PREFIX).at(-1)?.description ?? "";
}

/** Records how the attempt ended. Called on the response page. */
export function recordResponsePage(): void {
  const responsePage = load<ResponsePage>(PREFIX);
  const lastAttempt = responsePage && load(responsePage.name);
  const [entry] = performance.getEntriesByType("navigation") as PerformanceNavigationTiming[];
  const status = entry?.responseStatus;
  if (lastAttempt && status && responsePage.page == navigation.activation?.from?.id + location.href) {
    save(responsePage.name, { ...lastAttempt, ended: endOfAttempt(status, timingOutcome(entry), lastAttempt.ended == "doubt") });
  }
}

// What became of a form's last try, kept for this tab: it has to outlive the page that sent it.

import { learned, type Ended } from "./intent.js";
import type { Held } from "./token.js";

/** The last try of a form. */
export interface Past extends Omit<Held, "life"> {
  /** Of its content. */
  digest: number;
  ended: Ended;
}

/** Says which page is the answer to which form: by its address, and the page in this tab's history that it came from. */
interface Pointer {
  name: string;
  page: string;
}

const POINTER = "onceward";

/** The name under which a form is known in this tab. */
export function nameOf(form: HTMLFormElement): string {
  return [POINTER, location.pathname, form.getAttribute("id") ?? [...document.forms].indexOf(form)].join();
}

/** What is kept under a name. A browser that keeps nothing is no reason to send nothing: the page itself still knows. */
export function recall<T = Past>(name: string): T | null | undefined {
  try {
    return JSON.parse(sessionStorage.getItem(name)!);
  } catch {}
}

/** Keeps something under a name. */
export function keep(name: string, value: Past | Pointer): void {
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch {}
}

/** On the page that sent a form: which page is the answer. */
export function point(name: string, page: string): void {
  keep(POINTER, { name, page });
}

/** The outcome that a response names: of its headers, timing shows a script no other. A gateway adds its entry after those of the application. */
export function told({ serverTiming }: PerformanceResourceTiming): string {
  return serverTiming?.filter(({ name }) => name == POINTER).at(-1)?.description ?? "";
}

/** On the page that is the answer: how the try ended. */
export function learn(): void {
  const pointer = recall<Pointer>(POINTER);
  const past = pointer && recall(pointer.name);
  const [entry] = performance.getEntriesByType("navigation") as PerformanceNavigationTiming[];
  const status = entry?.responseStatus;
  if (past && status && pointer.page == navigation.activation?.from?.id + location.href) {
    keep(pointer.name, { ...past, ended: learned(status, told(entry), past.ended == "doubt") });
  }
}

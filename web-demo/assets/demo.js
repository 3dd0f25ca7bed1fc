// The page: two forms, the settings of both, and the display of the results.

import { Chart } from "./chart.js";
import { FormPanel } from "./form_panel.js";
import { snippet, withComments } from "./snippets.js";
import { keyboardTabs } from "./keyboard_tabs.js";
import { isChinese, word } from "./words.js";

const { guardedMessage, handlerNote, POLICY_NOTES, unguardedMessage } = await (isChinese ? import("./messages.zh-CN.js") : import("./messages.js"));

const byId = (id) => document.getElementById(id);
const policy = () => document.querySelector("[name=policy]:checked").value;
const handlerMode = () => [...document.querySelectorAll("[name=handler]:checked")].map(({ value }) => value).join(", ");

const charts = { unguarded: new Chart(byId("unguarded-chart"), word("Unguarded")), guarded: new Chart(byId("guarded-chart"), word("Guarded")) };
const answered = (name) => (submission, kind) => {
  charts[name].add(submission, kind);
  count();
};
const unguarded = new FormPanel("unguarded", { handlerMode, policy: () => "none", message: unguardedMessage, answered: answered("unguarded") });
const guarded = new FormPanel("guarded", { handlerMode, policy, message: guardedMessage, answered: answered("guarded") });

let visitor = "";
let tab = "tab-html";

// The SDK fetches its tokens with this `fetch`: the page shows these requests too.
const { fetch } = window;
window.fetch = (target, init) => {
  const fetching = fetch(target, init);
  const isToken = new URL(target?.url ?? target, location.href).pathname === "/token";
  return isToken ? guarded.drawToken(fetching) : fetching;
};

/** Fetches the counts from the server. Calls during a fetch cause one more fetch. */
const counting = { isUnderWay: false, isWanted: false };
async function count() {
  counting.isWanted = true;
  if (counting.isUnderWay) return;
  counting.isUnderWay = true;
  while (counting.isWanted) {
    counting.isWanted = false;
    try {
      const state = await (await fetch("/demo/state")).json();
      visitor = state.visitor;
      show(state.tally);
    } catch {
      // The counts stay unchanged; the list of requests shows the lost responses.
    }
  }
  counting.isUnderWay = false;
  showSnippet();
}

function show(tally) {
  for (const name of ["unguarded", "guarded"]) {
    const output = byId(`${name}-count`);
    if (output.textContent !== String(tally[name])) output.textContent = tally[name];
    byId(`${name}-score`).textContent = tally[name];
    byId(`${name}-unit`).textContent = word(tally[name] === 1 ? "order" : "orders");
  }
  for (const name of ["executed", "replayed", "refused", "failed"]) byId(`total-${name}`).textContent = tally[name];
  byId("total-unprotected").textContent = tally.unguarded;
}

function showSnippet() {
  const text = snippet(tab, { policy: policy(), handlerMode: handlerMode(), origin: location.origin, visitor });
  byId("snippet-text").replaceChildren(...withComments(text));
}

function switched() {
  const chosen = policy();
  const form = guarded.form;
  form.setAttribute("action", `/demo/orders/${chosen}`);
  // The SDK handles tokens only: the page generates keys itself, and an interval needs neither.
  form.toggleAttribute("data-onceward", chosen === "remembered" || chosen === "token");
  byId("policy-note").textContent = POLICY_NOTES[chosen];
  byId("handler-note").textContent = handlerNote(Object.fromEntries(handlerMode().split(", ").map((word) => [word, true])));
  guarded.submissions.end();
  showSnippet();
}

async function sendBoth() {
  for (const panel of [unguarded, guarded]) panel.startNewOrder();
  await guarded.ready();
  for (const panel of [unguarded, guarded, unguarded, guarded, unguarded, guarded]) panel.form.requestSubmit();
}

async function startOver() {
  try {
    await fetch("/demo/start-over", { method: "POST" });
  } catch {
    for (const panel of [unguarded, guarded]) panel.say(word("The server does not respond. The counts are unchanged."));
    return;
  }
  for (const panel of [unguarded, guarded]) panel.clear();
  for (const chart of Object.values(charts)) chart.clear();
  await count();
}

async function copy() {
  const text = byId("snippet-text");
  try {
    await navigator.clipboard.writeText(text.textContent);
    byId("copied").textContent = word("Copied.");
    byId("copy").textContent = word("Copied");
  } catch {
    // If the page may not write to the clipboard, it selects the text.
    getSelection().selectAllChildren(text);
    byId("copied").textContent = word("The text is selected. Copy it with your keyboard.");
    byId("copy").textContent = word("Selected");
  }
  setTimeout(() => (byId("copy").textContent = word("Copy")), 2000);
}

for (const input of document.querySelectorAll(".switches input")) input.addEventListener("change", switched);
byId("both").addEventListener("click", sendBoth);
byId("start-over").addEventListener("click", startOver);
byId("copy").addEventListener("click", copy);
keyboardTabs(document.querySelector("[role=tablist]"), (chosen) => {
  tab = chosen;
  showSnippet();
});
// Orders from a terminal (the curl tab) are counted when the page gets the focus.
addEventListener("focus", count);
switched();
count();

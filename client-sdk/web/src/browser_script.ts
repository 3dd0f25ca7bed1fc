// The script for a page: `<script src="/sdk/onceward.js" defer></script>` guards its forms and defines `window.onceward`.

import { createOnceward, type Onceward, type Options } from "./index.js";

declare global {
  interface Window {
    onceward: Onceward;
  }
}

const script = document.currentScript as HTMLScriptElement | null;
const { base, forms, patience = 10 } = script?.dataset ?? {};
// If the script comes from `/sdk/`, so do the tokens; otherwise they come from the page's origin.
const beside = script?.src.match(/^(.*)\/sdk\/onceward[^/]*\.js/)?.[1];

// A page may contain the script twice, for example its own and the one that a proxy adds: the first one guards the forms. An element with the id
// `onceward` is a property of `window` too, but has no `watch`.
if (!window.onceward?.watch) {
  (window.onceward = createOnceward({ baseUrl: base ?? beside, forms: forms as Options["forms"], patience: +patience * 1000 })).watch();
}

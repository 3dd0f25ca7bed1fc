// The script for a page: `<script src="/sdk/onceward.js" defer></script>` guards its forms and defines `window.onceward`.

import { createOnceward, type Onceward } from "./index.js";

declare global {
  interface Window {
    onceward: Onceward;
  }
}

const script = document.currentScript as HTMLScriptElement | null;
const { base, patience = 10 } = script?.dataset ?? {};
// If the script comes from `/sdk/`, so do the tokens; otherwise they come from the page's origin.
const beside = script?.src.match(/^(.*)\/sdk\/onceward[^/]*\.js/)?.[1];

window.onceward = createOnceward({ baseUrl: base ?? beside, patience: +patience * 1000 });
window.onceward.watch();

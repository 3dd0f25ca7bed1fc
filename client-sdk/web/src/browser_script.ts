// The script for a page: `<script src="/sdk/onceward.js" defer></script>` guards its forms and leaves `onceward` for the rest.

import { createOnceward, type Onceward } from "./index.js";

declare global {
  interface Window {
    onceward: Onceward;
  }
}

const script = document.currentScript as HTMLScriptElement | null;
const { base, patience = 10 } = script?.dataset ?? {};
// Served by Onceward itself, tokens come from beside it; from anywhere else, from the page's origin.
const beside = script?.src.match(/^(.*)\/sdk\/onceward[^/]*\.js/)?.[1];

window.onceward = createOnceward({ baseUrl: base ?? beside, patience: +patience * 1000 });
window.onceward.watch();

// The script for a page with htmx: `<script src="/sdk/onceward-htmx.js" defer></script>` instead of `onceward.js`, which it contains.

import "./browser_script.js";
import { watchHtmx } from "./htmx.js";
import type { Options } from "./index.js";

watchHtmx(window.onceward, (document.currentScript as HTMLScriptElement | null)?.dataset as Pick<Options, "forms">);

// The script for a page with Turbo: `<script src="/sdk/onceward-turbo.js" defer></script>` instead of `onceward.js`, which it contains.

import "./browser_script.js";
import { watchTurbo } from "./turbo.js";

watchTurbo(window.onceward);

// The script beside the browser SDK: `<script src="/sdk/onceward.zh-CN.js" defer></script>` sets the Chinese messages while `<html lang>` is
// Simplified Chinese.

import { chineseMessages } from "./chinese_messages.js";

const page = document.documentElement;
let former: typeof chineseMessages | undefined;

/** Sets the messages for the language of the page; a page that changes its language gets its former messages back. */
function choose(): void {
  const messages = window.onceward?.messages;
  if (!messages) return;
  const isChinese = /^zh(-(hans|cn|sg|my)\b|$)/i.test(page.lang);
  if (isChinese && !former) {
    former = { ...messages };
    Object.assign(messages, chineseMessages);
  } else if (!isChinese && former) {
    Object.assign(messages, former);
    former = undefined;
  }
}

choose();
// If this script precedes the SDK.
addEventListener("DOMContentLoaded", choose);
new MutationObserver(choose).observe(page, { attributeFilter: ["lang"] });

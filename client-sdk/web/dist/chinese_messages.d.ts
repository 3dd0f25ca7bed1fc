import type { Messages } from "./form_status.js";
/** The messages in Simplified Chinese: `Object.assign(onceward.messages, chineseMessages)`. */
export declare const chineseMessages: Messages;

// The words of the page that its scripts write, in the language of the page. English is the key of each.

export const CHINESE = {
  "One click is enough: the first is still waiting for its token.": "点击一次就够了：第一次点击仍在等待令牌。",
  "Waiting for the response.": "正在等待响应。",
  "The server does not respond. The counts are unchanged.": "服务器没有响应，计数未变。",
  "Nothing yet.": "暂无。",
  "Next submission": "下一次提交",
  "Submission {0}": "提交 {0}",
  "order {0}": "订单 {0}",
  "token {0}": "令牌 {0}",
  "key {0}": "幂等键 {0}",
  "no token": "没有令牌",
  "sent ": "发送 ",
  "response ": "响应 ",
  "in flight": "处理中",
  "response lost": "响应丢失",
  order: "个订单",
  orders: "个订单",
  Copy: "复制",
  Copied: "已复制",
  Selected: "已选中",
  "Copied.": "已复制。",
  "The text is selected. Copy it with your keyboard.": "文本已选中，请用键盘复制。",
  Unguarded: "无保护",
  Guarded: "有保护",
  "nothing sent yet.": "尚未发送。",
  "Submission {0}: {1}.": "提交 {0}：{1}。",
  unprotected: "个无保护",
  executed: "个已执行",
  replayed: "个收到已保存的响应",
  rejected: "个被拒绝",
  failed: "个失败",
  "without a response": "个没有响应",
};

/** Returns whether the page is in Chinese. A test has no page. */
export const isChinese = globalThis.document?.documentElement.lang === "zh-CN";

/** Returns a text in the language of the page, with these values in place of `{0}` and so on. */
export function word(english, ...values) {
  const text = isChinese ? CHINESE[english] : english;
  return values.reduce((text, value, at) => text.replace(`{${at}}`, () => value), text);
}

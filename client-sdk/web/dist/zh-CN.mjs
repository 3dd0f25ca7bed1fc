// src/chinese_messages.ts
var chineseMessages = {
  offline: "您已离线，内容没有发送。",
  noToken: "服务器暂时不可用，内容没有发送。",
  slow: "尚未收到响应，可以放心重新发送。",
  twice: "您之前已经提交过。",
  unknown: "您之前的提交可能已经送达。",
  confirm: "仍要提交"
};
export {
  chineseMessages
};

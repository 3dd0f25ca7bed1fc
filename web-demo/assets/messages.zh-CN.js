// The texts of the page in Chinese, as in messages.js. Chinese has no plural, so a message is a list of clauses.

export const POLICY_NOTES = {
  remembered: "服务器为表单签发令牌。第二次点击会收到已保存的响应。",
  token: "服务器为表单签发令牌。第二次点击会被拒绝：令牌已被使用。",
  key: "页面为每个订单生成幂等键。第二次点击会收到已保存的响应。",
  interval: "没有令牌，也没有幂等键：服务器在五秒内只接受同一访客的相同订单一次。",
};

/** Describes the handler for a combination of the settings. */
export function handlerNote({ slow, fails, loses }) {
  const when = slow ? "在 1.2 秒后" : "立即";
  if (fails) return `处理程序${when}失败，没有下单。${loses ? "没有订单，也就没有会丢失的响应。" : ""}`;
  if (loses) return `处理程序${when}下单，但连接在响应到达之前中断。`;
  return `处理程序${when}下单并响应${slow ? "，足够再点击一次" : ""}。`;
}

const AGAIN = {
  remembered: "请重新发送：令牌恢复有效。",
  token: "请重新发送：令牌恢复有效。",
  key: "请重新发送：幂等键可再次使用。",
  interval: "请重新发送：不算作重复提交。",
};

/** Describes the result of a submission to the guarded form. Each answer has a `kind`, a `status`, the number of its `order` if any, and a `text`. */
export function guardedMessage(policy, answers) {
  const count = counted(answers);
  const orders = [...new Set(answers.flatMap(({ order }) => order ?? []))].sort((a, b) => a - b);
  if (orders.length > 0) return placed(policy, orders, count) + others(policy, count);
  if (count.lost > 0) return unanswered(policy, count);
  const told = lastOf(answers, "failed") ?? lastOf(answers, "replayed");
  if (!told) return `已拒绝：${lastOf(answers, "refused").text}。`;
  const next = told.status < 500 ? "请更正后重新发送。" : AGAIN[policy];
  return told.text + several(count.failed) + clauses(replays(count), rejections(count)) + next;
}

/** The same for the form without a guard. */
export function unguardedMessage(_policy, answers) {
  const { unprotected: orders, failed, lost, refused } = counted(answers);
  if (orders === answers.length) return `点击 ${orders} 次，下了 ${orders} 单。`;
  if (lost === answers.length) {
    return lost === 1 ? "响应丢失。下单了吗？如果重新发送，可能会有两个订单。" : `${lost} 个响应丢失，可能有 ${lost} 个订单。`;
  }
  if (refused === answers.length) return `已拒绝：${lastOf(answers, "refused").text}。`;
  if (failed === answers.length) return `${lastOf(answers, "failed").text}${several(failed)}请重新发送。`;
  const parts = [orders && `${orders} 个订单`, failed && `${failed} 次失败`, refused && `${refused} 次被拒绝`];
  const doubt = lost === 0 ? "" : `另有 ${lost} 个响应丢失，可能也是订单。`;
  return `点击 ${answers.length} 次：${parts.filter(Boolean).join("，")}。${doubt}`;
}

function placed(policy, orders, count) {
  if (orders.length > 1) return `订单 ${orders.join("、")} 已下单，彼此间隔超过五秒。`;
  return policy === "interval" && count.lost > 0 ? `订单 ${orders[0]} 已下单。` : `订单 ${orders[0]} 已下单，仅此一单。`;
}

/** Describes the clicks that did not place the order. */
function others(policy, count) {
  if (count.lost > 0 && count.replayed > 0) {
    return `首次响应丢失，${count.replayed} 次点击重新收到了它。${clauses(failures(count), rejections(count))}`;
  }
  const unheard = count.lost > 0 && `${count.lost} 次点击没有收到响应${policy === "interval" ? "，可能是另一个订单" : ""}`;
  return clauses(replays(count), failures(count), rejections(count), unheard);
}

/** Describes a submission with lost responses, none of whose other responses names an order. */
function unanswered(policy, count) {
  const first = clauses(`${count.lost} 个响应丢失`, failures(count), rejections(count));
  if (policy === "interval") return `${first}五秒内重新发送，只算一次。`;
  return first + (count.refused > 0 ? "无论发送多少遍，都只算一次。" : "请重新发送：只算一次。");
}

function counted(answers) {
  const count = { unprotected: 0, executed: 0, replayed: 0, refused: 0, failed: 0, lost: 0 };
  for (const { kind } of answers) count[kind] += 1;
  return count;
}

function lastOf(answers, kind) {
  return answers.findLast((answer) => answer.kind === kind);
}

const replays = ({ replayed }) => replayed > 0 && `另有 ${replayed} 次点击收到相同的响应`;
const rejections = ({ refused }) => refused > 0 && `另有 ${refused} 次点击被拒绝`;
const failures = ({ failed }) => failed > 0 && `${failed} 次点击失败，没有下单`;
const several = (failed) => (failed > 1 ? `${failed} 次点击失败。` : "");

function clauses(...parts) {
  const all = parts.filter(Boolean);
  return all.length > 0 ? `${all.join("；")}。` : "";
}

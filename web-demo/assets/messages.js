// The texts of the page: the meaning of the settings, and the result of a submission. Pure functions: a test compares every sentence with the
// counts of the server.

export const POLICY_NOTES = {
  remembered: "The server issues a token for the form. A second click receives the stored response.",
  token: "The server issues a token for the form. A second click is rejected: the token is used.",
  key: "The page creates a key for each order. A second click receives the stored response.",
  interval: "No token, no key: the server accepts the same order from the same visitor once in five seconds.",
};

/** Describes the handler for a combination of the settings. */
export function handlerNote({ slow, fails, loses }) {
  const when = slow ? "after 1.2 seconds" : "at once";
  if (fails) return `The handler fails ${when}, and nothing is ordered.${loses ? " There is no order whose response could be lost." : ""}`;
  if (loses) return `The handler places the order ${when}, but the connection breaks before the response arrives.`;
  return `The handler places the order and responds ${when}${slow ? ": time enough to click again" : ""}.`;
}

const AGAIN = {
  remembered: "Send it again: the token is valid again.",
  token: "Send it again: the token is valid again.",
  key: "Send it again: the key is free again.",
  interval: "Send it again: it does not count as a duplicate.",
};

/** Describes the result of a submission to the guarded form. Each answer has a `kind`, a `status`, the number of its `order` if any, and a `text`. */
export function guardedMessage(policy, answers) {
  const count = counted(answers);
  const orders = [...new Set(answers.flatMap(({ order }) => order ?? []))].sort((a, b) => a - b);
  if (orders.length > 0) return sentences(placed(policy, orders, count), ...others(policy, count));
  if (count.lost > 0) return unanswered(policy, count);
  const told = lastOf(answers, "failed") ?? lastOf(answers, "replayed");
  if (!told) return `Rejected: ${lastOf(answers, "refused").text}.`;
  const next = told.status < 500 ? "Correct it and send it again." : AGAIN[policy];
  return sentences(told.text, several(count.failed), sentence(replays(count), rejections(count)), next);
}

/** The same for the form without a guard. */
export function unguardedMessage(_policy, answers) {
  const { unprotected: orders, failed, lost, refused } = counted(answers);
  if (orders === answers.length) return orders === 1 ? "One click, one order." : `${orders} clicks, ${orders} orders.`;
  if (lost === answers.length) {
    return lost === 1 ? "Response lost. Was it ordered? If you send it again, there may be two orders." : `${lost} responses lost. There may be ${lost} orders.`;
  }
  if (refused === answers.length) return `Rejected: ${lastOf(answers, "refused").text}.`;
  if (failed === answers.length) return sentences(lastOf(answers, "failed").text, several(failed), "Send it again.");
  const parts = [orders && `${orders} ${orders === 1 ? "order" : "orders"}`, failed && `${failed} failed`, refused && `${refused} rejected`];
  const doubt = lost === 0 ? "" : lost === 1 ? " The other response was lost; it may be an order too." : ` The other ${lost} responses were lost; they may be orders too.`;
  return `${clicks(answers.length)}: ${listed(parts)}.${doubt}`;
}

function placed(policy, orders, count) {
  if (orders.length > 1) return `Orders ${listed(orders)} are placed, each more than five seconds after the last.`;
  return policy === "interval" && count.lost > 0 ? `Order ${orders[0]} is placed.` : `Order ${orders[0]} is placed, once.`;
}

/** Describes the clicks that did not place the order. */
function others(policy, count) {
  if (count.lost > 0 && count.replayed > 0) {
    return [`The first response was lost; ${clicks(count.replayed)} received it again.`, sentence(failures(count), rejections(count))];
  }
  const unheard = count.lost > 0 && `${clicks(count.lost)} received no response${policy === "interval" ? " and may be another order" : ""}`;
  return [sentence(replays(count), failures(count), rejections(count), unheard)];
}

/** Describes a submission with lost responses, none of whose other responses names an order. */
function unanswered(policy, count) {
  const begin = count.lost === 1 ? "Response lost" : `${count.lost} responses lost`;
  const rest = listed([failures(count), rejections(count)]);
  const first = rest ? `${begin}; ${rest}.` : `${begin}.`;
  if (policy === "interval") return `${first} Sent again within five seconds, it counts once.`;
  return `${first} ${count.refused > 0 ? "However often it is sent, it counts once." : "Send it again: it counts once."}`;
}

function counted(answers) {
  const count = { unprotected: 0, executed: 0, replayed: 0, refused: 0, failed: 0, lost: 0 };
  for (const { kind } of answers) count[kind] += 1;
  return count;
}

function lastOf(answers, kind) {
  return answers.findLast((answer) => answer.kind === kind);
}

const replays = ({ replayed }) => replayed > 0 && `${clicks(replayed, "more")} received the same response`;
const rejections = ({ refused }) => refused > 0 && `${clicks(refused, "more")} ${refused === 1 ? "was" : "were"} rejected`;
const failures = ({ failed }) => failed > 0 && `${clicks(failed)} failed without an order`;
const several = (failed) => (failed > 1 ? `${failed} clicks failed.` : "");

function sentence(...parts) {
  const list = listed(parts);
  return list && `${list}.`;
}

function clicks(count, more = "") {
  return [count, more, count === 1 ? "click" : "clicks"].filter((word) => word !== "").join(" ");
}

function listed(parts) {
  const all = parts.filter(Boolean);
  return all.length < 3 ? all.join(" and ") : `${all.slice(0, -1).join(", ")} and ${all.at(-1)}`;
}

function sentences(...parts) {
  return parts.filter(Boolean).join(" ");
}

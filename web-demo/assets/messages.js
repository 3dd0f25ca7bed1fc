// What is said to people: what the switches mean, and what became of a submission.

export const NOTES = {
  remembered: "We issue a token for the form. A second click gets the first answer again.",
  token: "We issue a token for the form. A second click is refused: it was used.",
  key: "The page makes a key for each order. A second click gets the first answer again.",
  interval: "Nobody makes anything. The same order from the same visitor is taken once in five seconds.",
  slow: "The handler takes 1.2 seconds: time enough to click again.",
  fails: "The handler fails before it orders, so nothing has happened and the same may be sent again.",
  loses: "The order is placed, and the connection is cut before the answer has arrived.",
  well: "The handler orders and answers at once.",
};

export function guardedMessage({ kinds, order, told, isAnswered }) {
  if (!isAnswered) return "No answer has come. Send it again: it counts once.";
  const placed = order === null ? "" : `Order ${order} is placed, once.`;
  if (kinds.lost && kinds.replayed) return `${placed} Its first answer was lost; ${clicks(kinds.replayed)} got it again.`;
  if (kinds.replayed) return `${placed} ${clicks(kinds.replayed, "more")} got the same answer.`;
  if (kinds.refused && order !== null) return `${placed} ${clicks(kinds.refused, "more")} ${kinds.refused === 1 ? "was" : "were"} refused.`;
  if (order !== null) return placed;
  return kinds.failed ? `${told} Send it again: it is still good.` : `Refused. ${told}`;
}

export function unguardedMessage({ kinds, told, isAnswered }) {
  if (!isAnswered) return "No answer has come. Was it ordered? Send it again, and there may be two.";
  const orders = kinds.unprotected ?? 0;
  if (kinds.failed && !orders) return `${told} Send it again.`;
  if (orders === 0) return told;
  const placed = orders === 1 ? "One click, one order." : `${orders} clicks, ${orders} orders.`;
  return kinds.lost ? `${placed} ${clicks(kinds.lost)} without an answer: was that ordered too?` : placed;
}

function clicks(count, more = "") {
  return [count, more, count === 1 ? "click" : "clicks"].filter((word) => word !== "").join(" ");
}

// A submission is one intention of a person, however often it is sent. With a token it is the SDK that tells them apart; where
// there is none, the same rule is kept here: what is sent again unchanged is the same, what is edited after an answer is
// another.

export class Submissions {
  #form;
  #current = null;
  #tokens = new Map();
  #number = 0;

  constructor(form) {
    this.#form = form;
  }

  /** A token is being fetched, for a submission that has not begun. */
  upcoming() {
    return begun();
  }

  /** The token has come: whatever carries it is this submission. */
  issued(submission, token) {
    submission.carrier = `token ${abbreviated(token)}`;
    this.#tokens.set(token, submission);
  }

  /** What a click with this token belongs to. */
  withToken(token) {
    if (!this.#tokens.has(token)) this.issued(begun(), token);
    return this.#numbered(this.#tokens.get(token));
  }

  /** What a click without a token belongs to; with a key, if there is to be one. */
  withoutToken(hasKey) {
    const content = new URLSearchParams(orderOf(this.#form)).toString();
    const last = this.#current;
    const isAnother = !last || (last.content !== content && last.isAnswered);
    if (!isAnother) return last;
    const key = hasKey ? randomKey() : null;
    this.#current = this.#numbered({ ...begun(), content, key, carrier: key && `key ${abbreviated(key)}` });
    return this.#current;
  }

  /** The next click without a token is another submission. */
  end() {
    this.#current = null;
  }

  #numbered(submission) {
    submission.number ??= ++this.#number;
    return submission;
  }
}

/** The order as it is sent, without what the SDK adds to the form. */
export function orderOf(form) {
  const order = new FormData(form);
  order.delete("_onceward");
  return order;
}

/** A token or key as it may be shown: enough to tell two apart, and never whole. */
export function abbreviated(secret) {
  return `${secret.slice(0, secret.startsWith("ow1_") ? 10 : 6)}…`;
}

function begun() {
  return { number: undefined, carrier: null, isAnswered: false, underWay: 0, answers: [], answer: null };
}

/** Not randomUUID, which a page that came without TLS does not have. */
function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

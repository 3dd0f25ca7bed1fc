// A submission is one user intention, across all its requests. With a token, the SDK distinguishes submissions. Without one, the same rule is
// implemented here: unchanged content is the same submission, content edited after a response is a new one.

import { word } from "./words.js";

export class Submissions {
  #form;
  #current = null;
  #tokens = new Map();
  #number = 0;

  constructor(form) {
    this.#form = form;
  }

  /** Creates a submission that has not started, for which a token is being fetched. */
  upcoming() {
    return begun();
  }

  /** Assigns a token to a submission. */
  issued(submission, token) {
    submission.carrier = word("token {0}", abbreviated(token));
    this.#tokens.set(token, submission);
  }

  /** Returns the submission of a click with this token. */
  withToken(token) {
    if (!this.#tokens.has(token)) this.issued(begun(), token);
    return this.#numbered(this.#tokens.get(token));
  }

  /** Returns the submission of a click without a token. A new one gets a key if `hasKey` is true. */
  withoutToken(hasKey) {
    const content = new URLSearchParams(orderOf(this.#form)).toString();
    const last = this.#current;
    const isAnother = !last || (last.content !== content && last.isAnswered);
    if (!isAnother) return last;
    const key = hasKey ? randomKey() : null;
    this.#current = this.#numbered({ ...begun(), content, key, carrier: key && word("key {0}", abbreviated(key)) });
    return this.#current;
  }

  /** Ends the current submission: the next click without a token starts a new one. */
  end() {
    this.#current = null;
  }

  #numbered(submission) {
    submission.number ??= ++this.#number;
    return submission;
  }
}

/** Returns the fields of the order, without the token that the SDK adds to the form. */
export function orderOf(form) {
  const order = new FormData(form);
  order.delete("_onceward");
  return order;
}

/** Shortens a token or key for display: enough to distinguish two, and never complete. */
export function abbreviated(secret) {
  return `${secret.slice(0, secret.startsWith("ow1_") ? 10 : 6)}…`;
}

function begun() {
  return { number: undefined, carrier: null, isAnswered: false, underWay: 0, answers: [], answer: null };
}

/** Generates a key. `crypto.randomUUID` is not available on a page without TLS. */
function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The value of an `Idempotency-Key` header.

/**
 * Parses the header: a quoted string (RFC 9651) or the bare text, which give the same key. Returns `undefined` if it is malformed. A bare
 * key has no quote, comma or semicolon: a proxy may merge two headers into `a, b`.
 */
export function parseKey(header: string): string | undefined {
  const value = header.trim();
  const key = value.startsWith('"') ? unquote(value) : bare(value);
  return key !== undefined && /^[!-~]{1,255}$/.test(key) ? key : undefined;
}

function bare(value: string): string | undefined {
  return /[",;]/.test(value) ? undefined : value;
}

function unquote(value: string): string | undefined {
  const [, text] = /^"((?:[^"\\]|\\["\\])*)"$/.exec(value) ?? [];
  return text?.replace(/\\(["\\])/g, "$1");
}

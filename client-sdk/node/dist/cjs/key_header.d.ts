/**
 * Parses the header: a quoted string (RFC 9651) or the bare text, which give the same key. Returns `undefined` if it is malformed. A bare
 * key has no quote, comma or semicolon: a proxy may merge two headers into `a, b`.
 */
export declare function parseKey(header: string): string | undefined;

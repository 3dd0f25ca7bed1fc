"""The value of an `Idempotency-Key` header."""

from __future__ import annotations

import re


def parse_key(header: str) -> str | None:
    """Parses the header: a quoted string (RFC 9651) or the bare text, which give the same key. Returns `None` if it is malformed.

    A bare key has no quote, comma or semicolon: a server or proxy may join two headers to `a,b`.
    """
    value = header.strip(" \t")
    key = unquoted(value) if value.startswith('"') else bare(value)
    return key if key is not None and re.fullmatch(r"[!-~]{1,255}", key) else None


def bare(value: str) -> str | None:
    """Returns the text of a value without quotes."""
    return None if re.search('[",;]', value) else value


def unquoted(value: str) -> str | None:
    """Returns the text of a quoted value, whose backslashes stand before quotes and other backslashes only."""
    quoted = re.fullmatch(r'"((?:[^"\\]|\\["\\])*)"', value, re.DOTALL)
    return re.sub(r'\\(["\\])', r"\1", quoted[1]) if quoted else None

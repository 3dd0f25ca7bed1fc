"""The fingerprint of a request: a digest that shows whether two requests under one key have the same content."""

from __future__ import annotations

import hashlib
from email.message import Message


def media_type(content_type: str) -> str:
    """Returns a content type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def boundary(content_type: str) -> bytes:
    """Returns the boundary of a multipart body, empty if there is none."""
    message = Message()
    message["content-type"] = content_type
    return str(message.get_param("boundary") or "").encode("latin-1", "replace")


def fingerprint(method: str, path: str, query: str, content_type: str, body: bytes) -> str:
    """Returns the digest of method, path, query, media type and body.

    The body is compared by its bytes, also JSON. Only the boundary of a multipart body is left out: browsers create another one for each
    attempt.
    """
    kind = media_type(content_type)
    if kind.startswith("multipart/") and (mark := boundary(content_type)):
        body = body.replace(b"--" + mark, b"--")
    digest = hashlib.sha256()
    for part in (method.encode(), path.encode(), query.encode(), kind.encode(), body):
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.hexdigest()

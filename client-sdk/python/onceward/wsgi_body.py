"""The body of a WSGI request."""

from __future__ import annotations

import io
from typing import Any

from .problem import Rejected
from .protection import Protection

Environ = dict[str, Any]

#: The maximum size of a rejected body that is read.
DRAINED = 4 * 1024 * 1024


def read_body(environ: Environ, protection: Protection) -> bytes:
    """Reads the body, and puts it back for the application."""
    declared = environ.get("CONTENT_LENGTH") or ""
    limit = protection.body_limit
    if declared.isdigit():
        if int(declared) > limit:
            drain(environ["wsgi.input"], int(declared))
            raise protection.too_large()
        body = read_to_end(environ, int(declared))
        if len(body) < int(declared):
            raise Rejected.as_code("bad_request", "The body ended early.")
    elif environ.get("wsgi.input_terminated") or environ.get("HTTP_TRANSFER_ENCODING"):
        body = read_to_end(environ, limit + 1)
        if len(body) > limit:
            drain(environ["wsgi.input"], DRAINED)
            raise protection.too_large()
        environ.pop("HTTP_TRANSFER_ENCODING", None)
    else:
        body = b""
    environ["wsgi.input"], environ["CONTENT_LENGTH"] = io.BytesIO(body), str(len(body))
    return body


def read_to_end(environ: Environ, length: int) -> bytes:
    """Reads up to a length."""
    body = bytearray()
    try:
        while len(body) < length and (chunk := environ["wsgi.input"].read(length - len(body))):
            body += chunk
    except OSError as error:
        raise Rejected.as_code("bad_request", "The body ended early.") from error
    return bytes(body)


def drain(stream: Any, left: int) -> None:
    """Reads a body that is not used, so that the client has sent it before it receives the response. A much larger one is cut off."""
    left = min(left, DRAINED)
    try:
        while left > 0 and (chunk := stream.read(min(left, 65536))):
            left -= len(chunk)
    except OSError:
        pass  # The client has left.

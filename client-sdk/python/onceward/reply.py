"""A response that is stored for duplicates."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

#: The headers that describe the body of a response. They are stored by default.
KEPT = frozenset(
    {
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-type",
        "etag",
        "link",
        "location",
        "vary",
    }
)
#: Headers that are never stored, even if they are named: they would reveal a client's credentials, or break the connection of the replay.
NEVER_KEPT = frozenset(
    {
        "authorization",
        "connection",
        "content-length",
        "date",
        "idempotent-replayed",
        "keep-alive",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "www-authenticate",
    }
)
#: The maximum size of a body that is stored.
LIMIT = 1024 * 1024


@dataclass(frozen=True)
class Reply:
    """The status, headers and body of a response that duplicates receive."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = field(default=b"", repr=False)

    @classmethod
    def json(cls, value: Any, status: int = 200) -> Reply:
        """Creates a reply with a JSON body."""
        return cls(status, (("content-type", "application/json"),), json.dumps(value).encode())

    def value(self) -> Any:
        """Parses the JSON body."""
        return json.loads(self.body)

    def to_wire(self) -> dict[str, Any]:
        """Returns the reply as the service expects it."""
        headers = [list(header) for header in self.headers]
        return {"status": self.status, "headers": headers, "body": base64.b64encode(self.body).decode()}

    @classmethod
    def from_wire(cls, reply: dict[str, Any]) -> Reply:
        """Parses a reply of the service."""
        headers = tuple((str(name), str(value)) for name, value in reply.get("headers", ()))
        return cls(reply["status"], headers, base64.b64decode(reply.get("body", "")))


def has_body(status: int) -> bool:
    """Returns whether a response with this status has a body, by HTTP."""
    return status >= 200 and status not in (204, 304)


def kept_headers(headers: Iterable[tuple[str, str]], named: Collection[str] = ()) -> tuple[tuple[str, str], ...]:
    """Returns the headers that are stored: those that describe the body, and those that the application names."""
    lower = ((name.lower(), value) for name, value in headers)
    return tuple((name, value) for name, value in lower if name not in NEVER_KEPT and (name in KEPT or name in named))

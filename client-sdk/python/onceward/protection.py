"""What a middleware protects, and how it reads a request: the part that all frameworks share."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from .client import Onceward
from .effect import Effect, Policy
from .fingerprint import fingerprint
from .form_token import token_field
from .intent import Intent, subject_id
from .problem import Rejected
from .reply import LIMIT, Reply, kept_headers
from .result import Settled

#: The default of `body_limit`.
BODY_LIMIT = 256 * 1024
#: Methods that are never claimed.
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


@dataclass(frozen=True)
class Request:
    """A request, as the application's functions see it."""

    method: str
    path: str
    query: str
    #: The headers by their names in lower case. Several of one name are joined by commas.
    headers: Mapping[str, str]
    #: The ASGI scope, the WSGI environ, or the HttpRequest of Django.
    raw: Any
    body: bytes = field(default=b"", repr=False)


Subject = Callable[[Any], Any]


class Rules(TypedDict, total=False):
    """The settings of a middleware besides the subject. Durations are in seconds."""

    #: The protected paths, such as `/orders/{id}`. Without it, all paths are protected.
    path: str | Collection[str]
    #: True: the submission is identified by a token that Onceward issued, in place of an `Idempotency-Key`.
    token: bool
    #: True: accept only tokens that were issued for this action.
    bound: bool
    #: False: after a crash the key is free when its lease expires, so the handler may run again.
    at_most_once: bool
    #: The operation. By default the method and the path.
    action: str
    lease: float
    #: The time that a duplicate waits for the first run.
    wait: float
    #: The time for which the stored response is kept.
    retain: float
    #: The maximum size of a body, 256 KiB by default.
    body_limit: int
    #: Names of response headers that are stored besides those that describe the body.
    keep_headers: Collection[str]


class Protection:
    """The rules of the routes behind one middleware."""

    def __init__(self, onceward: Onceward | None, subject: Subject | str | None, rules: Rules) -> None:
        if not subject:
            raise TypeError(
                "subject is required: pass a function that returns the id of the client, such as "
                "subject=lambda request: request.headers.get('x-user'), or subject='anonymous' if all clients are one"
            )
        self.onceward = onceward or Onceward()
        self.subject = subject
        is_retryable = not rules.get("at_most_once", True)
        self.policy = Policy.TOKEN if rules.get("token") else Policy.RETRYABLE if is_retryable else Policy.AT_MOST_ONCE
        self.body_limit = rules.get("body_limit", BODY_LIMIT)
        self._rules = rules
        path = rules.get("path")
        self._paths = None if path is None else [pattern(each) for each in ([path] if isinstance(path, str) else path)]
        self._named = frozenset(name.lower() for name in rules.get("keep_headers", ()))

    def covers(self, method: str, path: str) -> bool:
        """Returns whether a request is protected."""
        return method not in SAFE and (self._paths is None or any(each.fullmatch(path) for each in self._paths))

    def too_large(self) -> Rejected:
        """Creates the rejection of a body above the limit."""
        detail = f"The body is larger than {self.body_limit} bytes, the limit of this route."
        return Rejected.as_code("body_too_large", detail)

    def intent(self, request: Request, subject: object) -> Intent:
        """Returns what a request asks for. Raises `Rejected` if it lacks a part."""
        if not subject:
            raise Rejected.as_code("unauthorized")
        content_type = request.headers.get("content-type", "")
        is_token = self.policy is Policy.TOKEN
        return Intent(
            action=self._rules.get("action") or f"{request.method} {request.path}",
            subject=subject_id(subject),
            key=None if is_token else key_of(request.headers.get("idempotency-key")),
            token=token_of(request.headers.get("onceward-token"), content_type, request.body) if is_token else None,
            fingerprint=fingerprint(request.method, request.path, request.query, content_type, request.body),
            at_most_once=self.policy is not Policy.RETRYABLE,
            bound=self._rules.get("bound", False),
            lease=self._rules.get("lease"),
            wait=self._rules.get("wait", 0.0),
            retain=self._rules.get("retain"),
        )

    def reply(self, status: int, headers: Iterable[tuple[str, str]], body: bytes | None) -> Reply | None:
        """Returns the stored form of a response; `None` if its body is streamed or too large."""
        if body is None or len(body) > LIMIT:
            return None
        return Reply(status, kept_headers(headers, self._named), body)


def pattern(path: str) -> re.Pattern[str]:
    """Compiles a path such as `/orders/{id}`, in which each name stands for one segment."""
    return re.compile("[^/]+".join(re.escape(part) for part in re.split(r"\{[^}]*\}", path)))


def key_of(header: str | None) -> str:
    """Returns the key in an `Idempotency-Key` header, bare or in quotes."""
    if header is None or not header:
        raise Rejected.as_code("key_missing")
    key = header[1:-1] if len(header) > 1 and header[0] == header[-1] == '"' else header
    if not re.fullmatch(r"[!-~]{1,255}", key):
        raise Rejected.as_code("key_malformed")
    return key


def token_of(header: str | None, content_type: str, body: bytes) -> str:
    """Returns the token of a request: from its header, otherwise from the field of its form."""
    token = header or token_field(content_type, body)
    if not token:
        raise Rejected.as_code("token_missing")
    return token


def is_look(headers: Mapping[str, str]) -> bool:
    """Returns whether the client asks for the stored response only, so that nothing may run."""
    look = headers.get("onceward-look", "false")
    if look not in ("true", "false"):
        raise Rejected.as_code("bad_request", "Onceward-Look has to be true or false.")
    return look == "true"


def replay_headers(reply: Reply) -> list[tuple[str, str]]:
    """Returns the headers of a replayed response."""
    length = [] if reply.status in (204, 304) else [("content-length", str(len(reply.body)))]
    return [*reply.headers, *length, ("idempotent-replayed", "true"), *outcome_headers("replayed")]


def outcome_headers(outcome: str) -> list[tuple[str, str]]:
    """Returns the headers that report an outcome."""
    return [("onceward-outcome", outcome), ("server-timing", f"onceward;desc={outcome}")]


def outcome(effect: Effect, settled: Settled | None) -> str:
    """Returns the outcome to report. If an effect could not be recorded, a duplicate may run, and the outcome shows that."""
    match effect, settled:
        case Effect.UNKNOWN, _:
            return "unknown"
        case Effect.APPLIED, Settled.RECORDED:
            return "executed"
        case Effect.NOT_APPLIED, Settled.RECORDED:
            return "not_applied"
        case Effect.NOT_APPLIED, Settled.PENDING:
            return "not_released"
        case _:
            return "unprotected"


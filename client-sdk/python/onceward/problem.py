"""Problems (RFC 9457): why a request was rejected, and the next step."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Problem:
    """A rejection, as the client receives it."""

    status: int
    code: str
    #: The next step: `same` (send the same request again), `new_token` or `no`.
    retry: str
    body: bytes = field(repr=False)
    content_type: str = "application/problem+json"
    #: Seconds until the next attempt, as the `Retry-After` header has them.
    retry_after: str | None = None

    def headers(self) -> list[tuple[str, str]]:
        """Returns the headers of the response to the client."""
        headers = [
            ("content-type", self.content_type),
            ("content-length", str(len(self.body))),
            ("cache-control", "no-store"),
            ("onceward-outcome", self.code),
            ("onceward-retry", self.retry),
            ("server-timing", f"onceward;desc={self.code}"),
        ]
        return headers + ([("retry-after", self.retry_after)] if self.retry_after else [])

    @property
    def detail(self) -> str:
        """The cause and the next step, for people."""
        return str(json.loads(self.body).get("detail", ""))

    @classmethod
    def create(cls, code: str, detail: str | None = None, path: str | None = None) -> Problem:
        """Creates a problem of the package itself."""
        status, retry, title, usual = _OWN[code]
        body: dict[str, Any] = {"type": f"/problems/{code}", "title": title, "status": status, "detail": detail or usual}
        body |= {"code": code, "retry": retry} | ({"instance": path} if path else {})
        return cls(status, code, retry, json.dumps(body).encode(), retry_after="1" if retry == "same" else None)

    @classmethod
    def parse(cls, status: int, body: bytes, content_type: str, retry_after: str | None) -> Problem | None:
        """Reads a problem of the service. Returns `None` if the response is not one."""
        try:
            problem = json.loads(body)
            code, retry = problem["code"], problem["retry"]
        except (ValueError, TypeError, KeyError):
            return None
        if not (isinstance(code, str) and isinstance(retry, str)):
            return None
        return cls(status, code, retry, body, content_type, retry_after)


class OncewardError(Exception):
    """The base class: the work must not run, or must not go on."""


class Rejected(OncewardError):
    """The request was rejected: nothing ran."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"rejected as {problem.code}")
        self.problem = problem

    @property
    def code(self) -> str:
        """The reason, for programs."""
        return self.problem.code

    @classmethod
    def as_code(cls, code: str, detail: str | None = None) -> Rejected:
        """Creates a rejection of the package itself."""
        return cls(Problem.create(code, detail))


_OWN = {
    "token_missing": (
        400,
        "new_token",
        "A token is missing",
        "This submission needs a one-time token, in the Onceward-Token header or the _onceward field. Fetch one and send again.",
    ),
    "redeem_unknown": (
        503,
        "new_token",
        "The check could not be finished",
        "The answer to the redemption of the token was lost. This request ran nothing, but its token may be used. Fetch a new one and "
        "send again.",
    ),
    "key_missing": (
        400,
        "no",
        "The idempotency key is missing",
        "This submission needs an idempotency key, chosen by the client and the same for every retry.",
    ),
    "key_malformed": (
        400,
        "no",
        "The idempotency key is malformed",
        "An idempotency key is 1 to 255 visible ASCII characters, sent once.",
    ),
    "bad_request": (
        400,
        "no",
        "The request is invalid",
        "Part of the request is missing or malformed. Nothing ran.",
    ),
    "unauthorized": (
        401,
        "no",
        "Authentication required",
        "The subject of this request could not be identified. Sign in or send credentials.",
    ),
    "not_found": (404, "no", "Not found", "No record exists for this submission."),
    "in_progress": (
        409,
        "same",
        "The first request is still running",
        "The same submission is still in flight. Send the same request again in a moment.",
    ),
    "outcome_unknown": (
        409,
        "no",
        "The outcome is unknown",
        "The first request started, and its outcome was never recorded. It does not run again until the application or an operator "
        "settles it.",
    ),
    "reply_not_kept": (
        409,
        "no",
        "The first response was not stored",
        "It was carried out; no response was stored, so it cannot be sent again.",
    ),
    "body_too_large": (413, "no", "The body is too large", "The body exceeds the size limit. Nothing ran."),
    "store_unavailable": (
        503,
        "same",
        "The store is unavailable",
        "The store is unavailable, so duplicates cannot be detected. Nothing ran. Send the same request again in a moment.",
    ),
}

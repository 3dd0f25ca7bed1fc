"""The answer of the service to one call, or its absence."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any

from .problem import Problem, Rejected

log = logging.getLogger("onceward")


@dataclass(frozen=True)
class Answer:
    """The answer to one call. The status is 0 if there is none."""

    status: int = 0
    body: bytes = field(default=b"", repr=False)
    content_type: str = ""
    retry_after: str | None = None
    #: False if the call certainly did not reach the service.
    was_sent: bool = True

    @property
    def is_verdict(self) -> bool:
        """True if the service has processed the call. Anything else is no verdict, but a fault, or a gateway's answer."""
        return self.is_done or self.is_rejection or self._value() is not None

    @property
    def is_done(self) -> bool:
        """True if the service has carried out a call that has no result, such as a completion. A page of a gateway has a body."""
        return self.status == 204

    @property
    def is_rejection(self) -> bool:
        """True if the service has rejected the call. A 4xx without a problem is a gateway's."""
        return self._rejection() is not None

    def json(self, *names: str) -> dict[str, Any]:
        """Returns the result of the call, which has these members. Raises `Rejected` otherwise: without a verdict, nothing runs."""
        value = self._value()
        if value is None or not value.keys() >= set(names):
            raise Rejected(self.problem())
        return value

    def problem(self) -> Problem:
        """Returns the problem for the client. A fault of the service or of its configuration becomes `store_unavailable`."""
        if problem := self._rejection():
            return problem
        if self.status == 401:
            log.error("Onceward rejects this backend: ONCEWARD_API_KEY is missing or wrong")
        elif 0 < self.status < 500:
            log.error("the URL of Onceward answers with status %d, but not as Onceward does; check ONCEWARD_URL", self.status)
        return Problem.create("store_unavailable")

    def _rejection(self) -> Problem | None:
        # A 401 rejects the API key: the client of the application has nothing to do with it.
        if not 400 <= self.status < 500 or self.status == 401:
            return None
        return Problem.parse(self.status, self.body, self.content_type, self.retry_after)

    def _value(self) -> dict[str, Any] | None:
        if self.status not in (200, 201):
            return None
        try:
            value = json.loads(self.body)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

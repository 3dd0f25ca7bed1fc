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
    def is_processed(self) -> bool:
        """True if the service has processed the call. It has not without the right API key."""
        return 0 < self.status < 500 and self.status != 401

    def json(self) -> dict[str, Any]:
        """Parses the body of a success. Anything else is a rejection: without a verdict, nothing runs."""
        if self.status in (200, 201):
            try:
                value = json.loads(self.body)
            except ValueError:
                value = None
            if isinstance(value, dict):
                return value
        raise Rejected(self.problem())

    def problem(self) -> Problem:
        """Returns the problem for the client. A fault of the service or of its configuration becomes `store_unavailable`."""
        if self.status == 401:
            log.error("Onceward rejects this backend: ONCEWARD_API_KEY is missing or wrong")
        elif 400 <= self.status < 500:
            problem = Problem.parse(self.status, self.body, self.content_type, self.retry_after)
            if problem is not None:
                return problem
            log.error("the URL of Onceward answers with status %d and no problem; check ONCEWARD_URL", self.status)
        return Problem.create("store_unavailable")

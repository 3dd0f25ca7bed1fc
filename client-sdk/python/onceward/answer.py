"""The answer of the service to one call, or its absence."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field, replace
from typing import Any

from .problem import Problem, Rejected

log = logging.getLogger("onceward")

#: The rejections of what the application has set, such as a lease of two hours or a URL with another path. The client of the application has
#: nothing to do with them. The service sends no `not_found` for a record.
FAULTS_OF_THE_BACKEND = frozenset({"bad_request", "method_not_allowed", "not_found", "unsupported_media_type"})


@dataclass(frozen=True)
class Answer:
    """The answer to one call. The status is 0 if there is none."""

    status: int = 0
    body: bytes = field(default=b"", repr=False)
    content_type: str = ""
    retry_after: str | None = None
    #: False if this try of the call certainly did not reach the service.
    was_sent: bool = True
    #: Why there is no answer.
    error: Exception | None = field(default=None, repr=False)
    #: True if an earlier try of the same call may have been executed.
    follows_unknown: bool = False

    def after(self, earlier: Answer) -> Answer:
        """Returns this answer as that to a repetition of a call."""
        return replace(self, follows_unknown=self.follows_unknown or earlier.may_be_executed)

    @property
    def may_be_executed(self) -> bool:
        """True if a try of the call was sent, and no answer says whether the service has executed it."""
        if self.follows_unknown:
            return True
        if not self.was_sent or self.status == 401:
            return False
        problem = self._problem()
        return problem is None or problem.code == "redeem_unknown"

    @property
    def is_verdict(self) -> bool:
        """True if the service has processed the call. Anything else is no verdict, but a fault, or a gateway's answer."""
        return self.is_done or self.is_rejection or self.value() is not None

    @property
    def is_done(self) -> bool:
        """True if the service has carried out a call that has no result, such as a completion. A page of a gateway has a body."""
        return self.status == 204

    @property
    def is_rejection(self) -> bool:
        """True if the service has rejected the call. A 4xx without a problem is a gateway's."""
        return self._rejection() is not None

    @property
    def is_rejection_by_record(self) -> bool:
        """True if the state of the record has caused the rejection. Another says only that this call was not carried out."""
        return self.is_rejection and self.status in (403, 409, 410, 422)

    def json(self, *names: str) -> dict[str, Any]:
        """Returns the result of the call, which has these members. Raises `Rejected` otherwise: without a verdict, nothing runs."""
        value = self.value()
        if value is None or not value.keys() >= set(names):
            raise Rejected(self.problem()) from self.error
        return value

    def problem(self) -> Problem:
        """Returns the problem for the client. A fault of the service or of the configuration becomes `store_unavailable`."""
        problem = self._problem()
        if self.status == 401:
            log.error("Onceward rejects this backend: ONCEWARD_API_KEY is missing or wrong")
        elif problem is None and 0 < self.status < 500:
            log.error("the URL of Onceward answers with status %d, but not as Onceward does; check ONCEWARD_URL", self.status)
        elif problem is not None and problem.code in FAULTS_OF_THE_BACKEND:
            text = "Onceward rejects a call of this backend as %s: %s Check ONCEWARD_URL, and the settings of the middleware or claim."
            log.error(text, problem.code, problem.detail)
        elif problem is not None and (self.status < 500 or problem.code == "redeem_unknown"):
            return problem
        return Problem.create("store_unavailable")

    def _rejection(self) -> Problem | None:
        # A 401 rejects the API key: the client of the application has nothing to do with it.
        return self._problem() if self.status < 500 and self.status != 401 else None

    def _problem(self) -> Problem | None:
        """Returns the problem that the service has sent, also that of a fault."""
        if self.status < 400:
            return None
        return Problem.parse(self.status, self.body, self.content_type, self.retry_after)

    def value(self) -> dict[str, Any] | None:
        """Returns the result of the call, if it has one."""
        if self.status not in (200, 201):
            return None
        try:
            value = json.loads(self.body)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

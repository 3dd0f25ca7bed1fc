"""Decides whether a claim without a verdict is sent again, with the same attempt."""

from __future__ import annotations

import random
import time

from .answer import Answer

#: The time for which a service that refuses connections is tried. Nothing was sent, so there is nothing to find out.
REFUSED = 1.0
#: The time for which a service that responds with a fault is tried.
FAULTY = 3.0


class Retries:
    """The retries of one claim. A claim whose answer was lost may exist, so it is repeated for the time of its lease."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._started = time.monotonic()
        self._patience = 0.0
        self._pause = 0.025
        self._was_sent = False
        #: True after the last try, if one was sent and none has a verdict: it is unknown whether the claim exists.
        self.has_given_up = False

    def delay_after(self, answer: Answer) -> float | None:
        """Returns the delay before the next try; `None` if the answer is final, or if the time is over."""
        if answer.status == 401 or answer.is_verdict:
            return None
        self._was_sent = self._was_sent or answer.was_sent or answer.follows_unknown
        self._patience = max(self._patience, patience(answer, self._lease))
        self._pause = min(self._pause * 2, 0.5)
        delay = self._pause * random.uniform(0.5, 1.0)
        passed = time.monotonic() - self._started
        if passed + delay < self._patience:
            return delay
        self.has_given_up = self._was_sent
        return None


def patience(answer: Answer, lease: float) -> float:
    """Returns how long a claim that received this answer is tried."""
    if answer.status:
        return min(FAULTY, lease)
    return lease if answer.was_sent else min(REFUSED, lease)

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
        #: True if a try was sent that no answer has rejected: the claim may exist, or a call that is still on its way may create it.
        self.is_open = False

    def delay_after(self, answer: Answer) -> float | None:
        """Returns the delay before the next try; `None` if the answer is final, or if the time is over."""
        is_rejected = answer.status == 401 or answer.is_rejection
        self.is_open = self.is_open or answer.follows_unknown or (answer.was_sent and not is_rejected)
        if is_rejected or answer.is_verdict:
            return None
        self._patience = max(self._patience, patience(answer, self._lease))
        self._pause = min(self._pause * 2, 0.5)
        delay = self._pause * random.uniform(0.5, 1.0)
        passed = time.monotonic() - self._started
        return delay if passed + delay < self._patience else None


def patience(answer: Answer, lease: float) -> float:
    """Returns how long a claim that received this answer is tried."""
    if answer.status:
        return min(FAULTY, lease)
    return lease if answer.was_sent else min(REFUSED, lease)

"""State that belongs to one process: connections, locks and threads do not survive a fork."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """Creates its value once in each process, when it is first used there."""

    def __init__(self, create: Callable[[], T]) -> None:
        self._create = create
        self._values: dict[int, T] = {}

    def get(self) -> T:
        """Returns the value of this process."""
        pid = os.getpid()
        value = self._values.get(pid)
        if value is None:
            # No lock: another thread may have held it during the fork. `setdefault` is atomic.
            value = self._values.setdefault(pid, self._create())
            for other in [other for other in self._values if other != pid]:
                self._values.pop(other, None)
        return value

"""Keeps the claims of a process alive, in the background.

One thread watches the claims. Only a claim that is held for longer than half of its renewal interval gets a thread of its own, so a short
handler costs none, and a stuck renewal delays no other. All are daemon threads: the interpreter does not wait for them.
"""

from __future__ import annotations

import heapq
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from .per_process import PerProcess


class Kept(Protocol):
    """A claim, as the keeper sees it."""

    def keep(self) -> None:
        """Renews the claim until it is settled or lost."""


class Keeper:
    """The thread that watches the claims of one process."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, weakref.ref[Kept]]] = []
        self._count = 0
        self._changed = threading.Condition()
        self._is_running = False

    def watch(self, claim: Kept, delay: float) -> None:
        """Starts to keep the claim after a delay, if it still exists then."""
        entry = time.monotonic() + delay
        with self._changed:
            self._count += 1
            heapq.heappush(self._due, (entry, self._count, weakref.ref(claim)))
            if not self._is_running:
                self._is_running = start_thread(self._run)
            elif self._due[0][1] == self._count:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            claim = self._next()()
            if claim is not None:
                start_thread(claim.keep)
            del claim

    def _next(self) -> weakref.ref[Kept]:
        with self._changed:
            while True:
                left = self._due[0][0] - time.monotonic() if self._due else None
                if left is not None and left <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(left)


def start_thread(run: Callable[[], None]) -> bool:
    """Starts a daemon thread. Returns false if the interpreter is ending, and starts none any more."""
    try:
        threading.Thread(target=run, name="onceward", daemon=True).start()
    except RuntimeError:
        return False
    return True


keeper: PerProcess[Keeper] = PerProcess(Keeper)

"""Keeps the claims of a process alive, in the background.

One thread watches the claims. Only a claim that is held for longer than half of its renewal interval gets a thread of its own, so a short
handler costs none, and a stuck renewal delays no other. All are daemon threads: the interpreter does not wait for them.
"""

from __future__ import annotations

import heapq
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from .answer import log
from .per_process import PerProcess

#: The pause before another try to start a thread.
PAUSE = 0.25


class Kept(Protocol):
    """A claim, as the keeper sees it."""

    def keep(self) -> None:
        """Renews the claim until it is settled or lost."""


class Keeper:
    """The thread that watches the claims of one process."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], Kept | None]]] = []
        self._count = 0
        self._changed = threading.Condition()
        self._is_running = False

    def watch(self, claim: Kept, delay: float) -> bool:
        """Starts to keep the claim after a delay, if it still exists then. Returns false if no thread can be started for that."""
        return self._add(weakref.ref(claim), delay)

    def keep(self, claim: Kept, delay: float = 0.0) -> None:
        """Keeps the claim from now on, or after a delay, also if the application has dropped it."""
        if delay or not start_thread(claim.keep):
            self._add(lambda: claim, delay or PAUSE)

    def _add(self, get: Callable[[], Kept | None], delay: float) -> bool:
        due = time.monotonic() + delay
        with self._changed:
            self._count += 1
            heapq.heappush(self._due, (due, self._count, get))
            if not self._is_running:
                self._is_running = start_thread(self._run)
            elif self._due[0][1] == self._count:
                self._changed.notify()
            return self._is_running

    def _run(self) -> None:
        while True:
            get = self._next()
            claim = get()
            if claim is not None and not start_thread(claim.keep):
                self._add(get, PAUSE)
            del get, claim

    def _next(self) -> Callable[[], Kept | None]:
        with self._changed:
            while True:
                left = self._due[0][0] - time.monotonic() if self._due else None
                if left is not None and left <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(left)


def start_thread(run: Callable[[], None]) -> bool:
    """Starts a daemon thread. Returns false if the process may have no more threads, or if the interpreter is ending."""
    try:
        threading.Thread(target=run, name="onceward", daemon=True).start()
    except RuntimeError as error:
        if not is_ending():
            log.warning("could not start a thread that renews claims (%s); check the limit of threads of this process", error)
        return False
    return True


def is_ending() -> bool:
    """Returns whether the interpreter is ending, and starts no threads any more."""
    return sys.is_finalizing() or not threading.main_thread().is_alive()


keeper: PerProcess[Keeper] = PerProcess(Keeper)

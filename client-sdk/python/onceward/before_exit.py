"""Calls in the background that the interpreter waits for at its end, for a limited time."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable

from .keeper import start_thread
from .per_process import PerProcess

#: The calls of this process that still run, with the time until which they are waited for.
_running: PerProcess[dict[threading.Event, float]] = PerProcess(dict)


def run_before_exit(call: Callable[[], None], limit: float) -> None:
    """Runs a call in a thread. If the interpreter ends meanwhile, it waits until the limit, in seconds from now, is over."""
    running, done = _running.get(), threading.Event()

    def run() -> None:
        try:
            call()
        finally:
            running.pop(done, None)
            done.set()

    running[done] = time.monotonic() + limit
    if not start_thread(run):
        running.pop(done, None)


def _wait() -> None:
    for done, end in list(_running.get().items()):
        done.wait(max(0.0, end - time.monotonic()))


atexit.register(_wait)

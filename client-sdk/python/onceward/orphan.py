"""Claims that no request waits for any more. Nothing runs under them, so they are released in the background."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import deque

from .answer import Answer, log
from .keeper import start_thread
from .per_process import PerProcess
from .result import release
from .transport import Transport

#: The maximum number of threads of a process that release orphans. A service that hangs may leave an orphan of every request. Only the first
#: try of a claim that was interrupted has a thread of its own, for which the interpreter waits at its end.
THREADS = 4
#: The maximum number of orphans of a process that wait for these threads. Further ones are dropped.
LIMIT = 1_000
#: The seconds in which orphans that are never released are logged once.
QUIET = 10.0
#: The pause of a thread after a call without a verdict.
PAUSE = 0.25


class Orphan:
    """A claim that may exist, or that was granted after its request ended. It is tried for a time that begins when it is created."""

    def __init__(self, transport: Transport, path: str, body: bytes, *, timeout: float, limit: float) -> None:
        self._transport, self._path, self._body, self._timeout = transport, path, body, timeout
        self._until = time.monotonic() + limit

    @classmethod
    def of_claim(cls, transport: Transport, body: bytes, *, timeout: float, limit: float) -> Orphan:
        """A claim whose answer never arrived. It is claimed again with its attempt, and released if it is granted."""
        wire = json.loads(body)
        # Without it, a claim of another request is an answer at once. The attempt stays the same.
        wire.pop("wait", None)
        return cls(transport, "/claim", json.dumps(wire).encode(), timeout=timeout, limit=limit)

    @classmethod
    def of_pass(cls, transport: Transport, claim_pass: str, *, timeout: float, limit: float) -> Orphan:
        """A claim that was granted."""
        result = release(claim_pass)
        return cls(transport, result.path, result.body, timeout=timeout, limit=limit)

    def keep(self) -> None:
        """Releases the claim: now, or else in the background."""
        if not self.is_over():
            orphans.get().add(self)

    def is_over(self) -> bool:
        """Makes one try. Returns whether it was the last."""
        answer = self._transport.post(self._path, self._body, self._timeout)
        if self._path == "/claim" and (claim_pass := granted_pass(answer)):
            result = release(claim_pass)
            self._path, self._body = result.path, result.body
            return self.is_over()
        return self._is_settled_by(answer) or self._is_late()

    def _is_settled_by(self, answer: Answer) -> bool:
        # A rejected API key, a body that arrived late, or a gateway's answer says nothing about an earlier try.
        if answer.is_rejection_by_record:
            return True
        return (answer.value() or {}).get("outcome") == "replay" if self._path == "/claim" else answer.is_done

    def _is_late(self) -> bool:
        if time.monotonic() < self._until:
            return False
        orphans.get().warn("Onceward did not answer for a lease")
        return True


def granted_pass(answer: Answer) -> str | None:
    """Returns the pass of a claim that an answer grants."""
    value = answer.value() or {}
    return str(value["pass"]) if value.get("pass") else None


class Orphans:
    """The orphans of one process. A few threads try each in turn, and end when none is left."""

    def __init__(self) -> None:
        self._waiting: deque[Orphan] = deque()
        self._threads = 0
        self._lock = threading.Lock()
        self._warned_at = -math.inf

    def add(self, orphan: Orphan) -> None:
        """Releases an orphan in the background."""
        with self._lock:
            has_room = len(self._waiting) < LIMIT
            if has_room:
                self._waiting.append(orphan)
            if self._threads < THREADS and start_thread(self._run):
                self._threads += 1
        if not has_room:
            self.warn(f"{LIMIT} others wait for that")

    def warn(self, cause: str) -> None:
        """Logs that an orphan is not released, at most once in a while."""
        now = time.monotonic()
        with self._lock:
            if now < self._warned_at + QUIET:
                return
            self._warned_at = now
        log.warning(
            "could not release a claim of a request that was rejected, because %s; if it exists, duplicates are rejected as in_progress, "
            "and then as outcome_unknown",
            cause,
        )

    def _run(self) -> None:
        while (orphan := self._next()) is not None:
            if not self._is_over(orphan):
                time.sleep(PAUSE)
                with self._lock:
                    self._waiting.append(orphan)

    def _is_over(self, orphan: Orphan) -> bool:
        try:
            return orphan.is_over()
        except Exception as error:
            # The thread goes on with the others.
            self.warn(f"of an error ({error!r})")
            return True

    def _next(self) -> Orphan | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None


orphans: PerProcess[Orphans] = PerProcess(Orphans)

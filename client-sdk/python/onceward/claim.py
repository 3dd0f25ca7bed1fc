"""A claim: the permission to run once, renewed until the run is settled."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from . import duration
from .answer import Answer, log
from .async_transport import AsyncTransport, in_thread
from .before_exit import run_before_exit
from .effect import Effect, effect_of_exception
from .intent import Intent
from .keeper import is_ending, keeper
from .orphan import Orphan, granted_pass, orphans
from .problem import OncewardError, Rejected
from .reply import Reply
from .result import Result, Settled, completion, release
from .retries import Retries
from .transport import Transport

#: The lease that the service uses if the claim names none.
DEFAULT_LEASE = 15.0
#: The time for which a claim is renewed at most.
CEILING = 3600.0


class Replayed(OncewardError):
    """Raised in place of a second run: the work ran before, and `reply` is the stored response."""

    def __init__(self, reply: Reply) -> None:
        super().__init__("the work ran before; its reply is in `reply`")
        self.reply = reply


class Claim:
    """A claim on a key or a token, as a context manager.

    Entering it raises `Replayed` if the work ran before, and `Rejected` if it must not run now. Leaving it settles the claim: completed
    without an exception, otherwise by the type of the exception. A claim is for one run: create another one for the next.
    """

    def __init__(self, intent: Intent, transport: Transport, async_transport: AsyncTransport, timeout: float) -> None:
        self.intent = intent
        self._transport, self._async_transport = transport, async_transport
        self._lease = intent.lease or DEFAULT_LEASE
        # A stuck call leaves time for another within the lease.
        self._timeout = min(timeout, self._lease / 3)
        self._interval = self._lease / 6
        self._pass = ""
        self._result: Result | None = None
        self._is_settled = self._is_kept = self._has_lost_renewal = False
        self._since = self._alive_at = 0.0
        self._lock, self._finished = threading.Lock(), threading.Event()

    # Claiming.

    def __enter__(self) -> Claim:
        self._require_unused()
        body, retries = self.intent.to_wire(), Retries(self._lease)
        with self._abandoned_if_interrupted(body):
            while True:
                answer = self._transport.post("/claim", body, self._claim_timeout())
                delay = retries.delay_after(answer)
                if delay is None:
                    return self._begin(answer, body, retries)
                time.sleep(delay)

    async def __aenter__(self) -> Claim:
        self._require_unused()
        body, retries = self.intent.to_wire(), Retries(self._lease)
        with self._abandoned_if_interrupted(body):
            while True:
                answer = await self._async_transport.post("/claim", body, self._claim_timeout(), self._release_granted)
                delay = retries.delay_after(answer)
                if delay is None:
                    return self._begin(answer, body, retries)
                await asyncio.sleep(delay)

    def _require_unused(self) -> None:
        """Raises if the claim has had a run: its second run would be neither renewed nor settled."""
        if self._pass:
            raise RuntimeError("a claim can be entered once: call claim(…) again for another run")

    @contextmanager
    def _abandoned_if_interrupted(self, body: bytes) -> Iterator[None]:
        """Abandons the claim if the block is cancelled, or interrupted by a signal or a timeout of gevent."""
        try:
            yield
        except Exception:
            raise
        except BaseException:
            run_before_exit(self._orphan(body).keep, self._timeout)
            raise

    def _orphan(self, body: bytes) -> Orphan:
        return Orphan.of_claim(self._transport, body, timeout=self._timeout, limit=self._lease)

    def _release_granted(self, answer: Answer) -> None:
        """Releases a claim that was granted after the task that waited for it was cancelled."""
        if claim_pass := granted_pass(answer):
            orphans.get().add(Orphan.of_pass(self._transport, claim_pass, timeout=self._timeout, limit=self._lease))

    def _claim_timeout(self) -> float:
        return self._timeout + self.intent.wait

    def _begin(self, answer: Answer, body: bytes, retries: Retries) -> Claim:
        try:
            if answer.json("outcome")["outcome"] == "replay":
                raise Replayed(Reply.from_wire(answer.json("reply")["reply"]))
            verdict = answer.json("pass", "renew_every", "lease")
        except Rejected:
            if retries.is_open:
                orphans.get().add(self._orphan(body))
            raise
        self._pass = verdict["pass"]
        # Twice as often as the service requires, because one renewal may time out.
        self._interval = duration.seconds(verdict["renew_every"]) / 2
        self._lease = duration.seconds(verdict["lease"])
        self._since = self._alive_at = time.monotonic()
        if not keeper.get().watch(self, self._interval) and not is_ending():
            # Without renewal, the claim could expire while the work runs.
            self.release()
            raise Rejected.as_code("store_unavailable", "This server cannot renew a claim now. Nothing ran.")
        return self

    # Settling.

    def complete(self, reply: Reply | None = None) -> Settled:
        """Records that the work took effect. Duplicates receive the reply from now on."""
        return self._record(completion(self._pass, reply))

    def release(self) -> Settled:
        """Records that the work had no effect: the key or token is free again."""
        return self._record(release(self._pass))

    def leave(self) -> None:
        """Stops to renew the claim: it is unknown whether the work took effect."""
        self._is_settled = True
        self._finished.set()

    async def acomplete(self, reply: Reply | None = None) -> Settled:
        """Like `complete`, without blocking the event loop."""
        return await self._arecord(completion(self._pass, reply))

    async def arelease(self) -> Settled:
        """Like `release`, without blocking the event loop."""
        return await self._arecord(release(self._pass))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._is_settled:
            self.settle(self._effect_of(error))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_settled:
            await self.asettle(self._effect_of(error))

    def settle(self, effect: Effect, reply: Reply | None = None) -> Settled | None:
        """Completes, releases or leaves the claim by the effect of its run. Returns `None` if it leaves it."""
        match effect:
            case Effect.APPLIED:
                return self.complete(reply)
            case Effect.NOT_APPLIED:
                return self.release()
            case Effect.UNKNOWN:
                self.leave()
                return None

    async def asettle(self, effect: Effect, reply: Reply | None = None) -> Settled | None:
        """Like `settle`, without blocking the event loop."""
        match effect:
            case Effect.APPLIED:
                return await self.acomplete(reply)
            case Effect.NOT_APPLIED:
                return await self.arelease()
            case Effect.UNKNOWN:
                self.leave()
                return None

    def _effect_of(self, error: BaseException | None) -> Effect:
        """Returns the effect of the body of a `with` statement."""
        return Effect.APPLIED if error is None else effect_of_exception(self.intent.policy, error)

    # Recording the result.

    def _record(self, result: Result) -> Settled:
        with self._lock:
            self._result, self._is_settled = result, True
            answer, began = Answer(), time.monotonic()
            try:
                answer = self._post_result()
                if self._is_repeated(answer, began):
                    answer = self._post_result()
            finally:
                # Also if a signal or a timeout of gevent has interrupted the call.
                settled = self._taken(answer)
            return settled

    async def _arecord(self, result: Result) -> Settled:
        if not self._lock.acquire(blocking=False):
            # A renewal is in flight, and must not arrive after the result.
            return await in_thread(lambda: self._record(result))
        answer, began = Answer(), time.monotonic()
        try:
            self._result, self._is_settled = result, True
            answer = await self._apost_result()
            if self._is_repeated(answer, began):
                answer = await self._apost_result()
        finally:
            settled = self._taken(answer)
            self._lock.release()
        return settled

    def _post_result(self) -> Answer:
        assert self._result is not None
        answer = self._transport.post(self._result.path, self._result.body, self._timeout)
        if self._is_shortened(answer):
            answer = self._transport.post(self._result.path, self._result.body, self._timeout)
        return answer

    async def _apost_result(self) -> Answer:
        assert self._result is not None
        answer = await self._async_transport.post(self._result.path, self._result.body, self._timeout)
        if self._is_shortened(answer):
            answer = await self._async_transport.post(self._result.path, self._result.body, self._timeout)
        return answer

    def _is_shortened(self, answer: Answer) -> bool:
        """Leaves out the reply if it is not accepted: it is more important that the run counts as done."""
        # A gateway has a limit for bodies too. Its other answers say nothing about the reply.
        is_refused = answer.status == 413 or (answer.status in (400, 422) and answer.is_rejection)
        if self._result is None or not self._result.has_reply or not is_refused:
            return False
        log.warning("Onceward does not accept the reply (%d): duplicates receive reply_not_kept", answer.status)
        self._result = completion(self._pass, None)
        return True

    def _is_repeated(self, answer: Answer, began: float) -> bool:
        """Returns whether there is no verdict, and time left to try again while the client waits."""
        has_failed = not (answer.is_done or answer.is_rejection or answer.status == 401)
        return has_failed and time.monotonic() - began < self._timeout / 2

    def _taken(self, answer: Answer) -> Settled:
        if answer.status and not answer.is_done:
            answer.problem()
        if answer.is_done or answer.is_rejection:
            self._finished.set()
            if self._has_lost_renewal and self._result is not None and not self._result.is_completion:
                # It may arrive after the release, and claim the key again.
                orphan = Orphan.of_pass(self._transport, self._pass, timeout=self._timeout, limit=2 * self._lease)
                keeper.get().keep(orphan, self._lease)
            return Settled.RECORDED if answer.is_done else Settled.LOST
        if not self._is_kept:
            keeper.get().keep(self)
        return Settled.PENDING

    # Keeping.

    def keep(self) -> None:
        """Renews the claim until it is settled or lost, and sends a pending result again. Runs in a thread of its own."""
        with self._lock:
            if self._is_kept:
                return
            self._is_kept = True
        while not self._finished.is_set():
            with self._lock:
                self._beat()
            self._finished.wait(self._interval)

    def _beat(self) -> None:
        if self._finished.is_set():
            return
        if self._result is not None and self._taken(self._post_result()) is not Settled.PENDING:
            return
        now = time.monotonic()
        if now > min(self._alive_at + self._lease, self._since + CEILING):
            log.warning("the claim has expired: Onceward was not reachable in time, or the handler ran for an hour")
            self._finished.set()
        elif self._result is None or self._result.is_completion:
            # A renewal after a release would claim the key again.
            self._renew(now)

    def _renew(self, now: float) -> None:
        answer = self._transport.post("/claim/renew", self._pass_body(), self._timeout)
        self._has_lost_renewal = answer.may_be_executed and not answer.is_done
        if answer.is_done:
            self._alive_at = now
        elif answer.is_rejection and answer.status == 409:
            if self._result is None:
                log.warning("the claim was lost while the handler ran: another request may run the same")
                self._finished.set()
        elif answer.status:
            answer.problem()

    def _pass_body(self) -> bytes:
        return json.dumps({"pass": self._pass}).encode()

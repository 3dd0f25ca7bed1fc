"""A claim: the permission to run once, renewed until the run is settled."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from types import TracebackType

from . import duration
from .answer import Answer, log
from .async_transport import AsyncTransport, in_thread
from .effect import Effect, effect_of_exception
from .intent import Intent
from .keeper import is_ending, keeper, start_thread
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
        self._is_settled = self._is_kept = False
        self._since = self._alive_at = 0.0
        self._lock, self._finished = threading.Lock(), threading.Event()

    # Claiming.

    def __enter__(self) -> Claim:
        self._require_unused()
        body, retries = self.intent.to_wire(), Retries(self._lease)
        while True:
            answer = self._transport.post("/claim", body, self._claim_timeout())
            delay = retries.delay_after(answer)
            if delay is None:
                return self._begin(answer)
            time.sleep(delay)

    async def __aenter__(self) -> Claim:
        self._require_unused()
        body, retries = self.intent.to_wire(), Retries(self._lease)
        try:
            while True:
                answer = await self._async_transport.post("/claim", body, self._claim_timeout())
                delay = retries.delay_after(answer)
                if delay is None:
                    return self._begin(answer)
                await asyncio.sleep(delay)
        except asyncio.CancelledError:
            start_thread(lambda: self._abandon(body))
            raise

    def _require_unused(self) -> None:
        """Raises if the claim has had a run: its second run would be neither renewed nor settled."""
        if self._pass:
            raise RuntimeError("a claim can be entered once: call claim(…) again for another run")

    def _abandon(self, body: bytes) -> None:
        """Releases a claim that was cancelled before its answer arrived: nothing ran."""
        answer = self._transport.post("/claim", body, self._claim_timeout())
        if answer.status == 200 and (claim_pass := answer.json().get("pass")):
            self._pass = claim_pass
            self.release()

    def _claim_timeout(self) -> float:
        return self._timeout + self.intent.wait

    def _begin(self, answer: Answer) -> Claim:
        verdict = answer.json()
        if verdict.get("outcome") == "replay":
            raise Replayed(Reply.from_wire(verdict["reply"]))
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
        return self._settle(completion(self._pass, reply))

    def release(self) -> Settled:
        """Records that the work had no effect: the key or token is free again."""
        return self._settle(release(self._pass))

    def leave(self) -> None:
        """Stops to renew the claim: it is unknown whether the work took effect."""
        self._is_settled = True
        self._finished.set()

    async def acomplete(self, reply: Reply | None = None) -> Settled:
        """Like `complete`, without blocking the event loop."""
        return await self._asettle(completion(self._pass, reply))

    async def arelease(self) -> Settled:
        """Like `release`, without blocking the event loop."""
        return await self._asettle(release(self._pass))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        match self._effect_of(error):
            case Effect.APPLIED:
                self.complete()
            case Effect.NOT_APPLIED:
                self.release()
            case Effect.UNKNOWN:
                self.leave()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        match self._effect_of(error):
            case Effect.APPLIED:
                await self.acomplete()
            case Effect.NOT_APPLIED:
                await self.arelease()
            case Effect.UNKNOWN:
                self.leave()

    def _effect_of(self, error: BaseException | None) -> Effect | None:
        """Returns the effect of the body of a `with` statement; `None` if the body has settled the claim itself."""
        if self._is_settled:
            return None
        return Effect.APPLIED if error is None else effect_of_exception(self.intent.policy, error)

    def _settle(self, result: Result) -> Settled:
        with self._lock:
            self._result, self._is_settled = result, True
            began = time.monotonic()
            answer = self._post_result()
            if self._is_shortened(answer) or self._is_soon_lost(answer, began):
                answer = self._post_result()
            return self._taken(answer)

    async def _asettle(self, result: Result) -> Settled:
        if not self._lock.acquire(blocking=False):
            # A renewal is in flight, and must not arrive after the result.
            return await in_thread(lambda: self._settle(result))
        answer = Answer()
        try:
            self._result, self._is_settled = result, True
            began = time.monotonic()
            answer = await self._async_transport.post(self._result.path, self._result.body, self._timeout)
            if self._is_shortened(answer) or self._is_soon_lost(answer, began):
                answer = await self._async_transport.post(self._result.path, self._result.body, self._timeout)
        finally:
            settled = self._taken(answer)
            self._lock.release()
        return settled

    def _post_result(self) -> Answer:
        assert self._result is not None
        return self._transport.post(self._result.path, self._result.body, self._timeout)

    def _is_shortened(self, answer: Answer) -> bool:
        """Leaves out the reply if the service does not accept it: it is more important that the run counts as done."""
        if self._result is None or not self._result.has_reply or answer.status not in (400, 413, 422):
            return False
        log.warning("Onceward does not accept the reply (%d): duplicates receive reply_not_kept", answer.status)
        self._result = completion(self._pass, None)
        return True

    def _is_soon_lost(self, answer: Answer, began: float) -> bool:
        """Returns whether the answer was lost soon enough that the client can wait for a second one."""
        return answer.status == 0 and time.monotonic() - began < self._timeout / 2

    def _taken(self, answer: Answer) -> Settled:
        if answer.status == 401:
            answer.problem()
        if answer.is_processed:
            self._finished.set()
            return Settled.RECORDED if answer.status in (200, 204) else Settled.LOST
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
        if answer.status in (200, 204):
            self._alive_at = now
        elif answer.status == 401:
            answer.problem()
        elif answer.status == 409 and self._result is None:
            log.warning("the claim was lost while the handler ran: another request may run the same")
            self._finished.set()

    def _pass_body(self) -> bytes:
        return json.dumps({"pass": self._pass}).encode()

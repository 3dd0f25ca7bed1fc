"""The client against a real service, over a network that fails."""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from harness.network import Network
from harness.process import API_KEY, until
from harness.raw import Raw
from harness.service import Service

from onceward import (
    Claim,
    Effect,
    NotApplied,
    Onceward,
    Rejected,
    Replayed,
    Reply,
    Settled,
    Unknown,
    async_transport,
    once,
    orphan,
    state_effect,
)
from onceward import keeper as keeper_module
from onceward.answer import Answer
from onceward.deadline import LIMIT
from onceward.intent import Intent
from onceward.retries import Retries

Open = Callable[..., Network]


def named(**more: Any) -> dict[str, Any]:
    """Returns the arguments of a claim on a new key."""
    return {"key": uuid.uuid4().hex, "action": "order", "subject": "alice"} | more


def code_of(onceward: Onceward, claim: dict[str, Any]) -> str:
    """Returns what a duplicate receives: a code, `replayed` or `run`."""
    try:
        with onceward.claim(**claim):
            return "run"
    except Replayed:
        return "replayed"
    except Rejected as rejected:
        return rejected.code


def test_second_claim_receives_the_reply(onceward: Onceward) -> None:
    claim = named(fingerprint="a")
    with onceward.claim(**claim) as first:
        assert code_of(onceward, claim) == "in_progress"
        first.complete(Reply.json({"order": 1}, 201))
    with pytest.raises(Replayed) as replayed, onceward.claim(**claim):
        pytest.fail("it ran twice")
    assert (replayed.value.reply.status, replayed.value.reply.value()) == (201, {"order": 1})
    assert code_of(onceward, claim | {"fingerprint": "b"}) == "key_reused"
    assert code_of(onceward, claim | {"subject": "bob"}) == "run"


def test_fingerprint_may_have_any_length(onceward: Onceward) -> None:
    claim = named(fingerprint="a" * 100_000)
    assert [code_of(onceward, claim), code_of(onceward, claim)] == ["run", "reply_not_kept"]
    assert code_of(onceward, claim | {"fingerprint": "a" * 100_001}) == "key_reused"


@pytest.mark.parametrize(
    ("at_most_once", "error", "code"),
    [
        (True, None, "reply_not_kept"),
        (True, RuntimeError, "outcome_unknown"),
        (False, RuntimeError, "run"),
        (True, NotApplied, "run"),
        (False, Unknown, "in_progress"),
        (False, TimeoutError, "in_progress"),
        (False, KeyboardInterrupt, "in_progress"),
        (False, SystemExit, "in_progress"),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_exception_settles_the_claim_by_its_type(
    onceward: Onceward, at_most_once: bool, error: type[BaseException] | None, code: str, is_async: bool
) -> None:
    claim = named(at_most_once=at_most_once, lease=30.0 if code == "in_progress" else 0.6)

    def work() -> None:
        if error:
            raise error

    async def arun() -> None:
        async with onceward.claim(**claim):
            work()

    def run() -> None:
        with onceward.claim(**claim):
            work()

    try:
        asyncio.run(arun()) if is_async else run()
    except BaseException as raised:
        assert error is not None and isinstance(raised, error)
    if code == "outcome_unknown":
        until("the lease has expired", lambda: code_of(onceward, claim) == code)
    assert code_of(onceward, claim) == code


class ProviderTimeout(Exception):
    """The timeout of a library, which is no `TimeoutError`."""


@pytest.mark.parametrize("error", [httpx.ReadTimeout("no answer"), ProviderTimeout(), TimeoutError()])
@pytest.mark.parametrize("is_wrapped", [False, True])
@pytest.mark.parametrize("is_token", [False, True])
def test_timeout_of_a_library_frees_no_key_or_token(
    onceward: Onceward, error: Exception, is_wrapped: bool, is_token: bool
) -> None:
    claim = named(lease=30.0)
    claim |= {"key": None, "token": onceward.issue().token} if is_token else {"at_most_once": False}
    with pytest.raises(Exception), onceward.claim(**claim):
        if is_wrapped:
            raise RuntimeError("the payment failed") from error
        raise error
    assert code_of(onceward, claim) == "in_progress"


@pytest.mark.parametrize("is_async", [False, True])
def test_blocked_handler_keeps_its_claim(onceward: Onceward, is_async: bool) -> None:
    claim, is_claimed = named(lease=0.4, at_most_once=False), threading.Event()

    def hold() -> None:
        with onceward.claim(**claim):
            is_claimed.set()
            time.sleep(1.2)

    async def ahold() -> None:
        async with onceward.claim(**claim):
            is_claimed.set()
            time.sleep(1.2)  # Blocks the event loop.

    holder = threading.Thread(target=lambda: asyncio.run(ahold()) if is_async else hold())
    holder.start()
    assert is_claimed.wait(5)
    end = time.monotonic() + 0.9
    while time.monotonic() < end:
        assert code_of(onceward, claim) == "in_progress"
        time.sleep(0.03)
    holder.join()
    assert code_of(onceward, claim) == "reply_not_kept"


def test_cancelled_task_leaves_the_outcome_unknown(onceward: Onceward) -> None:
    claim = named(lease=0.6)

    async def main() -> None:
        async with onceward.claim(**claim):
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(10)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    # The key stays claimed: another request would run otherwise.
    until("the lease has expired", lambda: code_of(onceward, claim) != "in_progress")
    assert code_of(onceward, claim) == "outcome_unknown"


@pytest.mark.parametrize("library", ["httpx", "threads"])
def test_cancelled_claim_ran_nothing_and_is_released(
    network: Open, monkeypatch: pytest.MonkeyPatch, library: str, onceward: Onceward
) -> None:
    if library == "threads":
        monkeypatch.setattr(async_transport, "httpx", None)
    slow = network(lambda path, number: 0.3 if (path, number) == ("/claim", 1) else "pass")
    claim = named()

    async def main() -> None:
        async with asyncio.timeout(0.15), Onceward(slow.url, API_KEY).claim(**claim):
            pytest.fail("the claim was cancelled")

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    until("the key is released", lambda: bool(slow.bodies("/claim/release")))
    until("the key is free", lambda: code_of(onceward, claim) != "in_progress")
    assert code_of(onceward, claim) == "reply_not_kept", "it ran now"


@pytest.mark.parametrize("library", ["httpx", "threads"])
@pytest.mark.parametrize("loop_ends", [False, True])
def test_cancelled_claim_that_waits_is_granted_to_no_request(
    onceward: Onceward, monkeypatch: pytest.MonkeyPatch, library: str, loop_ends: bool
) -> None:
    if library == "threads":
        monkeypatch.setattr(async_transport, "httpx", None)
    claim = named()
    held = onceward.claim(**claim).__enter__()

    async def wait() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3), onceward.claim(**claim, wait=5.0):
                pytest.fail("the claim was cancelled")

    def free() -> None:
        # Meanwhile the claim is tried again without waiting, and rejected.
        time.sleep(0.3)
        assert held.release() is Settled.RECORDED
        until("the key is free", lambda: code_of(onceward, claim) != "in_progress", 5)

    async def main() -> None:
        await wait()
        await asyncio.to_thread(free)

    if loop_ends:
        asyncio.run(wait())
        free()
    else:
        asyncio.run(main())
    assert code_of(onceward, claim) == "reply_not_kept", "it ran now"


class Interruption(BaseException):
    """What is no `Exception`, as the timeout of gevent."""


@contextmanager
def interrupted_by(error: type[BaseException], delay: float) -> Iterator[None]:
    """Raises an exception in this thread after a delay, as a signal does."""

    def fail(*_: object) -> None:
        raise error

    before = signal.signal(signal.SIGUSR1, fail)
    timer = threading.Timer(delay, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1))
    timer.start()
    try:
        yield
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, Interruption])
def test_interrupted_claim_ran_nothing_and_is_released(network: Open, onceward: Onceward, error: type[BaseException]) -> None:
    slow = network(lambda path, number: 0.4 if (path, number) == ("/claim", 1) else "pass")
    claim = named(wait=5.0)
    with pytest.raises(error), interrupted_by(error, 0.2), Onceward(slow.url, API_KEY).claim(**claim):
        pytest.fail("the claim was interrupted")
    until("the key is free", lambda: code_of(onceward, claim | {"wait": 0.0}) != "in_progress", 4)
    assert code_of(onceward, claim) == "reply_not_kept", "it ran now"
    attempts = [json.loads(body) for body in slow.bodies("/claim")]
    assert attempts[0]["attempt"] == attempts[1]["attempt"] and "wait" not in attempts[1], "it waits for no other claim"


def test_interrupted_claim_that_is_rejected_releases_nothing(network: Open, onceward: Onceward) -> None:
    slow, claim = network(lambda path, number: 0.4), named()
    with onceward.claim(**claim) as held:
        with pytest.raises(Interruption), interrupted_by(Interruption, 0.2), Onceward(slow.url, API_KEY).claim(**claim):
            pytest.fail("the claim was interrupted")
        until("the claim is repeated", lambda: len(slow.calls) == 2)
        time.sleep(0.6)
        assert len(slow.calls) == 2 and code_of(onceward, claim) == "in_progress"
        assert held.complete() is Settled.RECORDED


@pytest.mark.parametrize("error", [KeyboardInterrupt, Interruption])
def test_interrupted_completion_is_repeated_in_the_background(
    network: Open, onceward: Onceward, error: type[BaseException]
) -> None:
    slow = network(lambda path, number: "stall" if (path, number) == ("/claim/complete", 1) else "pass")
    claim, client, errors = named(lease=0.9, at_most_once=False), Onceward(slow.url, API_KEY), []

    def run() -> None:
        with client.claim(**claim) as claimed, interrupted_by(error, 0.1):
            claimed.complete(Reply.json("done"))

    try:
        run()
    except BaseException as raised:
        errors.append(type(raised))
    # The application holds the claim no more.
    gc.collect()
    assert errors == [error]
    until("the reply is stored", lambda: code_of(onceward, claim) != "in_progress")
    assert code_of(onceward, claim) == "replayed"


@pytest.mark.parametrize("transport", ["blocking", "httpx", "threads"])
@pytest.mark.parametrize("fault", ["lose", "drop", 503, 302, 404, 429, (200, b"<html>")])
def test_claim_without_answer_is_repeated_with_its_attempt(
    network: Open, monkeypatch: pytest.MonkeyPatch, fault: Any, transport: str
) -> None:
    if transport == "threads":
        monkeypatch.setattr(async_transport, "httpx", None)
    faulty = network(lambda path, number: fault if path == "/claim" and number <= 2 else "pass")
    client, claim, runs = Onceward(faulty.url, API_KEY), named(), []

    async def arun() -> None:
        async with client.claim(**claim):
            runs.append(1)

    if transport == "blocking":
        with client.claim(**claim):
            runs.append(1)
    else:
        asyncio.run(arun())
    bodies = faulty.bodies("/claim")
    assert (len(runs), len(bodies), len(set(bodies))) == (1, 3, 1)
    assert code_of(client, claim) == "reply_not_kept"
    assert json.loads(faulty.bodies("/claim")[-1])["attempt"] != json.loads(bodies[0])["attempt"]


def test_unreachable_service_runs_nothing_soon(network: Open) -> None:
    gone = network()
    gone.close()
    began = time.monotonic()
    assert code_of(Onceward(gone.url, API_KEY), named()) == "store_unavailable"
    assert time.monotonic() - began < 2


def test_silent_service_runs_nothing_within_the_lease(network: Open) -> None:
    silent = network(lambda path, number: 2.0)
    began = time.monotonic()
    assert code_of(Onceward(silent.url, API_KEY), named(lease=0.6)) == "store_unavailable"
    assert time.monotonic() - began < 1.5


@pytest.mark.parametrize("transport", ["blocking", "httpx", "threads"])
@pytest.mark.parametrize(("fault", "lease"), [("lose", 0.6), ("replace", 9.0)])
def test_claim_that_is_given_up_is_released(
    network: Open, onceward: Onceward, monkeypatch: pytest.MonkeyPatch, transport: str, fault: str, lease: float
) -> None:
    if transport == "threads":
        monkeypatch.setattr(async_transport, "httpx", None)
    claim = named(lease=lease)
    # The service grants the claim.
    faulty = network(lambda path, number: fault if path == "/claim" else "pass")

    async def aclaim() -> None:
        async with Onceward(faulty.url, API_KEY).claim(**claim):
            pytest.fail("the claim was given up")

    if transport == "blocking":
        assert code_of(Onceward(faulty.url, API_KEY), claim) == "store_unavailable"
    else:
        with pytest.raises(Rejected, match="store_unavailable"):
            asyncio.run(aclaim())
    faulty.plan = lambda path, number: "pass"
    until("the key is free", lambda: code_of(onceward, claim) != "in_progress", 5)
    assert code_of(onceward, claim) == "reply_not_kept", "it ran now"
    assert len({json.loads(body)["attempt"] for body in faulty.bodies("/claim")}) == 1


#: Answers that say nothing about an earlier try of the claim: a rejected API key, a body that arrived late, the limit of a gateway, and
#: its JSON.
SILENT = [
    401,
    (400, b'{"code": "bad_request", "retry": "no"}'),
    (429, b'{"code": "rate_limited", "retry": "same"}'),
    (200, b'{"message": "welcome"}'),
]


@pytest.mark.parametrize("silent", SILENT)
def test_claim_whose_answer_was_lost_is_released_after_a_final_answer(network: Open, onceward: Onceward, silent: Any) -> None:
    # The service grants the claim on the first try. The third is that of the background.
    plan = {1: "lose", 2: silent, 3: silent}
    faulty = network(lambda path, number: plan.get(number, "pass") if path == "/claim" else "pass")
    claim = named(lease=9.0)
    assert code_of(Onceward(faulty.url, API_KEY), claim) != "run"
    until("the key is free", lambda: code_of(onceward, claim) != "in_progress", 5)
    assert code_of(onceward, claim) == "reply_not_kept", "it ran now"
    bodies = [json.loads(body) for body in faulty.bodies("/claim")]
    assert len({body["attempt"] for body in bodies}) == 1 and len(bodies) == 4


@pytest.mark.parametrize("silent", SILENT)
def test_release_in_the_background_is_repeated_until_it_is_recorded(network: Open, onceward: Onceward, silent: Any) -> None:
    plan = {"/claim": {1: "lose", 2: 401}, "/claim/release": {1: silent}}
    faulty, claim = network(lambda path, number: plan[path].get(number, "pass")), named(lease=9.0)
    assert code_of(Onceward(faulty.url, API_KEY), claim) == "store_unavailable"
    until("the key is free", lambda: code_of(onceward, claim) != "in_progress", 5)
    assert code_of(onceward, claim) == "reply_not_kept", "it ran now"


def test_claim_that_was_rejected_is_not_open() -> None:
    problem = b'{"code": "bad_request", "retry": "no"}'
    for answer, is_open in [(Answer(401), False), (Answer(400, problem), False), (Answer(409, problem), False), (Answer(200, b"{}"), True)]:
        retries = Retries(1.0)
        assert retries.delay_after(answer) is None and retries.is_open == is_open


def test_claim_that_is_never_released_is_logged(
    network: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(orphan, "QUIET", 0.0)
    silent = network(lambda path, number: "lose")
    assert code_of(Onceward(silent.url, API_KEY), named(lease=0.3)) == "store_unavailable"
    until("the operator learns it", lambda: "could not release a claim of a request that was rejected" in caplog.text, 5)


def test_service_that_hangs_makes_few_threads(network: Open) -> None:
    stuck = network(lambda path, number: 2.0)
    client = Onceward(stuck.url, API_KEY)
    with ThreadPoolExecutor(40) as pool:
        codes = list(pool.map(lambda _: code_of(client, named(lease=0.6)), range(40)))
    assert codes == ["store_unavailable"] * 40
    releasing = [each for each in threading.enumerate() if getattr(each, "_target", None) == orphan.orphans.get()._run]
    assert 1 <= len(releasing) <= orphan.THREADS


class StuckOrphan(orphan.Orphan):
    """An orphan whose try ends as it is told."""

    def __init__(self, end: Callable[[], bool]) -> None:
        self._end, self.tries = end, 0

    def is_over(self) -> bool:
        self.tries += 1
        return self._end()


def test_orphans_that_wait_are_limited_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(orphan, "LIMIT", 2)
    orphans, go = orphan.Orphans(), threading.Event()
    busy = [StuckOrphan(go.wait) for _ in range(orphan.THREADS)]
    for each in busy:
        orphans.add(each)
        until("a thread tries it", lambda: each.tries == 1)  # noqa: B023
    later = [StuckOrphan(go.wait) for _ in range(5)]
    for each in later:
        orphans.add(each)
    assert caplog.text.count("because 2 others wait for that") == 1
    go.set()
    until("all threads have ended", lambda: orphans._threads == 0)
    assert [each.tries for each in later] == [1, 1, 0, 0, 0], "the newest are dropped"


def test_error_of_an_orphan_costs_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> bool:
        raise KeyError("canary")

    orphans, last = orphan.Orphans(), StuckOrphan(lambda: True)
    for _ in range(2 * orphan.THREADS):
        orphans.add(StuckOrphan(fail))
    orphans.add(last)
    until("all threads have ended", lambda: orphans._threads == 0)
    assert last.tries == 1 and caplog.text.count("KeyError('canary')") == 1


@pytest.mark.parametrize("result", ["release", "complete"])
def test_renewal_that_arrives_after_the_release_blocks_no_key(network: Open, onceward: Onceward, result: str) -> None:
    faulty = network(lambda path, number: "late" if path == "/claim/renew" else "pass")
    # The renewal arrives half a second late at most, and the claim is released again after the lease.
    claim = named(lease=4.0)
    with Onceward(faulty.url, API_KEY).claim(**claim) as claimed:
        until("a renewal is lost", lambda: claimed._has_lost_renewal)
        assert (claimed.release() if result == "release" else claimed.complete()) is Settled.RECORDED
    until("the renewal has arrived", lambda: len(faulty.late_answers) == len(faulty.bodies("/claim/renew")))
    if result == "release":
        assert 204 in faulty.late_answers and code_of(onceward, claim) == "in_progress", "the renewal has claimed the key again"
        until("the key is free", lambda: code_of(onceward, claim) not in ("in_progress", "outcome_unknown"))
    assert code_of(onceward, claim) == "reply_not_kept"
    assert len(faulty.bodies(f"/claim/{result}")) == (2 if result == "release" else 1)


@pytest.mark.parametrize("transport", ["blocking", "httpx", "threads"])
@pytest.mark.parametrize("is_idle", [False, True])
def test_response_that_drips_is_given_up_in_time(
    network: Open, monkeypatch: pytest.MonkeyPatch, transport: str, is_idle: bool
) -> None:
    if transport == "threads":
        monkeypatch.setattr(async_transport, "httpx", None)
    drips = network(lambda path, number: "drip" if path == "/claim/renew" else "pass")
    client = Onceward(drips.url, API_KEY)

    async def apost() -> tuple[Answer, float]:
        if is_idle:
            await client.aissue()
        began = time.monotonic()
        return await client._async_transport.post("/claim/renew", b"{}", 0.3), time.monotonic() - began

    def post() -> tuple[Answer, float]:
        if is_idle:
            client.issue()
        began = time.monotonic()
        return client._transport.post("/claim/renew", b"{}", 0.3), time.monotonic() - began

    answer, took = post() if transport == "blocking" else asyncio.run(apost())
    assert (answer.status, answer.was_sent, took < 1.0) == (0, True, True), took
    assert isinstance(answer.error, TimeoutError)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_response_that_is_too_large_or_cut_off_is_no_answer(is_async: bool, is_chunked: bool) -> None:
    size = (b"%x" if is_chunked else b"%d") % (LIMIT * 1000)
    head = b"HTTP/1.1 200 OK\r\n" + (b"transfer-encoding: chunked\r\n\r\n%s\r\n" if is_chunked else b"content-length: %s\r\n\r\n") % size
    for body in [b"x" * 100, b"x" * (2 * LIMIT)]:
        with Raw(head + body) as raw:
            client = Onceward(raw.url)
            call = client._async_transport.post("/claim", b"", 5.0) if is_async else None
            answer = asyncio.run(call) if call else client._transport.post("/claim", b"", 5.0)
        assert (answer.status, answer.was_sent) == (0, True) and answer.error is not None


@pytest.mark.parametrize("transport", ["blocking", "httpx", "threads"])
def test_unreachable_service_is_logged_once_with_its_cause(
    refusing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, transport: str
) -> None:
    if transport == "threads":
        monkeypatch.setattr(async_transport, "httpx", None)
    client = Onceward(refusing.replace("://", "://user:canary@") + "/canary", "a-key-canary")

    async def aclaim() -> None:
        async with client.claim(**named(lease=0.6)):
            pytest.fail("it ran")

    for _ in range(2):
        with pytest.raises(Rejected, match="store_unavailable") as rejected:
            if transport == "blocking":
                with client.claim(**named(lease=0.6)):
                    pytest.fail("it ran")
            asyncio.run(aclaim())
    cause = httpx.ConnectError if transport == "httpx" else ConnectionRefusedError
    assert isinstance(rejected.value.__cause__, cause)
    # A claim of another test may fail in the background meanwhile.
    lines = [record.getMessage() for record in caplog.records if refusing.removeprefix("http://") in record.getMessage()]
    assert len(lines) == 1 and f"a call of Onceward at {refusing} failed ({cause.__name__}: " in lines[0], lines
    assert "canary" not in caplog.text


def test_gateway_that_fails_is_logged(network: Open, caplog: pytest.LogCaptureFixture) -> None:
    faulty = network(lambda path, number: (502, b"<html>"))
    assert code_of(Onceward(faulty.url, API_KEY), named(lease=0.3)) == "store_unavailable"
    assert caplog.text.count("failed (status 502)") == 1


@pytest.mark.parametrize(
    ("path", "settings", "code"),
    [("/onceward", {}, "not_found"), ("", {"lease": 7200.0}, "bad_request"), ("", {"wait": 60.0}, "bad_request")],
)
def test_mistake_in_the_settings_is_logged_and_not_blamed_on_the_client(
    service: Service, caplog: pytest.LogCaptureFixture, path: str, settings: dict[str, Any], code: str
) -> None:
    client = Onceward(service.url + path, API_KEY)
    assert code_of(client, named(**settings)) == "store_unavailable"
    lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(lines) == 1 and f"rejects a call of this backend as {code}: " in lines[0]
    assert all(name in lines[0] for name in settings)


def test_look_up_tells_no_record_from_a_wrong_url(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    intent = Intent(action="order", subject="alice", key=uuid.uuid4().hex)
    for path, code, errors in [("", "not_found", 0), ("/onceward", "store_unavailable", 1)]:
        client = Onceward(service.url + path, API_KEY)
        for look in [lambda: client.look_up(intent), lambda: asyncio.run(client.alook_up(intent))]:
            caplog.clear()
            with pytest.raises(Rejected, match=code):
                look()
            assert sum(record.levelname == "ERROR" for record in caplog.records) == errors


def test_cause_of_a_rejection_is_no_timeout_of_the_handler(network: Open, onceward: Onceward) -> None:
    silent = network(lambda path, number: 2.0)
    claim = named(at_most_once=False, lease=30.0)
    with pytest.raises(Rejected) as rejected, onceward.claim(**claim):
        Onceward(silent.url, API_KEY, timeout=0.1).issue()
    assert isinstance(rejected.value.__cause__, TimeoutError)
    assert code_of(onceward, claim) == "run"


def test_wrong_api_key_is_logged_and_runs_nothing(network: Open, caplog: pytest.LogCaptureFixture) -> None:
    through = network()
    assert code_of(Onceward(through.url, "a-wrong-key-canary"), named()) == "store_unavailable"
    assert len(through.calls) == 1, "a wrong key does not become right"
    assert "ONCEWARD_API_KEY is missing or wrong" in caplog.text and "canary" not in caplog.text


@pytest.mark.parametrize("is_async", [False, True])
def test_lost_completion_is_repeated_in_the_background(network: Open, onceward: Onceward, is_async: bool) -> None:
    faulty = network(lambda path, number: "drop" if path == "/claim/complete" else "pass")
    client, claim = Onceward(faulty.url, API_KEY), named(lease=0.5)

    async def arun() -> None:
        async with client.claim(**claim) as claimed:
            await claimed.acomplete(Reply.json("done"))

    if is_async:
        asyncio.run(arun())
    else:
        with client.claim(**claim) as claimed:
            claimed.complete(Reply.json("done"))
    end = time.monotonic() + 0.8
    while time.monotonic() < end:
        assert code_of(onceward, claim) == "in_progress", "renewed for longer than its lease"
        time.sleep(0.03)
    faulty.plan = lambda path, number: "pass"
    until("the reply is stored", lambda: code_of(onceward, claim) == "replayed")


@pytest.mark.parametrize("is_async", [False, True])
def test_result_whose_answer_is_lost_is_repeated_at_once(network: Open, is_async: bool) -> None:
    lossy = network(lambda path, number: "lose" if (path, number) == ("/claim/complete", 1) else "pass")
    client = Onceward(lossy.url, API_KEY)

    async def arun() -> Settled:
        async with client.claim(**named()) as claimed:
            return await claimed.acomplete()

    if is_async:
        assert asyncio.run(arun()) is Settled.RECORDED
    else:
        with client.claim(**named()) as claimed:
            assert claimed.complete() is Settled.RECORDED
    assert len(lossy.bodies("/claim/complete")) == 2


def test_reply_that_is_not_accepted_is_left_out(network: Open, onceward: Onceward) -> None:
    claim, large = named(), named()
    with onceward.claim(**claim) as claimed:
        claimed.complete(Reply(201, (("bad header", "\n"),), b""))
    assert code_of(onceward, claim) in ("reply_not_kept", "replayed")
    with onceward.claim(**large) as claimed:
        claimed.complete(Reply(201, (), b"." * (1024 * 1024 + 1)))
    assert code_of(onceward, large) == "reply_not_kept"


#: Answers that are not the service's, although some look like a verdict.
GATEWAY = [302, (404, b"<html>"), 409, (429, b'{"code":429,"retry":1}'), (200, b"<html>"), (200, b'{"status":"ok"}'), 201, (403, b"")]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("result", ["complete", "release"])
def test_answers_of_a_gateway_are_not_the_verdict(network: Open, onceward: Onceward, result: str, is_async: bool) -> None:
    # A release is not renewed, so it is repeated for one lease only.
    answers = GATEWAY if result == "complete" else GATEWAY[:4]
    faulty = network(lambda path, number: answers[number - 1] if path.endswith(result) and number <= len(answers) else "pass")
    client, claim = Onceward(faulty.url, API_KEY), named(lease=1.2, at_most_once=False)

    async def arun() -> Settled:
        async with client.claim(**claim) as claimed:
            return await (claimed.acomplete(Reply.json(1)) if result == "complete" else claimed.arelease())

    if is_async:
        settled = asyncio.run(arun())
    else:
        with client.claim(**claim) as claimed:
            settled = claimed.complete(Reply.json(1)) if result == "complete" else claimed.release()
    assert settled is Settled.PENDING
    until("the result is recorded", lambda: len(faulty.bodies(f"/claim/{result}")) > len(answers))
    until("the key is settled", lambda: code_of(onceward, claim) != "in_progress", 0.5)
    assert code_of(onceward, claim) == ("replayed" if result == "complete" else "reply_not_kept")


def test_renewal_that_a_gateway_rejects_loses_no_claim(network: Open, onceward: Onceward) -> None:
    faulty = network(lambda path, number: (409, b"<html>") if path == "/claim/renew" and number <= 3 else "pass")
    claim = named(lease=1.2, at_most_once=False)
    with Onceward(faulty.url, API_KEY).claim(**claim) as claimed:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            assert code_of(onceward, claim) == "in_progress"
            time.sleep(0.03)
        assert claimed.complete() is Settled.RECORDED and len(faulty.bodies("/claim/renew")) > 3


@pytest.mark.parametrize("call", ["/claim/renew", "/claim/complete"])
def test_claim_that_the_service_calls_lost_is_given_up(network: Open, call: str) -> None:
    lost = (409, b'{"code":"claim_lost","retry":"no"}')
    faulty = network(lambda path, number: lost if path == call else "pass")
    with Onceward(faulty.url, API_KEY).claim(**named(lease=0.6)) as claimed:
        time.sleep(0.5)
        assert claimed.complete() is (Settled.LOST if call == "/claim/complete" else Settled.RECORDED)
    assert len(faulty.bodies(call)) == 1, "it is not repeated"


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        ([413], "reply_not_kept"),
        (["drop", (413, b'{"code":"body_too_large","retry":"no"}')], "reply_not_kept"),
        (["drop", "drop", 413], "reply_not_kept"),
        ([(400, b'{"code":"bad_request","retry":"no"}')], "reply_not_kept"),
        # A gateway that rejects another part of the request.
        ([400], "replayed"),
    ],
)
def test_reply_is_left_out_if_it_is_refused(network: Open, onceward: Onceward, faults: list[Any], code: str) -> None:
    faulty = network(lambda path, number: faults[number - 1] if path == "/claim/complete" and number <= len(faults) else "pass")
    claim = named(lease=0.9, at_most_once=False)
    with Onceward(faulty.url, API_KEY).claim(**claim) as claimed:
        assert claimed.complete(Reply.json(1)) is not Settled.LOST
    until("the completion is recorded", lambda: code_of(onceward, claim) != "in_progress")
    assert code_of(onceward, claim) == code


def test_stuck_renewal_loses_no_claim(network: Open, onceward: Onceward) -> None:
    faulty = network(lambda path, number: 3.0 if (path, number) == ("/claim/renew", 1) else "pass")
    claim = named(lease=0.9, at_most_once=False)
    with Onceward(faulty.url, API_KEY).claim(**claim):
        end = time.monotonic() + 2
        while time.monotonic() < end:
            assert code_of(onceward, claim) == "in_progress"
            time.sleep(0.03)
    assert code_of(onceward, claim) == "reply_not_kept"


class Threads:
    """Lets threads of the package fail to start, as at the limit of the process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        #: How many threads that keep a claim fail, and whether all others do.
        self.failing, self.is_full = 0, False
        # A keeper whose thread has not started yet.
        monkeypatch.setattr(keeper_module.keeper, "_values", {})
        start = threading.Thread.start
        threads = self

        def start_or_fail(thread: threading.Thread) -> None:
            is_keeping = getattr(thread, "_target").__name__ == "keep"
            threads.failing -= is_keeping
            if thread.name == "onceward" and (threads.is_full or (is_keeping and threads.failing >= 0)):
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_or_fail)


def test_claim_is_renewed_once_a_thread_can_be_started(
    onceward: Onceward, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    threads, claim = Threads(monkeypatch), named(lease=1.2, at_most_once=False)
    threads.failing = 2
    with onceward.claim(**claim):
        end = time.monotonic() + 2
        while time.monotonic() < end:
            assert code_of(onceward, claim) == "in_progress"
            time.sleep(0.03)
    assert code_of(onceward, claim) == "reply_not_kept"
    assert "could not start a thread that renews claims" in caplog.text and threads.failing < 0


def test_result_is_repeated_once_a_thread_can_be_started(
    network: Open, onceward: Onceward, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = network(lambda path, number: "drop" if path == "/claim/complete" else "pass")
    threads, claim = Threads(monkeypatch), named(lease=1.2)
    with Onceward(faulty.url, API_KEY).claim(**claim) as claimed:
        threads.failing = 1
        assert claimed.complete(Reply.json("done")) is Settled.PENDING
    faulty.plan = lambda path, number: "pass"
    del claimed
    until("the reply is stored", lambda: code_of(onceward, claim) == "replayed")


@pytest.mark.parametrize("is_async", [False, True])
def test_claim_that_cannot_be_renewed_runs_nothing(onceward: Onceward, monkeypatch: pytest.MonkeyPatch, is_async: bool) -> None:
    threads, claim = Threads(monkeypatch), named()
    threads.is_full = True

    async def arun() -> None:
        async with onceward.claim(**claim):
            pytest.fail("it ran without renewal")

    if is_async:
        with pytest.raises(Rejected, match="store_unavailable"):
            asyncio.run(arun())
    else:
        assert code_of(onceward, claim) == "store_unavailable"
    threads.is_full = False
    assert code_of(onceward, claim) == "run", "the key is free"


def test_async_result_is_recorded_without_threads(onceward: Onceward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_transport, "httpx", None)
    threads, claim = Threads(monkeypatch), named()

    async def main() -> Settled:
        async with onceward.claim(**claim) as claimed:
            threads.is_full = True
            return await claimed.acomplete(Reply.json("done"))

    assert asyncio.run(main()) is Settled.RECORDED
    assert code_of(onceward, claim) == "replayed"


def descriptors() -> int:
    """Returns the number of open files and sockets of this process."""
    return len(os.listdir("/proc/self/fd"))


def test_event_loops_leave_no_sockets(onceward: Onceward) -> None:
    async def main() -> None:
        assert (await onceward.aissue()).token

    asyncio.run(main())
    before = descriptors()
    for _ in range(30):
        asyncio.run(main())
    assert descriptors() <= before and not onceward._async_transport._clients


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_loop_that_ends_without_its_generators_leaves_no_socket(onceward: Onceward) -> None:
    before = descriptors()
    for _ in range(30):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(onceward.aissue())
        loop.close()
    del loop
    gc.collect()
    # The last loop is dropped with the next one.
    assert descriptors() <= before + 1 and len(onceward._async_transport._clients) == 1


@pytest.mark.parametrize("api_key", ["canary-of-the-tests\n", " canary-of-the-tests", "canary\r\nx: y", "canary\x00", "canary-ü"])
def test_api_key_that_no_header_can_have_is_not_shown(api_key: str) -> None:
    with pytest.raises(ValueError, match="check ONCEWARD_API_KEY") as error:
        Onceward("http://127.0.0.1:9", api_key)
    assert "canary" not in str(error.value)


def test_token_is_redeemed_once_and_can_be_released(network: Open) -> None:
    lossy = network(lambda path, number: "lose" if number == 1 and path.startswith("/token/") else "pass")
    client = Onceward(lossy.url, API_KEY)
    token = client.issue(action="order", subject="alice", ttl=60).token
    with pytest.raises(Rejected, match="token_invalid"):
        client.redeem(token, action="order", subject="bob")
    redeemed = client.redeem(token, action="order", subject="alice")
    with pytest.raises(Rejected, match="token_used"):
        client.redeem(token, action="order", subject="alice")
    assert redeemed.release()
    assert asyncio.run(client.aredeem(token, action="order", subject="alice")).run_id != redeemed.run_id
    assert token not in repr(redeemed) + repr(client.issue())


#: The answers to the two tries of a redemption, and what the application receives.
REDEMPTIONS: list[tuple[list[Any], str]] = [
    (["lose", "lose"], "redeem_unknown"),
    (["drop", "drop"], "redeem_unknown"),
    (["lose", 401], "redeem_unknown"),
    ([(502, b"<html>"), (502, b"<html>")], "redeem_unknown"),
    ([(200, b'{"status":"ok"}')], "redeem_unknown"),
    ([(503, b'{"code":"redeem_unknown","retry":"new_token"}')] * 2, "redeem_unknown"),
    (["lose", (503, b'{"code":"store_unavailable","retry":"same"}')], "redeem_unknown"),
    (["lose", (429, b'{"code":"rate_limited","retry":"same"}')], "redeem_unknown"),
    # The service says that it has not executed the call.
    ([(503, b'{"code":"store_unavailable","retry":"same"}')] * 2, "store_unavailable"),
    ([401, 401], "store_unavailable"),
    (["lose", (409, b'{"code":"token_used","retry":"no"}')], "token_used"),
]


@pytest.mark.parametrize(("faults", "code"), REDEMPTIONS)
@pytest.mark.parametrize("is_async", [False, True])
def test_redemption_without_answer_is_unknown(
    network: Open, onceward: Onceward, faults: list[Any], code: str, is_async: bool
) -> None:
    faulty = network(lambda path, number: faults[number - 1] if path == "/token/redeem" and number <= len(faults) else "pass")
    client, token = Onceward(faulty.url, API_KEY), onceward.issue().token
    with pytest.raises(Rejected) as rejected:
        asyncio.run(client.aredeem(token, subject="alice")) if is_async else client.redeem(token, subject="alice")
    assert rejected.value.code == code
    if code == "redeem_unknown":
        assert (rejected.value.problem.status, rejected.value.problem.retry) == (503, "new_token")
    assert len(faulty.bodies("/token/redeem")) == len(faults)


def test_redemption_on_an_idle_connection_may_have_used_the_token(network: Open) -> None:
    def lose_and_close(path: str, _number: int) -> str:
        if path == "/token/redeem":
            faulty.close()
        return "lose" if path == "/token/redeem" else "pass"

    faulty = network(lose_and_close)
    client = Onceward(faulty.url, API_KEY)
    token = client.issue().token
    with pytest.raises(Rejected, match="redeem_unknown"):
        client.redeem(token, subject="alice")


def test_redemption_at_an_unreachable_service_may_be_repeated(refusing: str, onceward: Onceward) -> None:
    with pytest.raises(Rejected) as rejected:
        Onceward(refusing, API_KEY).redeem(onceward.issue().token, subject="alice")
    assert (rejected.value.code, rejected.value.problem.retry) == ("store_unavailable", "same")


def test_redemption_without_subject_says_what_to_pass(onceward: Onceward) -> None:
    redeem: Any = onceward.redeem
    token = onceward.issue(subject="7").token
    with pytest.raises(TypeError, match="subject"):
        redeem(token)
    with pytest.raises(ValueError, match="subject is required: pass the id of the client"):
        redeem(token, subject="")
    with pytest.raises(TypeError, match="subject has to be a str, an int or a UUID"):
        asyncio.run(onceward.aredeem(token, subject=None))  # type: ignore[arg-type]
    assert redeem(token, subject=7).run_id


def test_token_is_claimed_with_its_reply(onceward: Onceward) -> None:
    claim = {"token": asyncio.run(onceward.aissue()).token, "action": "order", "subject": "anonymous"}
    with onceward.claim(**claim) as claimed:
        claimed.complete(Reply(201))
    assert code_of(onceward, claim) == "replayed"


def test_decorated_function_returns_its_first_result(onceward: Onceward) -> None:
    calls: list[str] = []
    prefix = uuid.uuid4().hex

    @once(onceward, key=lambda message: prefix + message, subject="billing")
    def consume(message: str) -> dict[str, str]:
        calls.append(message)
        return {"consumed": message}

    @once(onceward, key=lambda message: prefix + message, subject="billing")
    async def aconsume(message: str) -> str:
        if message == "fails":
            raise NotApplied
        calls.append(message)
        return message

    assert consume("a") == consume("a") == {"consumed": "a"}
    assert [asyncio.run(aconsume("b")), asyncio.run(aconsume("b"))] == ["b", "b"]
    for _ in range(2):
        with pytest.raises(NotApplied):
            asyncio.run(aconsume("fails"))
    assert calls == ["a", "b"]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    ("effect", "code"),
    [(Effect.APPLIED, "replayed"), (Effect.NOT_APPLIED, "run"), (Effect.UNKNOWN, "in_progress"), (None, "replayed")],
)
def test_decorated_function_states_its_effect(
    onceward: Onceward, effect: Effect | None, code: str, fails: bool, is_async: bool
) -> None:
    key = uuid.uuid4().hex

    def work() -> str:
        if effect:
            state_effect(effect)
        if fails:
            raise RuntimeError("after the effect")
        return "done"

    @once(onceward, key=lambda: key, subject="billing", action="work", at_most_once=False, lease=30.0)
    def decorated() -> str:
        return work()

    @once(onceward, key=lambda: key, subject="billing", action="work", at_most_once=False, lease=30.0)
    async def adecorated() -> str:
        await asyncio.sleep(0)
        return work()

    try:
        assert (asyncio.run(adecorated()) if is_async else decorated()) == "done" and not fails
    except RuntimeError:
        assert fails
    if fails:
        # Nothing was returned that could be stored. Without a statement, the exception counts.
        code = {Effect.APPLIED: "reply_not_kept", None: "run"}.get(effect, code)
    claim = {"key": key, "action": "work", "subject": "billing", "at_most_once": False}
    assert code_of(onceward, claim) == code
    with pytest.raises(RuntimeError, match=r"outside of a request or function .* complete\(\), release\(\) or leave\(\)"):
        state_effect(Effect.APPLIED)


@pytest.mark.parametrize("is_async", [False, True])
def test_replay_inside_a_decorated_function_is_its_exception(onceward: Onceward, is_async: bool) -> None:
    inner, key = named(), uuid.uuid4().hex
    with onceward.claim(**inner) as claim:
        claim.complete(Reply.json("the inner result"))

    @once(onceward, key=lambda: key, subject="billing", action="work", lease=30.0)
    def decorated() -> str:
        with onceward.claim(**inner):
            pytest.fail("it ran twice")

    @once(onceward, key=lambda: key, subject="billing", action="work", lease=30.0)
    async def adecorated() -> str:
        async with onceward.claim(**inner):
            pytest.fail("it ran twice")

    with pytest.raises(Replayed) as replayed:
        asyncio.run(adecorated()) if is_async else decorated()
    assert replayed.value.reply.value() == "the inner result"
    assert code_of(onceward, {"key": key, "action": "work", "subject": "billing"}) == "in_progress", "its effect is unknown"


@pytest.mark.parametrize("is_async", [False, True])
def test_replay_inside_a_decorated_function_may_be_caught(onceward: Onceward, is_async: bool) -> None:
    inner, key, results = named(), uuid.uuid4().hex, []

    @once(onceward, key=lambda: key, subject="billing", action="work")
    def decorated() -> str:
        try:
            with onceward.claim(**inner) as claim:
                claim.complete(Reply.json("paid"))
        except Replayed as replayed:
            return f"{replayed.reply.value()} before"
        raise NotApplied

    @once(onceward, key=lambda: key, subject="billing", action="work")
    async def adecorated() -> str:
        return await asyncio.to_thread(decorated.__wrapped__)  # type: ignore[attr-defined, no-any-return]

    def run() -> str:
        return asyncio.run(adecorated()) if is_async else decorated()

    with pytest.raises(NotApplied):
        run()
    for _ in range(2):
        results.append(run())
    assert results == ["paid before"] * 2


def test_result_that_is_not_json_is_not_repeated(onceward: Onceward) -> None:
    calls, key = [], uuid.uuid4().hex

    @once(onceward, key=lambda: key, subject="billing")
    def make() -> object:
        calls.append(1)
        return object()

    assert make() is not None
    with pytest.raises(Rejected, match="reply_not_kept"):
        make()
    assert len(calls) == 1


def test_generator_cannot_be_decorated(onceward: Onceward) -> None:
    def works() -> Iterator[int]:
        yield 1

    async def aworks() -> AsyncIterator[int]:
        yield 1

    class Works:
        def __call__(self) -> Iterator[int]:
            yield 1

    for function in [works, aworks, Works(), functools.partial(works)]:
        with pytest.raises(TypeError, match="not for generators"):
            once(onceward, key=lambda: "k", subject="billing", action="work")(function)
    with pytest.raises(TypeError, match="pass action"):
        once(onceward, key=lambda: "k", subject="billing")(functools.partial(print))


@pytest.mark.parametrize("lazy", ["coroutine", "future", "generator", "map", "from async"])
def test_function_that_returns_before_its_work_is_not_completed(onceward: Onceward, lazy: str) -> None:
    calls: list[str] = []
    key = uuid.uuid4().hex

    async def work() -> None:
        calls.append("work")

    def generator() -> Iterator[None]:
        yield calls.append("work")

    pool = ThreadPoolExecutor(1)
    results: dict[str, Callable[[], object]] = {
        "coroutine": work,
        "future": lambda: pool.submit(threading.Event().wait, 0),
        "generator": generator,
        "map": lambda: map(calls.append, ["work"]),
    }

    @once(onceward, key=lambda: key, subject="billing", action="work", at_most_once=False)
    def decorated() -> object:
        return results[lazy]()

    @once(onceward, key=lambda: key, subject="billing", action="work", at_most_once=False)
    async def adecorated() -> object:
        return generator()

    with pytest.raises(TypeError, match="whose work is not done"):
        asyncio.run(adecorated()) if lazy == "from async" else decorated()
    pool.shutdown()
    claim = {"key": key, "action": "work", "subject": "billing", "at_most_once": False}
    assert (code_of(onceward, claim), calls) == ("in_progress", []), "it is neither done nor free"


def test_object_with_async_call_runs_once(onceward: Onceward) -> None:
    calls, key = [], uuid.uuid4().hex

    class Consumer:
        async def __call__(self) -> str:
            await asyncio.sleep(0)
            calls.append(1)
            return "consumed"

    consume: Callable[[], Coroutine[Any, Any, str]] = once(onceward, key=lambda: key, subject="billing", action="consume")(Consumer())
    assert [asyncio.run(consume()), asyncio.run(consume())] == ["consumed", "consumed"]
    assert len(calls) == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_claim_is_for_one_run(onceward: Onceward, is_async: bool) -> None:
    async def aenter(claim: Claim) -> None:
        async with claim:
            pass

    def enter(claim: Claim) -> None:
        with claim:
            pass

    named_claim = named(at_most_once=False)
    claim = onceward.claim(**named_claim)
    with onceward.claim(**named_claim) as first:
        with pytest.raises(Rejected, match="in_progress"):
            asyncio.run(aenter(claim)) if is_async else enter(claim)
        first.release()
    # A claim that was rejected may be entered again; one that has run may not.
    asyncio.run(aenter(claim)) if is_async else enter(claim)
    with pytest.raises(RuntimeError, match="can be entered once"):
        asyncio.run(aenter(claim)) if is_async else enter(claim)
    assert code_of(onceward, named_claim) == "reply_not_kept"


def test_subject_is_text_a_number_or_a_uuid(onceward: Onceward) -> None:
    number, identity = named(subject=7), uuid.uuid4()
    for subject, text in [(7, "7"), (identity, str(identity))]:
        with onceward.claim(**number | {"subject": subject}):
            pass
        assert code_of(onceward, number | {"subject": text}) == "reply_not_kept"
    for subject in [object(), True, None, b"alice", ("alice",), 1.5]:
        with pytest.raises(TypeError, match="subject has to be a str, an int or a UUID, not"):
            onceward.claim(**named(subject=subject))


def test_claim_without_subject_or_key_says_what_to_pass(onceward: Onceward) -> None:
    with pytest.raises(ValueError, match="subject is required: pass the id of the client"):
        onceward.claim(key="k", action="order", subject="")
    with pytest.raises(ValueError, match="pass key=… or token=…"):
        onceward.claim(action="order", subject="alice")
    with pytest.raises(ValueError, match="ONCEWARD_URL"):
        Onceward("")

"""The client against a real service: claims and their results."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from harness.claims import Open, code_of, named
from harness.process import API_KEY, until

from onceward import Claim, NotApplied, Onceward, Rejected, Replayed, Reply, Settled, Unknown, async_transport
from onceward import keeper as keeper_module


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


def test_token_is_claimed_with_its_reply(onceward: Onceward) -> None:
    claim = {"token": asyncio.run(onceward.aissue()).token, "action": "order", "subject": "anonymous"}
    with onceward.claim(**claim) as claimed:
        claimed.complete(Reply(201))
    assert code_of(onceward, claim) == "replayed"


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

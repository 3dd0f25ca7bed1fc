"""The client against a real service, over a network that fails."""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import os
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness.network import Network
from harness.process import API_KEY, until

from onceward import Claim, NotApplied, Onceward, Rejected, Replayed, Reply, Settled, Unknown, async_transport, once
from onceward import keeper as keeper_module

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


@pytest.mark.parametrize("transport", ["blocking", "httpx", "threads"])
@pytest.mark.parametrize("fault", ["lose", "drop", 503])
def test_claim_without_answer_is_repeated_with_its_attempt(
    network: Open, monkeypatch: pytest.MonkeyPatch, fault: str | int, transport: str
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

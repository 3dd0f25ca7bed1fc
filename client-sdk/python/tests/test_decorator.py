"""Functions that run once."""

from __future__ import annotations

import asyncio
import functools
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness.claims import named, code_of

from onceward import Effect, NotApplied, Onceward, Rejected, Replayed, Reply, once, state_effect


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

"""A decorator for functions and consumers of messages."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

from .answer import log
from .claim import Claim, Replayed
from .client import Onceward
from .effect import Effect, Statement, current, judge
from .intent import SubjectId
from .reply import Reply

P = ParamSpec("P")
R = TypeVar("R")


def once(
    onceward: Onceward,
    *,
    key: Callable[P, str],
    subject: Callable[P, SubjectId] | str,
    action: str | None = None,
    fingerprint: Callable[P, str] | None = None,
    at_most_once: bool = True,
    lease: float | None = None,
    wait: float = 0.0,
    retain: float | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Runs a function, also an async one, once per key and subject. A later call returns the first result, which is stored as JSON.

    `key`, `subject` and `fingerprint` are called with the arguments of the function. The action is the name of the function by default.
    An exception settles the claim by its type: `NotApplied` frees the key. `state_effect` outweighs it, also if the function returns.
    Generators are refused: they work after they have returned.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if is_function(function, inspect.isgeneratorfunction) or is_function(function, inspect.isasyncgenfunction):
            raise TypeError("@once is for functions that return when their work is done, and not for generators")
        name = action or name_of(function)

        def claim(*args: P.args, **kwargs: P.kwargs) -> Claim:
            return onceward.claim(
                key=key(*args, **kwargs),
                subject=subject if isinstance(subject, str) else subject(*args, **kwargs),
                action=name,
                fingerprint=fingerprint(*args, **kwargs) if fingerprint else None,
                at_most_once=at_most_once,
                lease=lease,
                wait=wait,
                retain=retain,
            )

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            claimed, statement = claim(*args, **kwargs), Statement()
            try:
                claimed.__enter__()
            except Replayed as replayed:
                return cast(R, replayed.reply.value())
            # A `Replayed` from here on is the function's exception: that of another claim.
            try:
                with stating(statement):
                    result = function(*args, **kwargs)
                    require_done(result, statement)
            except BaseException:
                claimed.settle(judge(claimed.intent.policy, statement, None))
                raise
            claimed.settle(*ending(statement, result))
            return result

        @functools.wraps(function)
        async def arun(*args: P.args, **kwargs: P.kwargs) -> Any:
            claimed, statement = claim(*args, **kwargs), Statement()
            try:
                await claimed.__aenter__()
            except Replayed as replayed:
                return replayed.reply.value()
            try:
                with stating(statement):
                    result = await cast(Awaitable[Any], function(*args, **kwargs))
                    require_done(result, statement)
            except BaseException:
                await claimed.asettle(judge(claimed.intent.policy, statement, None))
                raise
            await claimed.asettle(*ending(statement, result))
            return result

        return cast(Callable[P, R], arun) if is_function(function, inspect.iscoroutinefunction) else run

    return decorate


def is_function(function: Callable[..., Any], has_kind: Callable[[object], bool]) -> bool:
    """Returns whether a function, or the method that is called if it is an object, is of a kind."""
    return has_kind(function) or has_kind(getattr(function, "__call__", None))


def name_of(function: Callable[..., Any]) -> str:
    """Returns the action of a function: its full name."""
    if not hasattr(function, "__qualname__"):
        raise TypeError("@once needs an action for what has no name: pass action=…")
    return f"{function.__module__}.{function.__qualname__}"


@contextmanager
def stating(statement: Statement) -> Iterator[None]:
    """Makes a statement the current one: what a function states is about its own claim, and not about a request that it is called in."""
    outer = current.get()
    token = current.set(statement)
    try:
        yield
    except BaseException as error:
        statement.exception = error
        if outer is not None and statement.is_unknown:
            # It goes on to the request, whose error handlers may hide it.
            outer.is_unknown = True
        raise
    finally:
        try:
            current.reset(token)
        except ValueError:
            pass  # A coroutine that never ended is collected, in another context.


def ending(statement: Statement, result: object) -> tuple[Effect, Reply | None]:
    """Returns the effect of a function that has returned, and its stored form."""
    effect = statement.effect or Effect.APPLIED
    return effect, reply_of(result) if effect is Effect.APPLIED else None


def require_done(result: object, statement: Statement) -> None:
    """Raises if the function has returned work that runs later. Whether it takes effect is unknown then, so the key stays claimed."""
    if inspect.isawaitable(result) or isinstance(result, (Iterator, AsyncIterator, Future)):
        statement.effect = Effect.UNKNOWN
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(
            f"the function returned a {type(result).__name__}, whose work is not done: put @once directly above the async def, "
            "or return when the work is done"
        )


def reply_of(result: object) -> Reply | None:
    """Returns the stored form of a result; `None` if it is not JSON. Its function took effect all the same."""
    try:
        return Reply.json(result)
    except (TypeError, ValueError):
        log.warning("the result is not JSON, so it is not stored: a later call is rejected as reply_not_kept")
        return None

"""A decorator for functions and consumers of messages."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar, cast

from .answer import log
from .claim import Claim, Replayed
from .client import Onceward
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
    An exception settles the claim by its type: `NotApplied` frees the key. Generators are refused: they work after they have returned.
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
            try:
                with claim(*args, **kwargs) as claimed:
                    result = function(*args, **kwargs)
                    require_done(result, claimed)
                    claimed.complete(reply_of(result))
                    return result
            except Replayed as replayed:
                return cast(R, replayed.reply.value())

        @functools.wraps(function)
        async def arun(*args: P.args, **kwargs: P.kwargs) -> Any:
            try:
                async with claim(*args, **kwargs) as claimed:
                    result = await cast(Awaitable[Any], function(*args, **kwargs))
                    require_done(result, claimed)
                    await claimed.acomplete(reply_of(result))
                    return result
            except Replayed as replayed:
                return replayed.reply.value()

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


def require_done(result: object, claim: Claim) -> None:
    """Raises if the function has returned work that runs later. Whether it takes effect is unknown then, so the key stays claimed."""
    if inspect.isawaitable(result) or isinstance(result, (Iterator, AsyncIterator, Future)):
        claim.leave()
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

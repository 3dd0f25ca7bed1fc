"""A decorator for functions and consumers of messages."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, cast

from .answer import log
from .claim import Claim, Replayed
from .client import Onceward
from .reply import Reply

P = ParamSpec("P")
R = TypeVar("R")


def once(
    onceward: Onceward,
    *,
    key: Callable[P, str],
    subject: Callable[P, str] | str,
    action: str | None = None,
    fingerprint: Callable[P, str] | None = None,
    at_most_once: bool = True,
    lease: float | None = None,
    wait: float = 0.0,
    retain: float | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Runs a function, also an async one, once per key and subject. A later call returns the first result, which is stored as JSON.

    `key`, `subject` and `fingerprint` are called with the arguments of the function. The action is the name of the function by default.
    An exception settles the claim by its type: `NotApplied` frees the key.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name = action or f"{function.__module__}.{function.__qualname__}"

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
                    claimed.complete(reply_of(result))
                    return result
            except Replayed as replayed:
                return cast(R, replayed.reply.value())

        @functools.wraps(function)
        async def arun(*args: P.args, **kwargs: P.kwargs) -> Any:
            try:
                async with claim(*args, **kwargs) as claimed:
                    result = await cast(Awaitable[Any], function(*args, **kwargs))
                    await claimed.acomplete(reply_of(result))
                    return result
            except Replayed as replayed:
                return replayed.reply.value()

        return cast(Callable[P, R], arun) if inspect.iscoroutinefunction(function) else run

    return decorate


def reply_of(result: object) -> Reply | None:
    """Returns the stored form of a result; `None` if it is not JSON. Its function took effect all the same."""
    try:
        return Reply.json(result)
    except (TypeError, ValueError):
        log.warning("the result is not JSON, so it is not stored: a later call is rejected as reply_not_kept")
        return None

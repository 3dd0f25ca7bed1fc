"""The effect of a run: whether it happened, as far as its response or its exception tells."""

from __future__ import annotations

from contextvars import ContextVar
from enum import Enum
from typing import Self

from .timeouts import is_caused_by_timeout


class Effect(Enum):
    """The effect of a run. Unknown is never guessed into yes or no."""

    APPLIED = "applied"
    NOT_APPLIED = "not_applied"
    UNKNOWN = "unknown"


class Policy(Enum):
    """What identifies a submission, and what happens after a crash."""

    #: A key of the client. If the process dies, nothing runs again until an operator settles the run.
    AT_MOST_ONCE = "at_most_once"
    #: A key of the client. If the process dies, the key is free after its lease, so the handler may run again.
    RETRYABLE = "retryable"
    #: A token that Onceward issued. It is always claimed at most once.
    TOKEN = "token"


class NotApplied(Exception):
    """Raised by a handler that took no effect: the key or token is free again."""


class Unknown(Exception):
    """Raised by a handler that does not know whether it took effect: the key or token stays claimed."""

    # Not `__init__`: a subclass may have one that does not call this one.
    def __new__(cls, *args: object, **kwargs: object) -> Self:
        # An error handler of the application may turn the exception into a response before a middleware sees it.
        if statement := current.get():
            statement.is_unknown = True
        return super().__new__(cls, *args, **kwargs)


class Statement:
    """What the handler of the current request, or the function of a decorator, has said about its effect."""

    def __init__(self) -> None:
        self.effect: Effect | None = None
        self.exception: BaseException | None = None
        #: True if an `Unknown` was created during the request, also if its exception did not arrive here.
        self.is_unknown = False

    @property
    def is_explicit(self) -> bool:
        """True if the handler has stated the effect, by a call or by the type of its exception."""
        is_typed = isinstance(self.exception, NotApplied) or (self.exception is not None and shows_unknown(self.exception))
        return self.effect is not None or self.is_unknown or is_typed


#: The statement of the current request. It is a mutable object, because frameworks call handlers in a copy of the context.
current: ContextVar[Statement | None] = ContextVar("onceward_statement", default=None)


def state_effect(effect: Effect) -> None:
    """States the effect of the current request, or of the function that `@once` runs.

    It outweighs the status of the response, a returned value, and the type of an exception.
    """
    statement = current.get()
    if statement is None:
        raise RuntimeError(
            "state_effect() was called outside of a request or function that Onceward protects; in a `with` block, "
            "call complete(), release() or leave() of its claim"
        )
    statement.effect = effect


def effect_of_status(policy: Policy, status: int) -> Effect:
    """Returns the effect that the status of a response implies."""
    if status < 400:
        return Effect.APPLIED
    if policy is Policy.TOKEN:
        return Effect.NOT_APPLIED if status <= 501 or status == 503 else Effect.UNKNOWN
    if policy is Policy.AT_MOST_ONCE and status in (408, 500, 501, 503):
        return Effect.UNKNOWN
    if status in (401, 403, 408, 425, 429, 500, 501, 503):
        return Effect.NOT_APPLIED
    return Effect.APPLIED if status < 500 else Effect.UNKNOWN


def effect_of_exception(policy: Policy, exception: BaseException) -> Effect:
    """Returns the effect that an exception of the handler implies: the same as a 500, unless its type says more."""
    if shows_unknown(exception):
        return Effect.UNKNOWN
    return Effect.NOT_APPLIED if isinstance(exception, NotApplied) else effect_of_status(policy, 500)


def shows_unknown(exception: BaseException) -> bool:
    """Returns whether the type of an exception shows that its work may have been cut off.

    A timeout ends a call that may have taken effect. What is not an `Exception` cancels the handler or ends the process. A task group
    raises a group. `NotApplied` is the handler's own statement, whatever caused it.
    """
    if isinstance(exception, BaseExceptionGroup):
        return any(shows_unknown(each) for each in exception.exceptions)
    if isinstance(exception, Unknown) or not isinstance(exception, Exception):
        return True
    return not isinstance(exception, NotApplied) and is_caused_by_timeout(exception)


def judge(policy: Policy, statement: Statement, status: int | None) -> Effect:
    """Decides the effect of a request: by the handler's statement, then by its exception, then by the status of its response.

    A framework turns an exception into a response, whose status then counts unless the exception says "not applied" or "unknown".
    """
    if statement.effect is not None:
        return statement.effect
    if statement.is_unknown:
        return Effect.UNKNOWN
    if statement.exception is not None and (status is None or statement.is_explicit):
        return effect_of_exception(policy, statement.exception)
    return Effect.UNKNOWN if status is None else effect_of_status(policy, status)

"""Whether what a view wrote was committed: a rollback, as by `ATOMIC_REQUESTS`, shows that nothing took effect."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from enum import Enum
from types import TracebackType
from typing import Any

from django.db import connections, transaction

from .effect import Effect

#: Statements of transactions themselves.
CONTROL = frozenset({"BEGIN", "START", "SAVEPOINT", "RELEASE", "ROLLBACK", "COMMIT", "SET"})


class Transaction(Enum):
    """What happened to the writes of a view."""

    COMMITTED = "committed"
    #: All writes were rolled back, for certain.
    ROLLED_BACK = "rolled back"
    #: The view wrote nothing, or it is not known what happened to it.
    UNDECIDED = "undecided"


class TransactionWatch:
    """Watches the queries of a view on all databases."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._has_written = self._has_committed = self._is_outside = False

    def start(self) -> None:
        """Begins to watch."""
        for connection in connections.all():
            # In a test case of Django, the test itself has begun the transaction, and rolls back everything.
            if not connection.in_atomic_block:
                self._stack.enter_context(connection.execute_wrapper(self._note))

    def stop(self) -> None:
        """Ends to watch."""
        self._stack.close()

    def result(self, exception: BaseException | None) -> Transaction:
        """Returns what happened to the writes of the view."""
        if self._has_committed:
            return Transaction.COMMITTED
        # An exception of the commit itself, or of a hook after it, does not show a rollback.
        is_certain = exception is None or not has_left_atomic(exception.__traceback__)
        return Transaction.ROLLED_BACK if self._has_written and not self._is_outside and is_certain else Transaction.UNDECIDED

    def _note(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        verb = sql.split(None, 1)[0].upper() if sql.strip() else ""
        if verb not in CONTROL:
            connection = context["connection"]
            if connection.in_atomic_block:
                self._has_written = self._has_written or verb != "SELECT"
                # On every query: a hook that was added in a savepoint is lost with it.
                transaction.on_commit(self._commit, using=connection.alias)
            else:
                self._is_outside = True
        return execute(sql, params, many, context)

    def _commit(self) -> None:
        self._has_committed = True


def has_left_atomic(trace: TracebackType | None) -> bool:
    """Returns whether an exception was raised by the end of an atomic block."""
    while trace is not None:
        if trace.tb_frame.f_code is transaction.Atomic.__exit__.__code__:
            return True
        trace = trace.tb_next
    return False


def effect_in_transaction(result: Transaction, effect: Effect, status: int) -> Effect:
    """Corrects the effect of a response by what happened to the writes of its view."""
    match result:
        case Transaction.ROLLED_BACK:
            return Effect.NOT_APPLIED
        case Transaction.COMMITTED if effect is Effect.NOT_APPLIED and status >= 500:
            return Effect.UNKNOWN
    return effect

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
    #: The commit raised: the database may have committed, and its answer was lost.
    COMMIT_RAISED = "the commit raised"
    #: A middleware has begun a transaction around the view, which ends after the claim.
    ENCLOSED = "enclosed"
    #: The view wrote nothing, or it is not known what happened to it.
    UNDECIDED = "undecided"


class TransactionWatch:
    """Watches the queries of a view on all databases."""

    def __init__(self, view: object) -> None:
        self._request_blocks = request_blocks(view)
        self._stack = ExitStack()
        self._written: set[str] = set()
        self._has_committed = self._is_outside = self._is_enclosed = False

    def start(self) -> None:
        """Begins to watch."""
        for connection in connections.all():
            if not connection.in_atomic_block:
                self._stack.enter_context(connection.execute_wrapper(self._note))
            # In a test case of Django, the test itself has begun the transaction, and rolls back everything.
            elif not all(getattr(block, "_from_testcase", False) for block in connection.atomic_blocks):
                self._is_enclosed = True

    def stop(self) -> None:
        """Ends to watch."""
        self._stack.close()

    def result(self, exception: BaseException | None) -> Transaction:
        """Returns what happened to the writes of the view."""
        if self._has_committed:
            return Transaction.COMMITTED
        if has_left_atomic(exception):
            return Transaction.COMMIT_RAISED
        if self._is_enclosed:
            return Transaction.ENCLOSED
        # A view that catches the exception of its own block goes on, and may take effect without the database.
        has_failed = exception is not None or self._written <= self._request_blocks
        return Transaction.ROLLED_BACK if self._written and has_failed and not self._is_outside else Transaction.UNDECIDED

    def _note(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        verb = sql.split(None, 1)[0].upper() if sql.strip() else ""
        if verb not in CONTROL:
            connection = context["connection"]
            if connection.in_atomic_block:
                if verb != "SELECT":
                    self._written.add(connection.alias)
                self._ask_for_commit(connection)
            else:
                self._is_outside = True
        return execute(sql, params, many, context)

    def _ask_for_commit(self, connection: Any) -> None:
        """Notes the commit of the outermost block. A hook that is added in a savepoint would be lost with it."""
        savepoints, connection.savepoint_ids = connection.savepoint_ids, []
        try:
            transaction.on_commit(self._commit, using=connection.alias)
        finally:
            connection.savepoint_ids = savepoints

    def _commit(self) -> None:
        self._has_committed = True


def request_blocks(view: object) -> frozenset[str]:
    """Returns the databases on which Django runs a view in a block of its own (`ATOMIC_REQUESTS`)."""
    exempt = getattr(view, "_non_atomic_requests", ())
    settings = connections.settings.items()
    return frozenset(alias for alias, each in settings if each["ATOMIC_REQUESTS"] and alias not in exempt)


def has_left_atomic(exception: BaseException | None) -> bool:
    """Returns whether an exception, or one that it replaces, was raised by the end of an atomic block."""
    seen: set[int] = set()
    while exception is not None and id(exception) not in seen:
        if is_of_atomic(exception.__traceback__):
            return True
        seen.add(id(exception))
        exception = exception.__cause__ or exception.__context__
    return False


def is_of_atomic(trace: TracebackType | None) -> bool:
    """Returns whether the end of an atomic block is in a traceback."""
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
        case Transaction.COMMIT_RAISED:
            return Effect.UNKNOWN
        case Transaction.COMMITTED | Transaction.ENCLOSED if effect is Effect.NOT_APPLIED and status >= 500:
            return Effect.UNKNOWN
    return effect

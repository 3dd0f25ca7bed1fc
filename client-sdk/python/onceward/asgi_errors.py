"""The exceptions that a Starlette application turns into responses by error handlers of its own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from .asgi_response import Scope
from .effect import Statement

#: The entry of a scope in which Starlette has the error handlers, by exception and by status.
HANDLERS = "starlette.exception_handlers"

ErrorHandler = Callable[[Any, Exception], Any]


class NotingScope(dict[str, Any]):
    """A scope whose error handlers note the exception before they respond to it. Starlette has no hook for that.

    What the application writes into it is in the scope of the server too, where outer middleware reads it.
    """

    def __init__(self, scope: Scope, statement: Statement) -> None:
        super().__init__(scope)
        self._scope, self._statement = scope, statement

    def __setitem__(self, name: str, value: Any) -> None:
        self._scope[name] = value
        if name == HANDLERS:
            value = tuple({kind: noting(handler, self._statement) for kind, handler in each.items()} for each in value)
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        self._scope.pop(name, None)
        super().__delitem__(name)

    def update(self, *others: Any, **named: Any) -> None:
        for name, value in dict(*others, **named).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: str, *default: Any) -> Any:
        self._scope.pop(name, None)
        return super().pop(name, *default)


def noting(handler: ErrorHandler, statement: Statement) -> ErrorHandler:
    """Returns an error handler that notes its exception first. It is async if the handler is: Starlette calls others in a thread."""

    async def note_and_await(request: Any, exception: Exception) -> Any:
        statement.exception = exception
        return await handler(request, exception)

    def note_and_call(request: Any, exception: Exception) -> Any:
        statement.exception = exception
        return handler(request, exception)

    function: Any = handler
    while isinstance(function, functools.partial):
        function = function.func
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))
    return note_and_await if is_async else note_and_call

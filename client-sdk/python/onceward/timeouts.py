"""Timeouts of any library: each has exceptions of its own, which are no `TimeoutError` of Python."""

from __future__ import annotations

from collections.abc import Iterator

from .problem import Rejected

#: The exceptions of Flask. They are responses, such as `RequestTimeout`, whose status counts.
RESPONSES = "werkzeug.exceptions"


def is_caused_by_timeout(exception: BaseException) -> bool:
    """Returns whether an exception, or one that it was explicitly raised from, is a timeout by the name of one of its classes.

    What a rejection was raised from does not count: nothing ran.
    """
    kinds = (kind for each in causes(exception) for kind in type(each).__mro__)
    return any("Timeout" in kind.__name__ and kind.__module__ != RESPONSES for kind in kinds)


def causes(exception: BaseException | None) -> Iterator[BaseException]:
    """Yields an exception, the one that it was raised from, and so on, until a rejection."""
    seen: set[int] = set()
    while exception is not None and id(exception) not in seen:
        seen.add(id(exception))
        yield exception
        exception = None if isinstance(exception, Rejected) else exception.__cause__

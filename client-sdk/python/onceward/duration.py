"""Durations as the service writes them: `333ms`, `5s`, `1d`."""

from __future__ import annotations

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(duration: str) -> float:
    """Parses a duration, in seconds."""
    number = duration.rstrip("dhms")
    return int(number) * _UNITS[duration[len(number) :]]


def text(duration: float) -> str:
    """Formats a number of seconds."""
    return f"{round(duration * 1000)}ms"

"""Claims for tests."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from harness.network import Network

from onceward import Onceward, Rejected, Replayed

Open = Callable[..., Network]


def named(**more: Any) -> dict[str, Any]:
    """Returns the arguments of a claim on a new key."""
    return {"key": uuid.uuid4().hex, "action": "order", "subject": "alice"} | more


def code_of(onceward: Onceward, claim: dict[str, Any]) -> str:
    """Returns what a duplicate receives: a code, `replayed` or `run`."""
    try:
        with onceward.claim(**claim):
            return "run"
    except Replayed:
        return "replayed"
    except Rejected as rejected:
        return rejected.code

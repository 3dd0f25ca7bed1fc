"""How a run ended, and how the service took that."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum

from .reply import LIMIT, Reply


class Settled(Enum):
    """How the service took the result of a run."""

    RECORDED = "recorded"
    #: The claim had expired, and may belong to another run.
    LOST = "lost"
    #: Not yet recorded: it is sent again in the background.
    PENDING = "pending"


@dataclass(frozen=True)
class Result:
    """How a run ended, as a call to the service."""

    path: str
    body: bytes
    has_reply: bool = False

    @property
    def is_completion(self) -> bool:
        """True unless the run had no effect."""
        return self.path == "/claim/complete"


def completion(claim_pass: str, reply: Reply | None) -> Result:
    """Creates the result of a run that took effect. A reply that is too large is left out."""
    wire: dict[str, object] = {"pass": claim_pass}
    if reply is not None and len(reply.body) <= LIMIT:
        return Result("/claim/complete", json.dumps(wire | {"reply": reply.to_wire()}).encode(), has_reply=True)
    return Result("/claim/complete", json.dumps(wire).encode())


def release(claim_pass: str) -> Result:
    """Creates the result of a run that had no effect."""
    return Result("/claim/release", json.dumps({"pass": claim_pass}).encode())

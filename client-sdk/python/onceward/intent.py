"""What a request asks for: the body of `POST /claim`."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass, field

from . import duration
from .effect import Policy


#: The number of characters up to which a fingerprint is sent as it is: the service limits the size of a claim.
LONGEST_FINGERPRINT = 256

SubjectId = str | int | uuid.UUID


def subject_id(value: object) -> str:
    """Returns a subject as text. Any other type has no text that tells clients apart for certain, such as an anonymous user."""
    if isinstance(value, bool) or not isinstance(value, SubjectId):
        kind = type(value).__name__
        raise TypeError(f"subject has to be a str, an int or a UUID, not {kind}: pass the id of the client, such as user.pk")
    if value == "":
        raise ValueError("subject is required: pass the id of the client as the application knows it, such as a user's id")
    return str(value)


@dataclass(frozen=True)
class Intent:
    """A claim on a key or a token."""

    action: str
    subject: str
    key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    fingerprint: str | None = None
    at_most_once: bool = True
    bound: bool = False
    lease: float | None = None
    wait: float = 0.0
    retain: float | None = None

    def __post_init__(self) -> None:
        if (self.key is None) == (self.token is None):
            raise ValueError("a claim needs a key or a token: pass key=… or token=…")

    @property
    def policy(self) -> Policy:
        """The policy of the claim."""
        if self.token is not None:
            return Policy.TOKEN
        return Policy.AT_MOST_ONCE if self.at_most_once else Policy.RETRYABLE

    def to_wire(self) -> bytes:
        """Returns the body of the claim. It names a new attempt: create it once, and repeat the same bytes."""
        wire: dict[str, object] = {"action": self.action, "subject": self.subject, "attempt": uuid.uuid4().hex}
        if self.key is not None:
            wire |= {"key": self.key, "at_most_once": self.at_most_once}
        else:
            wire |= {"token": self.token} | ({"bound": True} if self.bound else {})
        if self.fingerprint:
            wire["fingerprint"] = _short(self.fingerprint)
        for name in ("lease", "wait", "retain"):
            if value := getattr(self, name):
                wire[name] = duration.text(value)
        return json.dumps(wire).encode()

    def look_up(self) -> bytes:
        """Returns the body of `POST /outcome` for the same submission."""
        wire = {"action": self.action, "subject": self.subject}
        return json.dumps(wire | ({"key": self.key} if self.key is not None else {"token": self.token})).encode()


def _short(fingerprint: str) -> str:
    if len(fingerprint) <= LONGEST_FINGERPRINT:
        return fingerprint
    return hashlib.sha256(fingerprint.encode("utf-8", "surrogatepass")).hexdigest()

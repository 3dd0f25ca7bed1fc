"""The client: issues and redeems tokens, and claims keys and tokens at an Onceward service."""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import dataclass, field

from . import duration
from .answer import Answer
from .async_transport import AsyncTransport
from .claim import Claim
from .intent import Intent, SubjectId, subject_id
from .problem import Problem, Rejected
from .reply import Reply
from .transport import Transport

#: The timeout of a call, in seconds; a call for a claim takes at most a third of its lease.
TIMEOUT = 5.0


@dataclass(frozen=True)
class Token:
    """A one-time token."""

    token: str = field(repr=False)
    expires_at: str
    expires_in: int


@dataclass(frozen=True)
class Redemption:
    """A redeemed token: run the operation."""

    run_id: str
    _token: str = field(repr=False)
    _attempt: str = field(repr=False)
    _client: Onceward = field(repr=False)

    def release(self) -> bool:
        """Makes the token valid again, within 60 seconds: the operation had no effect. Returns false if that failed."""
        return self._client._post("/token/release", self._body()).is_done

    async def arelease(self) -> bool:
        """Like `release`, without blocking the event loop."""
        return (await self._client._apost("/token/release", self._body())).is_done

    def _body(self) -> dict[str, object]:
        return {"token": self._token, "attempt": self._attempt, "run_id": self.run_id}


class Onceward:
    """A client of the service. Create one per application: it may be shared by threads, event loops and forked processes."""

    def __init__(self, url: str | None = None, api_key: str | None = None, *, timeout: float = TIMEOUT) -> None:
        """Creates a client. The URL defaults to `ONCEWARD_URL`, the API key to `ONCEWARD_API_KEY`. It connects when it is first used."""
        url = url or os.environ.get("ONCEWARD_URL")
        if not url:
            raise ValueError("the URL of Onceward is missing: pass url, or set ONCEWARD_URL")
        api_key = api_key if api_key is not None else os.environ.get("ONCEWARD_API_KEY")
        self._timeout = timeout
        self._transport = Transport(url, api_key)
        self._async_transport = AsyncTransport(url, api_key, self._transport)

    def issue(self, *, action: str | None = None, subject: str | None = None, ttl: float | None = None) -> Token:
        """Issues a token. With an action or a subject, only these may use it."""
        return _token(self._post("/token", _binding(action, subject, ttl)))

    async def aissue(self, *, action: str | None = None, subject: str | None = None, ttl: float | None = None) -> Token:
        """Like `issue`, without blocking the event loop."""
        return _token(await self._apost("/token", _binding(action, subject, ttl)))

    def redeem(self, token: str, *, subject: SubjectId, action: str | None = None) -> Redemption:
        """Redeems a token, which is then used. Raises `Rejected` if the operation must not run."""
        attempt = uuid.uuid4().hex
        answer = self._post("/token/redeem", _redemption(token, attempt, subject, action))
        return Redemption(_run_id(answer), token, attempt, self)

    async def aredeem(self, token: str, *, subject: SubjectId, action: str | None = None) -> Redemption:
        """Like `redeem`, without blocking the event loop."""
        attempt = uuid.uuid4().hex
        answer = await self._apost("/token/redeem", _redemption(token, attempt, subject, action))
        return Redemption(_run_id(answer), token, attempt, self)

    def claim(
        self,
        *,
        action: str,
        subject: SubjectId,
        key: str | None = None,
        token: str | None = None,
        fingerprint: str | None = None,
        at_most_once: bool = True,
        lease: float | None = None,
        wait: float = 0.0,
        retain: float | None = None,
    ) -> Claim:
        """Returns a claim on a key or a token, for `with` or `async with`. Durations are in seconds."""
        intent = Intent(
            action=action,
            subject=subject_id(subject),
            key=key,
            token=token,
            fingerprint=fingerprint,
            at_most_once=at_most_once,
            lease=lease,
            wait=wait,
            retain=retain,
        )
        return self.claim_for(intent)

    def claim_for(self, intent: Intent) -> Claim:
        """Returns a claim for an intent."""
        return Claim(intent, self._transport, self._async_transport, self._timeout)

    def look_up(self, intent: Intent) -> Reply:
        """Returns the stored reply of a submission, and changes nothing. Raises `Rejected` if there is none."""
        return _found(self._transport.post("/outcome", intent.look_up(), self._timeout))

    async def alook_up(self, intent: Intent) -> Reply:
        """Like `look_up`, without blocking the event loop."""
        return _found(await self._async_transport.post("/outcome", intent.look_up(), self._timeout))

    def _post(self, path: str, body: dict[str, object]) -> Answer:
        """Posts a body, a second time if the answer is lost. A repeated redemption or release names the same attempt."""
        wire = json.dumps(body).encode()
        answer = self._transport.post(path, wire, self._timeout)
        return answer if answer.is_verdict else self._transport.post(path, wire, self._timeout).after(answer)

    async def _apost(self, path: str, body: dict[str, object]) -> Answer:
        wire = json.dumps(body).encode()
        answer = await self._async_transport.post(path, wire, self._timeout)
        return answer if answer.is_verdict else (await self._async_transport.post(path, wire, self._timeout)).after(answer)


def _binding(action: str | None, subject: str | None, ttl: float | None) -> dict[str, object]:
    named = {"action": action, "subject": subject, "ttl": duration.text(ttl) if ttl else None}
    return {name: value for name, value in named.items() if value}


def _redemption(token: str, attempt: str, subject: SubjectId, action: str | None) -> dict[str, object]:
    return {"token": token, "attempt": attempt} | _binding(action, subject_id(subject), None)


def _run_id(answer: Answer) -> str:
    """Returns the id of the run. Raises `Rejected`, as `redeem_unknown` if a try without an answer may have used the token.

    The next redemption is another attempt, which receives `token_used` then, although nothing ran.
    """
    try:
        return str(answer.json("run_id")["run_id"])
    except Rejected as rejected:
        if answer.may_be_executed and rejected.problem.retry == "same":
            raise Rejected.as_code("redeem_unknown") from answer.error
        raise


def _token(answer: Answer) -> Token:
    issued = answer.json("token", "expires_at", "expires_in")
    return Token(issued["token"], issued["expires_at"], issued["expires_in"])


#: The rejection of a look-up, by the state of the record.
_STATES = {"running": "in_progress", "unknown": "outcome_unknown", "done": "reply_not_kept"}


def _found(answer: Answer) -> Reply:
    record = answer.json("state")
    if reply := record.get("reply"):
        return Reply.from_wire(reply)
    raise Rejected(Problem.create(_STATES.get(record["state"], "not_found")))

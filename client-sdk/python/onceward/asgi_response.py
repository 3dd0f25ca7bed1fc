"""The response of an ASGI application, held back until the result of the run is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from .claim import Claim
from .effect import Statement, judge
from .protection import Protection, outcome, outcome_headers
from .reply import LIMIT, has_body

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


async def send_response(send: Send, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> None:
    """Sends a whole response."""
    await send({"type": "http.response.start", "status": status, "headers": encoded(headers)})
    await send({"type": "http.response.body", "body": body})


def encoded(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Returns headers as ASGI has them."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


class ResponseCapture:
    """Receives the messages of the application, settles the claim by them, and then sends them to the client."""

    def __init__(
        self, protection: Protection, claim: Claim, statement: Statement, send: Send, has_own_error_page: bool
    ) -> None:
        self._protection, self._claim, self._statement, self._send = protection, claim, statement, send
        self._has_own_error_page = has_own_error_page
        self._start: Message | None = None
        self._body = bytearray()
        self._is_whole = self._is_settled = False
        #: True once a streamed response has begun: the claim is settled, and the stream ends when the client leaves.
        self.is_streaming = False
        self._released = asyncio.Event()

    def receive_from(self, body: bytes, receive: Receive) -> Receive:
        """Returns the application's `receive`. It hides that the client leaves, so that the handler runs to its response."""
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_next() -> Message:
            if messages:
                return messages.pop()
            await self._released.wait()
            return await receive() if self.is_streaming else {"type": "http.disconnect"}

        return receive_next

    async def send(self, message: Message) -> None:
        """Receives a message of the application."""
        if self._is_settled:
            await self._forward(message)
        elif message["type"] == "http.response.start":
            self._start = message
        elif message["type"] == "http.response.body" and not self._is_streamed(message):
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                self._is_whole = True
                # A framework sends the response to an exception first, and raises it afterwards.
                if self._status() < 500:
                    await self._settle_and_send()
        elif self._start is not None:
            await self._settle(self._status(), None)
            self.is_streaming = True
            self._released.set()
            await self._send_start()
            await self._forward(message)
        else:
            await self._forward(message)

    async def finish(self) -> None:
        """Settles the claim at the end of the application, if its response has not done that."""
        self._released.set()
        error = self._statement.exception
        if self._is_settled:
            return
        if self._is_whole:
            await self._settle_and_send()
        elif error is not None and not isinstance(error, Exception):
            self._is_settled = True
            self._claim.leave()
        else:
            await self._settle(None, None)
            if error is not None and not self._has_own_error_page:
                await self._send_error()

    def _is_streamed(self, message: Message) -> bool:
        """Returns whether a body goes on that has no length, or is too large to be stored."""
        if not has_body(self._status()):
            return False
        length = self._header("content-length")
        known = length is not None and length.isdigit() and int(length) <= LIMIT
        return bool(message.get("more_body")) and not known

    async def _settle_and_send(self) -> None:
        await self._settle(self._status(), bytes(self._body))
        await self._send_start()
        await self._forward({"type": "http.response.body", "body": bytes(self._body)})

    async def _settle(self, status: int | None, body: bytes | None) -> None:
        self._is_settled = True
        effect = judge(self._protection.policy, self._statement, status)
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self._headers()]
        reply = self._protection.reply(status or 200, headers, body)
        self._outcome = outcome(effect, await self._claim.asettle(effect, reply))

    async def _send_start(self) -> None:
        assert self._start is not None
        headers = [*self._headers(), *encoded(outcome_headers(self._outcome))]
        await self._forward({**self._start, "headers": headers})

    async def _send_error(self) -> None:
        """Sends the usual response to an exception, with its outcome. The exception is raised to the framework all the same."""
        body = b"Internal Server Error"
        headers = [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(body)))]
        # uvicorn closes the connection after an exception without saying so, and a client may send its next request there.
        headers.append(("connection", "close"))
        try:
            await send_response(self._send, 500, headers + outcome_headers(self._outcome), body)
        except OSError:
            pass

    async def _forward(self, message: Message) -> None:
        try:
            await self._send(message)
        except OSError:
            # The client has left. The handler runs on, but an endless stream has to end.
            if self.is_streaming:
                raise

    def _status(self) -> int:
        return int(self._start["status"]) if self._start is not None else 500

    def _headers(self) -> list[tuple[bytes, bytes]]:
        return list(self._start.get("headers", ())) if self._start is not None else []

    def _header(self, name: str) -> str | None:
        found = (value for each, value in self._headers() if each.lower() == name.encode())
        return next((value.decode("latin-1") for value in found), None)

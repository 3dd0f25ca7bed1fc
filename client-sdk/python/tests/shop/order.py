"""The handler that every shop has: the headers of the request decide what it does."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import httpx

from onceward import Effect, NotApplied, Unknown, state_effect


def append(line: str) -> None:
    """Appends a line to the ledger."""
    ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(ledger, line.encode() + b"\n")
    finally:
        os.close(ledger)


def count() -> str:
    """Returns the number of lines in the ledger."""
    try:
        with open(os.environ["LEDGER"], "rb") as ledger:
            return str(ledger.read().count(b"\n"))
    except FileNotFoundError:
        return "0"


@dataclass
class Order:
    """One order: what the headers of a request ask for."""

    headers: Mapping[str, str]
    is_protected: bool
    run: str = field(default_factory=lambda: str(uuid.uuid4()))
    since: float = field(default_factory=time.monotonic)

    def before(self) -> float:
        """Does what comes before the effect. Returns the seconds to wait then."""
        takes = self.headers.get("x-takes")
        if takes is not None:
            append("begun")
        return int(takes or 0) / 1000

    def effect(self) -> float:
        """Takes effect, or raises. Returns the seconds to wait afterwards."""
        raises = self.headers.get("x-raise")
        if raises == "before":
            raise RuntimeError("before the effect")
        if raises == "not-applied":
            raise NotApplied
        append(self.headers.get("x-order", "order"))
        if raises == "after":
            raise RuntimeError("after the effect")
        if raises == "unknown":
            raise Unknown
        if raises == "timeout":
            raise httpx.ReadTimeout("the response of a call is lost")
        return int(self.headers.get("x-then", 0)) / 1000

    def state(self) -> None:
        """States the effect, if the request asks for it."""
        if self.is_protected and (stated := self.headers.get("x-effect")):
            state_effect(Effect(stated.replace("-", "_")))

    @property
    def timeout(self) -> float | None:
        """The seconds after which the handler is cut off."""
        timeout = self.headers.get("x-timeout")
        return None if timeout is None else int(timeout) / 1000

    @property
    def status(self) -> int:
        """The status of the response."""
        return int(self.headers.get("x-status", 201))

    @property
    def response_headers(self) -> list[tuple[str, str]]:
        """The headers of a response that is not streamed."""
        run = self.run
        return [
            ("location", f"/orders/{run}"),
            ("content-type", "application/octet-stream"),
            ("x-run", run),
            ("link", '</orders>; rel="collection"'),
            ("link", f'</orders/{run}>; rel="self"'),
            ("set-cookie", f"run={run}"),
            ("set-cookie", "visited=yes"),
        ]

    @property
    def body(self) -> bytes:
        """The body of a response that is not streamed. A 204 has none."""
        if self.status == 204:
            return b""
        return bytes(range(256)) + self.run.encode() + b"." * int(self.headers.get("x-size", 0))

    @property
    def is_streamed(self) -> bool:
        """True if the response is streamed."""
        return "x-stream" in self.headers or "x-fail-stream" in self.headers

    def chunks(self) -> Iterator[bytes]:
        """Yields the chunks of a streamed response."""
        for number in range(int(self.headers.get("x-stream", 3))):
            if number == 1 and self.headers.get("x-fail-stream") == "yes":
                raise RuntimeError("the stream breaks")
            if number:
                time.sleep(0.02)
            yield f"chunk {number}\n".encode()

    def run_to_end(self) -> None:
        """Runs the whole handler, blocking its thread."""
        self.wait(self.before())
        self.wait(self.effect())
        self.state()

    def wait(self, seconds: float) -> None:
        """Blocks the thread, at most until the timeout. Nothing cuts off a blocked thread: its calls have timeouts, and raise."""
        if self.timeout is None:
            time.sleep(seconds)
            return
        left = max(0, self.since + self.timeout - time.monotonic())
        time.sleep(min(seconds, left))
        if seconds > left:
            raise TimeoutError

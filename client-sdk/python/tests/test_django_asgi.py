"""The middleware for Django on ASGI: clients that leave, the end of the server, and other middleware."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django_bank import MIDDLEWARE, WAIT, async_bank, count
from harness.process import until

from onceward import Onceward


class Request:
    """A request to an ASGI application, whose client may leave."""

    def __init__(self, app: Any, path: str, key: str, **headers: str) -> None:
        self.app, self.has_left = app, asyncio.Event()
        self.sent: list[Any] = []
        named = {"idempotency-key": key, "onceward-token": key} | {name.replace("_", "-"): value for name, value in headers.items()}
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        }
        self._body = [{"type": "http.request", "body": b"", "more_body": False}]

    async def run(self) -> None:
        await self.app(self.scope, self._receive, self._send)

    async def _receive(self) -> Any:
        if self._body:
            return self._body.pop()
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def outcome(self) -> str | None:
        """The outcome that the response reports; `None` without a response."""
        headers = dict(self.sent[0]["headers"]) if self.sent else {}
        found = {name.lower(): value for name, value in headers.items()}.get(b"onceward-outcome")
        return None if found is None else found.decode()


async def outcome_of(app: Any, path: str, key: str, **headers: str) -> str | None:
    """Sends a request, and returns the outcome that its response reports."""
    request = Request(app, path, key, **headers)
    await request.run()
    return request.outcome


#: A view that waits, and its headers.
VIEWS = [("wait", {}), ("async", {"x_wait": "yes"})]


@pytest.mark.parametrize("policy", ["keys", "retryable", "forms"])
@pytest.mark.parametrize(("view", "headers"), VIEWS)
@pytest.mark.parametrize("plain", [[], ["django_bank.Plain"]])
def test_view_runs_to_its_end_when_the_client_leaves(
    onceward: Onceward, monkeypatch: pytest.MonkeyPatch, policy: str, view: str, headers: dict[str, str], plain: list[str]
) -> None:
    monkeypatch.setattr(settings, "MIDDLEWARE", plain + MIDDLEWARE[1:])
    app, path, before = async_bank(onceward), f"/{policy}/{view}", count()
    key = onceward.issue().token if policy == "forms" else uuid.uuid4().hex

    async def main() -> None:
        request = Request(app, path, key, **headers)
        running = asyncio.create_task(request.run())
        await asyncio.sleep(WAIT / 2)
        request.has_left.set()
        assert await outcome_of(app, path, key, **headers) == "in_progress"
        await running
        assert not request.sent
        assert await outcome_of(app, path, key, **headers) == "replayed"

    asyncio.run(main())
    assert count() - before == 1


@pytest.mark.parametrize(("view", "headers"), VIEWS)
def test_end_of_the_server_does_not_wait_for_the_view(onceward: Onceward, view: str, headers: dict[str, str]) -> None:
    app, path, key, before = async_bank(onceward), f"/retryable/{view}", uuid.uuid4().hex, count()

    async def main() -> None:
        running = asyncio.create_task(Request(app, path, key, **headers).run())
        await asyncio.sleep(WAIT / 2)

    # Cancels all tasks, as a server at its end.
    asyncio.run(main())
    duplicate = asyncio.run(outcome_of(app, path, key, **headers))
    assert duplicate in ("in_progress", "replayed"), "it may still run in its thread"
    assert count() - before <= 1


def test_view_that_cancels_itself_is_left_unknown(onceward: Onceward) -> None:
    app, key, before = async_bank(onceward), uuid.uuid4().hex, count()

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await outcome_of(app, "/retryable/async", key, x_cancel="yes")
        assert await outcome_of(app, "/retryable/async", key) == "in_progress"

    asyncio.run(main())
    assert count() == before


def test_once_before_a_middleware_that_is_not_async_is_a_clear_error(
    onceward: Onceward, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(settings, "MIDDLEWARE", ["onceward.django.Once", "django_bank.Plain"])
    async_bank(onceward)
    app, before = ASGIHandler(), count()

    async def main() -> None:
        request = Request(app, "/keys/write", uuid.uuid4().hex)
        await request.run()
        assert request.sent[0]["status"] == 500
        # Other paths are not affected.
        other = Request(app, "/form", "")
        await other.run()
        assert other.sent[0]["status"] == 200

    asyncio.run(main())
    assert "make Once the last entry of MIDDLEWARE" in caplog.text and count() == before


def test_parallel_duplicates_run_the_view_once(onceward: Onceward) -> None:
    app, before = async_bank(onceward), count()

    async def main() -> None:
        for view, headers in VIEWS:
            key = uuid.uuid4().hex
            outcomes = await asyncio.gather(*(outcome_of(app, f"/retryable/{view}", key, **headers) for _ in range(20)))
            assert sorted(map(str, outcomes)) == ["executed"] + ["in_progress"] * 19

    asyncio.run(main())
    until("both views have written", lambda: count() - before == 2)

"""The middleware for Django, on WSGI and ASGI: transactions, forms and prefixes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django_bank import async_bank, bank, count

from onceward import Onceward, Reply
from onceward.django import response_of


class LoopTransport(httpx.BaseTransport):
    """Sends each request to an ASGI application in an event loop of its own."""

    def __init__(self, app: Any) -> None:
        self._transport = httpx.ASGITransport(app)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return asyncio.run(self._send(request))

    async def _send(self, request: httpx.Request) -> httpx.Response:
        copy = httpx.Request(request.method, request.url, headers=request.headers, content=request.read())
        response = await self._transport.handle_async_request(copy)
        return httpx.Response(response.status_code, headers=response.headers, content=await response.aread())


class Bank:
    """A client of the bank, with one key or token."""

    def __init__(self, onceward: Onceward, prefix: str = "", interface: str = "wsgi") -> None:
        is_wsgi = interface == "wsgi"
        transport = httpx.WSGITransport(bank(onceward), script_name=prefix) if is_wsgi else LoopTransport(async_bank(onceward))
        self.http = httpx.Client(transport=transport, base_url="http://bank")
        self.headers = {"idempotency-key": uuid.uuid4().hex, "onceward-token": onceward.issue().token}
        self._before = count()

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.http.post(path, headers=self.headers | more.pop("headers", {}), **more)

    def outcome(self, path: str, **headers: str) -> str | None:
        """Posts, and returns the outcome that the response reports."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        found: str | None = self.post(path, headers=named).headers.get("onceward-outcome")
        return found

    def rows(self) -> int:
        """Returns the number of rows that were written."""
        return count() - self._before


@pytest.fixture(params=["wsgi", "asgi"])
def client(onceward: Onceward, request: pytest.FixtureRequest) -> Iterator[Bank]:
    made = Bank(onceward, interface=request.param)
    yield made
    made.http.close()


FAILS, ROLLS_BACK, CREATED, ENCLOSED = {"x_raise": "yes"}, {"x_rollback": "yes"}, {}, {"x_surrounding": "transaction"}


@pytest.mark.parametrize(
    ("path", "headers", "outcome", "rows"),
    [
        # The view wrote, and the transaction of the request ended with it.
        ("/keys/write", CREATED, "executed", 1),
        ("/keys/write", FAILS, "not_applied", 0),
        ("/keys/write", ROLLS_BACK, "not_applied", 0),
        ("/forms/write", FAILS, "not_applied", 0),
        ("/forms/write", {"x_status": "500"}, "unknown", 1),
        # The view caught a rollback of its own, and went on.
        ("/keys/catch", CREATED, "executed", 0),
        ("/keys/catch", {"x_status": "500"}, "unknown", 0),
        ("/keys/catch", {"x_status": "422"}, "executed", 0),
        ("/forms/catch", CREATED, "executed", 0),
        ("/keys/catch-savepoint", CREATED, "executed", 0),
        ("/forms/catch-savepoint", CREATED, "executed", 0),
        ("/keys/catch-savepoint", FAILS, "not_applied", 0),
        # The database has committed, and its answer was lost.
        ("/keys/lose-commit", {}, "unknown", 1),
        ("/retryable/lose-commit", {}, "unknown", 1),
        ("/forms/lose-commit", {}, "unknown", 1),
        ("/retryable/lose-own-commit", {}, "unknown", 1),
        ("/forms/lose-own-commit", {}, "unknown", 1),
        # A middleware commits after the claim was settled. It receives a response also after an exception.
        ("/keys/write", ENCLOSED, "executed", 1),
        ("/forms/write", ENCLOSED | {"x_status": "500"}, "unknown", 1),
        ("/retryable/write", ENCLOSED | {"x_status": "503"}, "unknown", 1),
        ("/forms/catch", ENCLOSED | FAILS, "unknown", 0),
        ("/forms/write", ENCLOSED | {"x_status": "422"}, "not_applied", 1),
        # An async view writes in a thread, in a transaction of its own.
        ("/keys/async", CREATED, "executed", 1),
        ("/keys/async", FAILS, "not_applied", 0),
        ("/keys/async", {"x_effect": "unknown"}, "unknown", 1),
        ("/retryable/async", {"x_status": "503"}, "unknown", 1),
    ],
)
def test_end_of_the_transaction_decides_the_outcome(
    client: Bank, path: str, headers: dict[str, str], outcome: str, rows: int
) -> None:
    assert (client.outcome(path, **headers), client.rows()) == (outcome, rows)
    duplicate = {"executed": "replayed", "unknown": "in_progress", "not_applied": "executed"}[outcome]
    assert client.outcome(path) == duplicate
    if outcome == "unknown":
        assert client.rows() == rows, "nothing ran again"


@pytest.mark.parametrize("policy", ["keys", "forms"])
def test_multipart_form_passes_the_check_for_csrf(client: Bank, policy: str) -> None:
    token = client.http.get("/form").text
    form = {"data": {"csrfmiddlewaretoken": token}, "files": {"file": ("a.bin", bytes(range(256)))}}
    first, second = (client.post(f"/{policy}/upload", **form) for _ in range(2))
    assert (first.status_code, first.headers["onceward-outcome"]) == (201, "executed")
    assert (second.status_code, second.headers["onceward-outcome"]) == (201, "replayed")
    assert first.content == second.content == bytes(range(256)) and client.rows() == 1
    without = client.post(f"/{policy}/upload", files=form["files"])
    assert (without.status_code, "onceward-outcome" in without.headers) == (403, False), "the check claims nothing"
    large = client.post(f"/{policy}/upload", files={"file": ("a.bin", bytes(300_000))})
    assert (large.status_code, large.headers["onceward-outcome"]) == (413, "body_too_large")


def test_form_that_was_parsed_before_is_a_clear_error(client: Bank, caplog: pytest.LogCaptureFixture) -> None:
    failed = client.post("/keys/upload", files={"file": b"1"}, headers={"x-surrounding": "form"})
    assert (failed.status_code, client.rows()) == (500, 0)
    assert "move that middleware behind Once" in caplog.text


def test_django_application_at_a_prefix_is_protected(onceward: Onceward) -> None:
    first, prefixed = Bank(onceward), Bank(onceward, "/api")
    prefixed.headers = first.headers
    outcomes = [each.outcome("/keys/write") for each in (first, prefixed, prefixed, first)]
    # The action and the fingerprint have the full path.
    assert (outcomes, first.rows()) == (["executed", "executed", "replayed", "replayed"], 2)


def test_replay_joins_values_of_a_header_where_that_is_a_list() -> None:
    reply = Reply(201, (("link", "<a>"), ("link", "<b>"), ("content-type", "a/b"), ("content-type", "c/d")))
    response = response_of(reply.status, list(reply.headers), b"")
    assert (response["link"], response["content-type"]) == ("<a>, <b>", "c/d")

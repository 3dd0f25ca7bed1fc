"""The shops on uvicorn and gunicorn, against a real service: what each framework must do alike."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from conftest import SHOPS
from harness.network import Network
from harness.process import Shop, until
from harness.service import Service

NAMES = ["asgi", "wsgi", "django_shop", "django_asgi"]
#: One client for all requests: to create one takes long, because it loads certificates.
HTTP = httpx.Client(verify=False, trust_env=False, timeout=30, limits=httpx.Limits(max_connections=None))
Start = Callable[..., Shop]
Open = Callable[..., Network]


class Visitor:
    """A client of one shop."""

    def __init__(self, shop: Shop, ledger: Path) -> None:
        self.shop, self.ledger = shop, ledger
        self.key = uuid.uuid4().hex
        self._before = self._lines()

    def _lines(self) -> list[str]:
        return self.ledger.read_text().splitlines()

    def lines(self) -> list[str]:
        """Returns what the ledger has gained."""
        return self._lines()[len(self._before) :]

    def order(self, path: str = "/orders", content: object = b"tea", **headers: str) -> httpx.Response:
        """Sends an order. Headers are written with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return HTTP.post(self.shop.url + path, content=content, headers={"idempotency-key": self.key} | named)

    def outcome(self, path: str = "/orders", **headers: str) -> str:
        """Sends an order, and returns its outcome."""
        return self.order(path, **headers).headers["onceward-outcome"]


@pytest.fixture(scope="module", params=NAMES)
def shop(request: pytest.FixtureRequest, service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    ledger = tmp_path_factory.mktemp("shop") / "ledger.txt"
    ledger.touch()
    shop = Shop(SHOPS / f"{request.param}.py", service.url, ledger, LEASE="1000")
    shop.name, shop.ledger = request.param, ledger
    yield shop
    shop.terminate()


@pytest.fixture
def visitor(shop: Shop) -> Visitor:
    return Visitor(shop, shop.ledger)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_duplicate_receives_the_first_response_byte_for_byte(visitor: Visitor) -> None:
    first, second = visitor.order(x_size="9"), visitor.order(x_size="7")
    assert (first.status_code, first.headers["onceward-outcome"], first.headers["set-cookie"][:4]) == (201, "executed", "run=")
    assert (second.status_code, second.headers["onceward-outcome"]) == (201, "replayed")
    assert second.headers["idempotent-replayed"] == "true" and "idempotent-replayed" not in first.headers
    assert second.content == first.content and first.content[:256] == bytes(range(256))
    for kept in ("location", "content-type"):
        assert second.headers[kept] == first.headers[kept]
    for dropped in ("set-cookie", "x-run"):
        assert dropped in first.headers and dropped not in second.headers
    assert visitor.lines() == ["order"]


def test_other_content_is_rejected_and_other_user_runs(visitor: Visitor) -> None:
    visitor.order(content=b"tea")
    for changed in [visitor.order(content=b"coffee"), visitor.order(path="/orders?a=1"), visitor.order(content_type="a/b")]:
        assert (changed.status_code, changed.headers["onceward-outcome"]) == (422, "key_reused")
        assert changed.headers["onceward-retry"] == "no" and changed.json()["code"] == "key_reused"
    assert visitor.outcome(x_user="bob") == "executed"
    assert visitor.lines() == ["order", "order"]


def test_request_without_key_or_token_runs_nothing(visitor: Visitor) -> None:
    visitor.key = ""
    assert visitor.outcome() == "key_missing"
    visitor.key = "a b"
    assert visitor.outcome() == "key_malformed"
    assert visitor.outcome("/forms") == "token_missing"
    assert visitor.lines() == []


@pytest.mark.parametrize(
    ("path", "headers", "outcome", "duplicate"),
    [
        ("/orders", {"x_raise": "before"}, "unknown", "outcome_unknown"),
        ("/orders", {"x_raise": "after"}, "unknown", "outcome_unknown"),
        ("/orders", {"x_raise": "unknown"}, "unknown", "outcome_unknown"),
        ("/orders", {"x_raise": "not-applied"}, "not_applied", "executed"),
        ("/orders", {"x_status": "422"}, "executed", "replayed"),
        ("/orders", {"x_status": "503"}, "unknown", "outcome_unknown"),
        ("/orders", {"x_status": "403"}, "not_applied", "executed"),
        ("/orders", {"x_status": "503", "x_effect": "applied"}, "executed", "replayed"),
        ("/orders", {"x_effect": "not-applied"}, "not_applied", "executed"),
        ("/orders", {"x_effect": "unknown"}, "unknown", "outcome_unknown"),
        ("/orders", {"x_stream": "3"}, "executed", "reply_not_kept"),
        ("/orders", {"x_size": "1048576"}, "executed", "reply_not_kept"),
        ("/retryable", {"x_raise": "before"}, "not_applied", "executed"),
        ("/retryable", {"x_raise": "unknown"}, "unknown", "executed"),
        ("/retryable", {"x_status": "503"}, "not_applied", "executed"),
        ("/retryable", {"x_status": "504"}, "unknown", "executed"),
    ],
)
def test_result_of_the_handler_decides_about_the_duplicate(
    visitor: Visitor, path: str, headers: dict[str, str], outcome: str, duplicate: str
) -> None:
    first = visitor.order(path, **headers)
    assert first.headers["onceward-outcome"] == outcome
    if headers.get("x_raise"):
        assert first.status_code == 500
    if first.headers["onceward-outcome"] == "unknown":
        until("the lease has expired", lambda: visitor.outcome(path, onceward_look="true") != "in_progress")
    assert visitor.outcome(path) == duplicate


def test_stream_that_breaks_is_not_repeated(visitor: Visitor) -> None:
    with pytest.raises(httpx.HTTPError):
        visitor.order(x_fail_stream="yes")
    assert visitor.outcome() == "reply_not_kept"
    assert visitor.lines() == ["order"]


def test_stream_arrives_whole(visitor: Visitor) -> None:
    assert visitor.order(x_stream="4").content == b"chunk 0\nchunk 1\nchunk 2\nchunk 3\n"


def test_look_never_runs(visitor: Visitor) -> None:
    assert visitor.outcome(onceward_look="true") == "not_found"
    assert visitor.outcome(onceward_look="perhaps") == "bad_request"
    assert visitor.lines() == []
    first = visitor.order()
    assert visitor.order(onceward_look="true").content == first.content
    assert visitor.lines() == ["order"]


def test_second_click_on_a_form_receives_the_first_response(visitor: Visitor) -> None:
    def token() -> str:
        issued = HTTP.post(visitor.shop.url + "/token")
        assert (issued.status_code, issued.json()["expires_in"] > 0) == (201, True)
        return str(issued.json()["token"])

    url, form, upload, header = visitor.shop.url + "/forms", token(), token(), token()
    for send in [
        lambda: HTTP.post(url, data={"_onceward": form, "a": "1"}),
        lambda: HTTP.post(url, data={"_onceward": upload}, files={"file": ("a.bin", bytes(range(256)))}),
        lambda: HTTP.post(url, content=b"{}", headers={"onceward-token": header}),
    ]:
        first, second = send(), send()
        assert (first.headers["onceward-outcome"], second.headers["onceward-outcome"]) == ("executed", "replayed")
        assert first.content == second.content
    assert visitor.lines() == ["order"] * 3
    log = visitor.shop.log()
    assert not any(secret in log for secret in (form, upload, header))


def test_chunked_body_is_compared_and_large_body_rejected(visitor: Visitor) -> None:
    if visitor.shop.name != "django_shop":  # On WSGI, Django itself reads no chunked body.
        assert visitor.order(content=iter([b"te", b"a"])).headers["onceward-outcome"] == "executed"
        assert visitor.order(content=iter([b"t", b"ea"])).headers["onceward-outcome"] == "replayed"
        assert visitor.order(content=iter([b"x" * 200_000] * 2)).status_code == 413
    large = visitor.order(content=b"x" * (256 * 1024 + 1))
    assert (large.status_code, large.headers["onceward-outcome"]) == (413, "body_too_large")
    visitor.key = uuid.uuid4().hex
    assert visitor.order(content=b"x" * (256 * 1024)).status_code == 201


def test_unprotected_requests_pass(visitor: Visitor) -> None:
    assert visitor.order("/open").status_code == 201
    ledger = HTTP.get(visitor.shop.url + "/orders")
    assert (ledger.status_code, "onceward-outcome" in ledger.headers) == (200, False)
    assert int(ledger.text) == len(visitor.ledger.read_text().splitlines())


def test_client_that_leaves_does_not_stop_the_handler(visitor: Visitor) -> None:
    address = urlsplit(visitor.shop.url)
    with socket.create_connection((address.hostname, address.port)) as client:
        head = f"POST /orders HTTP/1.1\r\nhost: shop\r\nidempotency-key: {visitor.key}\r\nx-takes: 300\r\ncontent-length: 3\r\n"
        client.sendall(head.encode() + b"\r\ntea")
        until("the handler has begun", lambda: visitor.lines() == ["begun"])
    until("the result is recorded", lambda: visitor.outcome() == "replayed")
    assert visitor.lines() == ["begun", "order"]


def test_client_that_sends_half_a_body_runs_nothing(visitor: Visitor) -> None:
    address = urlsplit(visitor.shop.url)
    with socket.create_connection((address.hostname, address.port)) as client:
        head = f"POST /orders HTTP/1.1\r\nhost: shop\r\nidempotency-key: {visitor.key}\r\ncontent-length: 9\r\n\r\n"
        client.sendall(head.encode() + b"half")
        client.shutdown(socket.SHUT_WR)
        client.settimeout(5)
        assert b"executed" not in client.recv(4096)
    assert visitor.outcome(onceward_look="true") == "not_found"
    assert visitor.lines() == []


def test_long_handler_keeps_its_key(visitor: Visitor) -> None:
    with ThreadPoolExecutor() as pool:
        first = pool.submit(visitor.order, "/retryable", x_takes="1800")
        until("the handler has begun", lambda: visitor.lines() == ["begun"])
        while not first.done():
            duplicate = visitor.outcome("/retryable")
            assert duplicate in ("in_progress", "replayed"), duplicate
    assert visitor.outcome("/retryable") == "replayed"
    assert visitor.lines() == ["begun", "order"]


def test_parallel_duplicates_over_two_shops_run_once(
    name: str, service: Service, ledger: Path, start: Start
) -> None:
    shops = [start(name, service.url, ledger, WAIT="5000") for _ in range(2)]
    visitors = [Visitor(shop, ledger) for shop in shops]
    visitors[1].key = visitors[0].key
    with ThreadPoolExecutor(40) as pool:
        responses = list(pool.map(lambda number: visitors[number % 2].order(x_takes="50"), range(40)))
    outcomes = [response.headers["onceward-outcome"] for response in responses]
    assert outcomes.count("executed") == 1 and set(outcomes) == {"executed", "replayed"}, outcomes
    assert len({response.content for response in responses}) == 1
    assert ledger.read_text().splitlines() == ["begun", "order"]


def test_workers_after_a_fork_run_each_key_once(name: str, service: Service, ledger: Path, start: Start) -> None:
    shop = start(name, service.url, ledger)
    with ThreadPoolExecutor(16) as pool:
        visitors = [Visitor(shop, ledger) for _ in range(60)]
        responses = list(pool.map(lambda visitor: visitor.order(x_order=visitor.key), visitors * 2))
    assert {response.headers["onceward-outcome"] for response in responses} <= {"executed", "replayed", "in_progress"}
    assert sorted(ledger.read_text().splitlines()) == sorted(visitor.key for visitor in visitors)


def test_service_that_is_down_runs_nothing(name: str, ledger: Path, start: Start, network: Open) -> None:
    gone = network()
    shop = start(name, gone.url, ledger)
    gone.close()
    rejected = Visitor(shop, ledger).order()
    assert (rejected.status_code, rejected.headers["retry-after"]) == (503, "1")
    assert rejected.headers["onceward-outcome"] == rejected.json()["code"] == "store_unavailable"
    assert ledger.read_text() == ""


@pytest.mark.parametrize("prefixed", ["wsgi", "django_shop"])
def test_shop_at_a_prefix_of_gunicorn_runs_once(prefixed: str, service: Service, ledger: Path, start: Start) -> None:
    visitor = Visitor(start(prefixed, service.url, ledger, SCRIPT_NAME="/api"), ledger)
    assert [visitor.outcome("/api/orders") for _ in range(2)] == ["executed", "replayed"]
    assert visitor.lines() == ["order"]


def test_lost_answers_cause_no_second_effect(name: str, ledger: Path, start: Start, network: Open) -> None:
    lossy = network(lambda path, number: "lose" if number % 3 == 1 else "pass")
    visitor = Visitor(start(name, lossy.url, ledger, LEASE="900"), ledger)
    first = visitor.order(x_takes="500")
    assert first.status_code == 201
    until("the reply is stored", lambda: visitor.outcome() == "replayed")
    lossy.plan = lambda path, number: "drop" if path == "/claim/complete" else "pass"
    visitor.key = uuid.uuid4().hex
    unrecorded = visitor.order()
    assert (unrecorded.status_code, unrecorded.headers["onceward-outcome"]) == (201, "unprotected")
    assert visitor.outcome() == "in_progress"
    lossy.plan = lambda path, number: "pass"
    until("the reply is stored", lambda: visitor.outcome() == "replayed")
    assert ledger.read_text().splitlines() == ["begun", "order", "order"]


@pytest.mark.parametrize(("path", "later"), [("/orders", "outcome_unknown"), ("/retryable", "executed")])
def test_killed_worker_leaves_its_claim(
    name: str, path: str, later: str, service: Service, ledger: Path, start: Start
) -> None:
    shops = [start(name, service.url, ledger, LEASE="900") for _ in range(2)]
    one, other = (Visitor(shop, ledger) for shop in shops)
    other.key = one.key
    with ThreadPoolExecutor() as pool:
        cut = pool.submit(one.order, path, x_takes="20000")
        until("the handler has begun", lambda: one.lines() == ["begun"])
        shops[0].kill()
        assert isinstance(cut.exception(10), httpx.HTTPError)
    assert other.outcome(path) == "in_progress"
    until("the lease has expired", lambda: other.outcome(path, onceward_look="true") != "in_progress")
    assert other.outcome(path) == later
    assert one.lines() == ["begun"] + (["order"] if later == "executed" else [])


def test_wrong_api_key_is_one_clear_error_in_the_log(name: str, service: Service, ledger: Path, start: Start) -> None:
    shop = start(name, service.url, ledger, ONCEWARD_API_KEY="a-wrong-key-canary")
    rejected = Visitor(shop, ledger).order()
    assert (rejected.status_code, "www-authenticate" in rejected.headers) == (503, False)
    until("it is logged", lambda: "ONCEWARD_API_KEY is missing or wrong" in shop.log())
    assert "canary" not in shop.log() and ledger.read_text() == ""


@pytest.mark.parametrize(
    ("headers", "outcome", "rows"),
    [
        ({}, "executed", 1),
        ({"x_raise": "after"}, "not_applied", 0),
        ({"x_rollback": "yes"}, "not_applied", 0),
        # A 500 without an exception commits.
        ({"x_status": "500"}, "unknown", 1),
        # An exception after the commit.
        ({"x_hook": "fails"}, "unknown", 1),
    ],
)
@pytest.mark.parametrize("django", ["django_shop", "django_asgi"])
def test_rollback_of_django_counts_as_not_applied(
    service: Service, ledger: Path, start: Start, tmp_path: Path, django: str, headers: dict[str, str], outcome: str, rows: int
) -> None:
    visitor = Visitor(start(django, service.url, ledger, DATABASE=str(tmp_path / "shop.sqlite3")), ledger)
    assert visitor.outcome("/rows", **headers) == outcome
    assert int(HTTP.get(visitor.shop.url + "/rows").text) == rows
    visitor.outcome("/rows")
    assert int(HTTP.get(visitor.shop.url + "/rows").text) == 1, "exactly one row after the retry"

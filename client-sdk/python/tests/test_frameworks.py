"""Applications of each framework in the process of the test, against a real service: error handlers, mounts, streams and what they close."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from fastapi import BackgroundTasks, Depends, FastAPI
from fastapi.responses import JSONResponse, StreamingResponse
from flask import Flask, Response, abort

from onceward import Effect, NotApplied, Onceward, Unknown, asgi, once, state_effect, wsgi


def named(headers: dict[str, str]) -> dict[str, str]:
    """Returns headers whose names are written with underscores."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


def outcome(response: httpx.Response) -> str | None:
    """Returns the outcome that a response reports; `None` if no middleware has seen its request."""
    found: str | None = response.headers.get("onceward-outcome")
    return found


def post_wsgi(app: Any, path: str = "/orders", prefix: str = "", **headers: str) -> httpx.Response:
    """Sends a request to a WSGI application that is mounted at a prefix."""
    transport = httpx.WSGITransport(app, raise_app_exceptions=False, script_name=prefix)
    with httpx.Client(transport=transport, base_url="http://shop") as client:
        return client.post(path, headers=named(headers))


def post_asgi(app: Any, path: str = "/orders", prefix: str = "", **headers: str) -> httpx.Response:
    """Sends a request to an ASGI application that is served at a prefix, as by `uvicorn --root-path`."""

    async def post() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False, root_path=prefix)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return await client.post(prefix + path, headers=named(headers))

    return asyncio.run(post())


class OutOfStock(NotApplied):
    """An exception of the application."""


class ProviderTimeout(Exception):
    """The timeout of a library, which is no `TimeoutError`."""


#: How the handler ends, whether the policy is retryable, and the outcome if an error handler of the application responds with 409 or 500.
ENDINGS = [
    (Unknown, 409, "unknown"),
    (Unknown, 500, "unknown"),
    (NotApplied, 409, "not_applied"),
    (OutOfStock, 500, "not_applied"),
    (TimeoutError, 409, "unknown"),
    (TimeoutError, 500, "unknown"),
    (ProviderTimeout, 409, "unknown"),
    (ProviderTimeout, 500, "unknown"),
    (RuntimeError, 409, "executed"),
]


@pytest.mark.parametrize(("error", "status", "expected"), ENDINGS)
@pytest.mark.parametrize("handled", [Exception, None])
def test_error_handler_of_flask_hides_no_unknown_outcome(
    onceward: Onceward, error: type[Exception], status: int, expected: str, handled: type[Exception] | None
) -> None:
    app = Flask(__name__)
    rules: Any = {"subject": "alice", "at_most_once": False}
    app.wsgi_app = wsgi.Once(app.wsgi_app, onceward, **rules)  # type: ignore[method-assign]

    @app.post("/orders")
    def order() -> Response:
        raise error

    @app.errorhandler(handled or error)
    def respond(_error: Exception) -> Response:
        return Response("an error page", status)

    for _ in range(2):
        assert outcome(post_wsgi(app, idempotency_key=uuid.uuid4().hex)) == expected


@pytest.mark.parametrize(("error", "status", "expected"), ENDINGS)
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("is_mounted", [False, True])
def test_error_handler_of_starlette_hides_no_unknown_outcome(
    onceward: Onceward, error: type[Exception], status: int, expected: str, is_async: bool, is_mounted: bool
) -> None:
    app, outer = FastAPI(), FastAPI()
    routes: list[object] = []

    async def arespond(_request: Any, _error: Exception) -> JSONResponse:
        return JSONResponse("an error page", status)

    def respond(_request: Any, _error: Exception) -> JSONResponse:
        return JSONResponse("an error page", status)

    @app.post("/orders")
    def order() -> None:
        raise error

    async def note_route(scope: Any, receive: Any, send: Any) -> None:
        await once(scope, receive, send)
        routes.append(scope.get("route"))

    app.add_exception_handler(error, arespond if is_async else respond)
    outer.mount("/shop", app)
    once = asgi.Once(outer if is_mounted else app, onceward, subject="alice", at_most_once=False)
    path = "/shop/orders" if is_mounted else "/orders"
    assert outcome(post_asgi(note_route, path, idempotency_key=uuid.uuid4().hex)) == expected
    assert routes[0] is not None, "outer middleware sees what the application writes into the scope"


def test_view_that_catches_unknown_states_the_effect_itself(onceward: Onceward) -> None:
    app = Flask(__name__)
    app.wsgi_app = wsgi.Once(app.wsgi_app, onceward, subject="alice")  # type: ignore[method-assign]

    @app.post("/orders")
    def order() -> str:
        try:
            raise Unknown
        except Unknown:
            state_effect(Effect.APPLIED)
        return "looked up at the payment provider"

    assert outcome(post_wsgi(app, idempotency_key=uuid.uuid4().hex)) == "executed"


@pytest.mark.parametrize(("status", "expected"), [(408, "not_applied"), (504, "unknown"), (409, "executed")])
def test_status_counts_that_a_view_of_flask_aborts_with(onceward: Onceward, status: int, expected: str) -> None:
    app = Flask(__name__)
    rules: Any = {"subject": "alice", "at_most_once": False}
    app.wsgi_app = wsgi.Once(app.wsgi_app, onceward, **rules)  # type: ignore[method-assign]
    # The exception of 408 is a `RequestTimeout`, which is no timeout of the view.
    app.post("/orders")(lambda: abort(status))
    assert outcome(post_wsgi(app, idempotency_key=uuid.uuid4().hex)) == expected


@pytest.mark.parametrize("is_unknown", [False, True])
def test_function_in_a_view_states_the_effect_of_its_own_claim(onceward: Onceward, is_unknown: bool) -> None:
    key = uuid.uuid4().hex

    @once(onceward, key=lambda: key, subject="billing", action="charge", at_most_once=False)
    def charge() -> str:
        if is_unknown:
            raise Unknown
        state_effect(Effect.NOT_APPLIED)
        return "declined"

    def app(_environ: Any, start_response: Any) -> Any:
        try:
            text = charge()
        except Unknown:
            text = "an error page"
        start_response("201 Created", [])
        return [text.encode()]

    shop = wsgi.Once(app, onceward, subject="alice", at_most_once=False)
    assert outcome(post_wsgi(shop, idempotency_key=key)) == ("unknown" if is_unknown else "executed")
    if not is_unknown:
        assert charge() == "declined", "its key is free"


class Rows:
    """An iterable with a length, as WSGI allows."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[bytes]:
        yield from (b"a", b"b")


class Body:
    """An iterable without a length over a list, as the `HttpResponse` of Django."""

    def __iter__(self) -> Iterator[bytes]:
        return iter([b"a", b"b"])


BODIES: dict[str, tuple[Any, int, str]] = {
    "204": (lambda: ("", 204), 204, "replayed"),
    "304": (lambda: ("", 304), 304, "replayed"),
    "204 that is streamed": (lambda: Response((each for each in [b"a"]), 204), 204, "replayed"),
    "empty": (lambda: "", 200, "replayed"),
    "empty iterator": (lambda: Response(each for each in list[bytes]()), 200, "replayed"),
    "text": (lambda: ("ab", 201), 201, "replayed"),
    "list": (lambda: Response([b"a", b"b"]), 200, "replayed"),
    "stream": (lambda: Response(each for each in [b"a", b"b"]), 200, "reply_not_kept"),
    "bare 204": (lambda: ("204 No Content", (each for each in [b""])), 204, "replayed"),
    "bare list": (lambda: ("200 OK", [b"a", b"b"]), 200, "replayed"),
    "bare iterable with a length": (lambda: ("200 OK", Rows()), 200, "replayed"),
    "bare iterable over a list": (lambda: ("200 OK", Body()), 200, "replayed"),
    "bare stream": (lambda: ("200 OK", iter(Rows())), 200, "reply_not_kept"),
}


@pytest.mark.parametrize("name", BODIES)
def test_wsgi_response_is_stored_unless_it_may_be_a_stream(onceward: Onceward, name: str) -> None:
    make, status, duplicate = BODIES[name]
    flask, runs = Flask(__name__), []

    @flask.post("/orders")
    def order() -> Any:
        return make()

    def app(environ: Any, start_response: Any) -> Any:
        runs.append(1)
        if not name.startswith("bare"):
            return flask(environ, start_response)
        line, body = make()
        start_response(line, [("content-type", "text/plain")])
        return body

    shop, key = wsgi.Once(app, onceward, subject="alice"), uuid.uuid4().hex
    first, second = (post_wsgi(shop, idempotency_key=key) for _ in range(2))
    assert (first.status_code, outcome(first), outcome(second), len(runs)) == (status, "executed", duplicate, 1)
    if duplicate == "replayed":
        assert (second.status_code, second.content) == (status, first.content)
        assert second.headers.get("content-type") == first.headers.get("content-type")
    if status in (204, 304):
        assert "content-length" not in second.headers


def test_endless_stream_of_a_wsgi_application_is_not_read(onceward: Onceward) -> None:
    taken: list[int] = []

    def numbers() -> Iterator[bytes]:
        for number in itertools.count():
            taken.append(number)
            yield b"%d" % number

    def app(_environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [])
        return numbers()

    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "HTTP_IDEMPOTENCY_KEY": uuid.uuid4().hex}
    response = iter(wsgi.Once(app, onceward, subject="alice")(environ, lambda *_: lambda _: None))
    assert taken == [0]
    assert [next(response) for _ in range(3)] == [b"0", b"1", b"2"]


def test_wsgi_application_without_status_leaves_no_claim(onceward: Onceward) -> None:
    rules: Any = {"subject": "alice", "at_most_once": False}
    shop, key = wsgi.Once(lambda _environ, _start: [], onceward, **rules), uuid.uuid4().hex
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "HTTP_IDEMPOTENCY_KEY": key}
    for _ in range(2):
        # Not rejected as in progress: the first run has failed.
        with pytest.raises(ValueError):
            shop(dict(environ), lambda *_: lambda _: None)


@pytest.mark.parametrize("status", [204, 304])
def test_asgi_response_without_a_body_is_stored(onceward: Onceward, status: int) -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    shop, key = asgi.Once(app, onceward, subject="alice"), uuid.uuid4().hex
    responses = [post_asgi(shop, idempotency_key=key) for _ in range(2)]
    assert [(each.status_code, outcome(each)) for each in responses] == [(status, "executed"), (status, "replayed")]


def failing_commit() -> Iterator[None]:
    """A dependency whose transaction cannot be committed."""
    yield
    raise RuntimeError("COMMIT failed")


@pytest.mark.parametrize(
    ("scope", "status", "outcomes"),
    [("function", 500, ["unknown", "in_progress"]), ("request", 201, ["executed", "replayed"])],
)
def test_commit_of_a_dependency_counts_if_it_precedes_the_response(
    onceward: Onceward, scope: Any, status: int, outcomes: list[str]
) -> None:
    app, key = FastAPI(), uuid.uuid4().hex
    app.add_middleware(asgi.Once, onceward, subject="alice")

    # The default is `request`: FastAPI has sent the response before, and the client believes it too.
    @app.post("/orders", status_code=201)
    def order(_session: Any = Depends(failing_commit, scope=scope)) -> str:
        return "ordered"

    responses = [post_asgi(app, idempotency_key=key) for _ in range(2)]
    assert (responses[0].status_code, [outcome(each) for each in responses]) == (status, outcomes)


def test_background_task_delays_no_response(onceward: Onceward) -> None:
    app, sent = FastAPI(), asyncio.Event()
    app.add_middleware(asgi.Once, onceward, subject="alice")

    async def wait_for_response() -> None:
        await asyncio.wait_for(sent.wait(), 5)

    @app.post("/orders")
    def order(tasks: BackgroundTasks) -> str:
        tasks.add_task(wait_for_response)
        return "ordered"

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body"):
            sent.set()

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    headers = [(b"idempotency-key", uuid.uuid4().hex.encode())]
    scope = {"type": "http", "method": "POST", "path": "/orders", "query_string": b"", "headers": headers}
    asyncio.run(app(scope, receive, send))
    assert sent.is_set()


@pytest.mark.parametrize("keys", ["a,b", "a, b", '"a","b"'])
def test_two_keys_in_one_request_are_rejected(onceward: Onceward, keys: str) -> None:
    shop = wsgi.Once(lambda _environ, _start: pytest.fail("it ran"), onceward, subject="alice")
    assert outcome(post_wsgi(shop, idempotency_key=keys)) == "key_malformed"


def test_route_with_an_optional_slash_is_protected_by_both_paths(onceward: Onceward) -> None:
    app = Flask(__name__)
    app.wsgi_app = wsgi.Once(app.wsgi_app, onceward, path=["/orders", "/orders/"], subject="alice")  # type: ignore[method-assign]
    app.post("/orders/", strict_slashes=False)(lambda: "ordered")
    for path in ("/orders", "/orders/"):
        responses = [post_wsgi(app, path, idempotency_key="k" + path) for _ in range(2)]
        assert [outcome(each) for each in responses] == ["executed", "replayed"]


@pytest.mark.parametrize("path", ["/orders", "//orders"])
def test_wsgi_application_at_a_prefix_is_protected(onceward: Onceward, path: str) -> None:
    app = Flask(__name__)
    app.wsgi_app = wsgi.Once(app.wsgi_app, onceward, path="/orders", subject="alice")  # type: ignore[method-assign]
    app.post("/orders")(lambda: "ordered")
    key = uuid.uuid4().hex

    def server(environ: dict[str, Any], start_response: Any) -> Any:
        return app(environ | {"PATH_INFO": path}, start_response)

    responses = [post_wsgi(server, prefix=prefix, idempotency_key=key) for prefix in ("", "/api", "/api", "/other")]
    # The action and the fingerprint have the full path.
    assert [outcome(each) for each in responses] == ["executed", "executed", "replayed", "executed"]


def test_asgi_application_at_a_prefix_is_protected(onceward: Onceward) -> None:
    app, outer, key = FastAPI(), FastAPI(), uuid.uuid4().hex
    app.add_middleware(asgi.Once, onceward, path="/orders", subject="alice")
    app.post("/orders")(lambda: "ordered")
    outer.mount("/mounted", app)
    responses = [
        post_asgi(app, idempotency_key=key),
        post_asgi(app, prefix="/api", idempotency_key=key),
        post_asgi(app, prefix="/api", idempotency_key=key),
        post_asgi(outer, "/mounted/orders", idempotency_key=key),
        post_asgi(outer, "/mounted/orders", prefix="/api", idempotency_key=key),
    ]
    assert [outcome(each) for each in responses] == ["executed", "executed", "replayed", "executed", "executed"]
    # A proxy has taken the prefix away, or the path only begins like it.
    for path in ("/orders", "/ordersX"):
        scope = {"path": path, "root_path": "/orders"}
        assert asgi.routed_path(scope) == path


@pytest.mark.parametrize("way", ["message", "error", "cancelled"])
def test_long_stream_ends_when_the_client_leaves(onceward: Onceward, way: str) -> None:
    sent: list[Any] = []

    async def long() -> AsyncIterator[bytes]:
        for number in range(1000):
            await asyncio.sleep(0.001)
            yield b"%d" % number

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await StreamingResponse(long())(scope, receive, send)

    async def main() -> None:
        has_left = asyncio.Event()
        body = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Any:
            if body:
                return body.pop()
            await has_left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if len(sent) == 4:
                if way == "cancelled":
                    request.cancel()
                elif way == "message":
                    has_left.set()
            if len(sent) >= 4 and way == "error":
                raise OSError("the client has left")

        headers = [(b"idempotency-key", uuid.uuid4().hex.encode())]
        version = {"spec_version": "2.4" if way == "error" else "2.3"}
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers, "asgi": version}
        once = asgi.Once(app, onceward, subject="alice")
        request = asyncio.create_task(once(scope, receive, send))
        try:
            await request
        except (asyncio.CancelledError, Exception) as error:
            assert way != "message", error
        while once._running:
            await asyncio.sleep(0.001)

    asyncio.run(main())
    assert (b"onceward-outcome", b"executed") in sent[0]["headers"] and len(sent) < 500


@pytest.mark.parametrize("fails_at", [0, 1, None])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_response_of_a_wsgi_application_is_closed(onceward: Onceward, fails_at: int | None, is_streamed: bool) -> None:
    class Chunks:
        closed = 0

        def __iter__(self) -> Iterator[bytes]:
            for number in range(3):
                if number == fails_at:
                    raise NotApplied
                yield b"."

        def close(self) -> None:
            self.closed += 1

    chunks = Chunks()

    def app(_environ: Any, start_response: Any) -> Any:
        start_response("201 Created", [] if is_streamed else [("content-length", "3")])
        return chunks

    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/",
        "HTTP_IDEMPOTENCY_KEY": uuid.uuid4().hex,
    }
    started: list[Any] = []
    try:
        response = wsgi.Once(app, onceward, subject="alice")(environ, lambda *start: started.append(start))
        try:
            assert b"".join(response) == b"..."
        finally:
            if hasattr(response, "close"):
                response.close()
    except NotApplied:
        assert fails_at is not None
    assert chunks.closed == 1


def test_replay_has_every_value_of_a_header(onceward: Onceward) -> None:
    links = [("link", "</a>; rel=self"), ("Link", "</b>, </c>"), ("vary", "accept"), ("vary", "accept-language")]

    def wsgi_app(_environ: Any, start_response: Any) -> Any:
        start_response("201 Created", list(links))
        return [b"."]

    async def asgi_app(_scope: Any, _receive: Any, send: Any) -> None:
        headers = [(name.lower().encode(), value.encode()) for name, value in links]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": b"."})

    key = uuid.uuid4().hex
    for responses in [
        [post_wsgi(wsgi.Once(wsgi_app, onceward, subject="alice"), idempotency_key=key) for _ in range(2)],
        [post_asgi(asgi.Once(asgi_app, onceward, subject="bob"), idempotency_key=key) for _ in range(2)],
    ]:
        assert [outcome(each) for each in responses] == ["executed", "replayed"]
        for each in responses:
            assert each.headers.get_list("link") == ["</a>; rel=self", "</b>, </c>"]
            assert each.headers.get_list("vary") == ["accept", "accept-language"]

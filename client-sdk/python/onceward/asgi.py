"""Middleware for ASGI applications, such as FastAPI and Starlette, on asyncio.

    from onceward.asgi import Once

    app.add_middleware(Once, path="/orders", subject=lambda request: request.headers.get("x-user"))
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Unpack

from .asgi_errors import NotingScope
from .asgi_response import App, Receive, ResponseCapture, Scope, Send, send_response
from .claim import Replayed
from .client import Onceward
from .effect import Statement, current
from .problem import Rejected
from .protection import Protection, Request, Rules, Subject, is_look, replay_headers


class Once:
    """Runs the handler of a protected route once per key or token."""

    def __init__(
        self, app: App, onceward: Onceward | None = None, *, subject: Subject | str | None = None, **rules: Unpack[Rules]
    ) -> None:
        self._app = app
        self._protection = Protection(onceward, subject, rules)
        self._running: dict[asyncio.Task[None], ResponseCapture | None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._protection.covers(scope["method"], routed_path(scope)):
            await self._app(scope, receive, send)
            return
        # A task of its own: a server that cancels the request of a client that has left does not cancel the handler.
        task = asyncio.create_task(self._run(scope, receive, send))
        self._running.setdefault(task, None)
        task.add_done_callback(self._running.pop)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if (capture := self._running.get(task)) and capture.is_streaming:
                task.cancel()
            raise

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        protection = self._protection
        try:
            body = await read_body(receive, protection)
            if body is None:
                return  # The client has left before its body was complete.
            request = request_of(scope, body)
            intent = protection.intent(request, await subject_of(protection.subject, request))
            if is_look(request.headers):
                raise Replayed(await protection.onceward.alook_up(intent))
            claim = await protection.onceward.claim_for(intent).__aenter__()
        except Rejected as rejected:
            problem = rejected.problem
            await send_response(send, problem.status, problem.headers(), problem.body)
            return
        except Replayed as replayed:
            reply = replayed.reply
            await send_response(send, reply.status, replay_headers(reply), reply.body)
            return
        statement = Statement()
        current.set(statement)
        capture = ResponseCapture(protection, claim, statement, send, has_own_error_page(scope))
        if task := asyncio.current_task():
            self._running[task] = capture
        try:
            await self._app(NotingScope(scope, statement), capture.receive_from(body, receive), capture.send)
        except BaseException as error:
            statement.exception = error
            raise
        finally:
            await capture.finish()


async def read_body(receive: Receive, protection: Protection) -> bytes | None:
    """Reads the body; `None` if the client leaves."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > protection.body_limit:
            raise protection.too_large()
        if not message.get("more_body"):
            return bytes(body)


def routed_path(scope: Scope) -> str:
    """Returns the path as the router of the application sees it: without the prefix that it is mounted at.

    ASGI has the prefix in the path too. Some servers leave it out, as if a proxy had taken it away.
    """
    path, root = str(scope["path"]), str(scope.get("root_path") or "")
    rest = path.removeprefix(root)
    return rest if rest.startswith("/") else path


def request_of(scope: Scope, body: bytes) -> Request:
    """Returns the request in a scope."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Request(scope["method"], scope["path"], scope["query_string"].decode("latin-1"), headers, scope, body)


async def subject_of(subject: Subject | str, request: Request) -> object:
    """Returns the subject of a request. The application's function may be async."""
    value: Any = subject if isinstance(subject, str) else subject(request)
    return await value if inspect.isawaitable(value) else value


def has_own_error_page(scope: Scope) -> bool:
    """Returns whether the Starlette application has a page for exceptions: its handler, or that of the debug mode."""
    app = scope.get("app")
    handlers = getattr(app, "exception_handlers", {})
    return bool(getattr(app, "debug", False)) or Exception in handlers or 500 in handlers

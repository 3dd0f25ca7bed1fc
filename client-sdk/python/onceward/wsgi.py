"""Middleware for WSGI applications, such as Flask.

    from onceward.wsgi import Once

    app.wsgi_app = Once(app.wsgi_app, path="/orders", subject=lambda request: request.headers.get("x-user"))
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sized
from http import HTTPStatus
from typing import Any, Unpack

from .claim import Claim, Replayed
from .client import Onceward
from .effect import Statement, current, judge
from .problem import Rejected
from .protection import Protection, Request, Rules, Subject, is_look, outcome, outcome_headers, replay_headers
from .reply import LIMIT, has_body
from .wsgi_body import Environ, read_body

Headers = list[tuple[str, str]]
StartResponse = Callable[..., Callable[[bytes], object]]
App = Callable[[Environ, StartResponse], Iterable[bytes]]
#: The iterators of a list and a tuple.
ITERATORS: tuple[type, ...] = (type(iter([])), type(iter(())))


class Once:
    """Runs the handler of a protected route once per key or token."""

    def __init__(
        self, app: App, onceward: Onceward | None = None, *, subject: Subject | str | None = None, **rules: Unpack[Rules]
    ) -> None:
        self._app = app
        self._protection = Protection(onceward, subject, rules)
        listen_to_flask()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        protection = self._protection
        if not protection.covers(environ["REQUEST_METHOD"], routed_path(environ)):
            return self._app(environ, start_response)
        try:
            request = request_of(environ, read_body(environ, protection))
            subject = protection.subject if isinstance(protection.subject, str) else protection.subject(request)
            intent = protection.intent(request, subject)
            if is_look(request.headers):
                raise Replayed(protection.onceward.look_up(intent))
            claim = protection.onceward.claim_for(intent).__enter__()
        except Rejected as rejected:
            problem = rejected.problem
            start_response(status_line(problem.status), problem.headers())
            return [problem.body]
        except Replayed as replayed:
            reply = replayed.reply
            start_response(status_line(reply.status), replay_headers(reply))
            return [reply.body]
        return Run(protection, claim).respond(self._app, environ, start_response)


class Run:
    """One run of the application, whose response is held back until its result is recorded."""

    def __init__(self, protection: Protection, claim: Claim) -> None:
        self._protection, self._claim = protection, claim
        self._statement = Statement()
        self._status, self._headers = "", Headers()
        self._chunks: list[bytes] = []

    def respond(self, app: App, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Runs the application, settles the claim, and starts the response."""
        token = current.set(self._statement)
        try:
            response = app(environ, self._start)
            try:
                rest = iter(response)
                # An application may start its response as late as in its first chunk.
                first = next(rest, None)
                self._chunks += [] if first is None else [first]
                is_whole = first is None or self._is_kept(response, rest)
                if is_whole:
                    self._chunks += rest
                status = self._code()
            except BaseException:
                close(response)
                raise
            if is_whole:
                close(response)
        except BaseException as error:
            self._statement.exception = error
            self._settle(None, None)
            raise
        finally:
            current.reset(token)
        headers = self._headers + outcome_headers(self._settle(status, b"".join(self._chunks) if is_whole else None))
        start_response(self._status, headers)
        return [b"".join(self._chunks)] if is_whole else Rest(self._chunks, rest, response)

    def _start(self, status: str, headers: Headers, exc_info: object = None) -> Callable[[bytes], object]:
        self._status, self._headers = status, list(headers)
        return self._chunks.append

    def _code(self) -> int:
        return int(self._status.partition(" ")[0])

    def _is_kept(self, response: Iterable[bytes], rest: Iterator[bytes]) -> bool:
        """Returns whether the body is certainly no stream, and small enough to be stored. To read a stream could take forever."""
        if not has_body(self._code()):
            return True
        length = next((value for name, value in self._headers if name.lower() == "content-length"), None)
        if length is not None and length.isdigit():
            return int(length) <= LIMIT
        # WSGI makes a length of the iterable reliable. The body of Django's `HttpResponse` has none, but iterates over a list.
        return isinstance(response, Sized) or isinstance(rest, ITERATORS)

    def _settle(self, status: int | None, body: bytes | None) -> str:
        effect = judge(self._protection.policy, self._statement, status)
        return outcome(effect, self._claim.settle(effect, self._protection.reply(status or 200, self._headers, body)))


class Rest:
    """The chunks of a streamed response, of which the first were taken already."""

    def __init__(self, taken: list[bytes], rest: Iterator[bytes], response: Iterable[bytes]) -> None:
        self._taken, self._rest, self._response = taken, rest, response

    def __iter__(self) -> Iterator[bytes]:
        yield from self._taken
        yield from self._rest

    def close(self) -> None:
        """Closes the response of the application."""
        close(self._response)


def close(response: Iterable[bytes]) -> None:
    """Closes the response of an application."""
    if hasattr(response, "close"):
        response.close()


def status_line(status: int) -> str:
    """Returns a status as WSGI has it."""
    known = {each.value: each.phrase for each in HTTPStatus}
    return f"{status} {known.get(status, 'Unknown')}"


def routed_path(environ: Environ) -> str:
    """Returns the path as the router of the application sees it: without the prefix that it is mounted at."""
    # Werkzeug takes more than one slash at the begin for one.
    return "/" + decoded(environ.get("PATH_INFO", "")).lstrip("/")


def decoded(path: str) -> str:
    """Returns a path that WSGI has as bytes in latin-1."""
    return path.encode("latin-1").decode("utf-8", "replace")


def request_of(environ: Environ, body: bytes) -> Request:
    """Returns the request in an environ."""
    path = decoded(environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", ""))
    headers = {name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name.startswith("HTTP_")}
    headers["content-type"] = environ.get("CONTENT_TYPE", "")
    return Request(environ["REQUEST_METHOD"], path, environ.get("QUERY_STRING", ""), headers, environ, body)


def listen_to_flask() -> None:
    """Asks Flask for the exceptions of its handlers, which it turns into responses."""
    try:
        from flask.signals import got_request_exception, request_started
    except ImportError:
        return
    got_request_exception.connect(note_exception)
    request_started.connect(listen_to_error_handlers)


def note_exception(_sender: object, exception: BaseException, **_: object) -> None:
    """Notes the exception of the current handler."""
    if statement := current.get():
        statement.exception = exception


def listen_to_error_handlers(app: Any, **_: object) -> None:
    """Has a Flask application note an exception before its error handlers respond to it: Flask has no signal for that."""
    handle = app.handle_user_exception
    if current.get() is None or getattr(handle, "notes_exceptions", False):
        return

    @functools.wraps(handle)
    def note_and_handle(*args: Any) -> Any:
        for argument in args:
            if isinstance(argument, Exception):
                note_exception(app, argument)
        return handle(*args)

    setattr(note_and_handle, "notes_exceptions", True)
    app.handle_user_exception = note_and_handle

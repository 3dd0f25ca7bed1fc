"""Calls to the service that do not block the event loop: with httpx where it is installed, otherwise in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from .answer import Answer
from .keeper import start_thread
from .transport import Transport

if TYPE_CHECKING:
    import httpx
else:
    try:
        import httpx
    except ImportError:
        httpx = None

T = TypeVar("T")


class AsyncTransport:
    """Posts to the service from an event loop."""

    def __init__(self, url: str, api_key: str | None, blocking: Transport) -> None:
        self._url = url.rstrip("/")
        self._blocking = blocking
        self._headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {api_key}"} if api_key else {})
        # A client belongs to the event loop that it was first used in, and so to one process.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    async def post(self, path: str, body: bytes, timeout: float) -> Answer:
        """Posts a body, like the blocking transport."""
        if httpx is None:
            return await in_thread(lambda: self._blocking.post(path, body, timeout))
        try:
            response = await self._client().post(self._url + path, content=body, headers=self._headers, timeout=timeout)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            return Answer(was_sent=False)
        except (httpx.HTTPError, OSError, RuntimeError):
            return Answer()
        headers = response.headers
        return Answer(response.status_code, response.content, headers.get("content-type", ""), headers.get("retry-after"))

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            # The environment's proxies are not for the service. Each duplicate that waits holds a connection.
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
            # Without TLS, no certificates: to load them would block the event loop for a tenth of a second.
            client = httpx.AsyncClient(trust_env=False, limits=limits, verify=self._blocking.tls or False)
            self._clients[loop] = client
        return client


async def in_thread(call: Callable[[], T]) -> T:
    """Calls a function in a daemon thread of its own.

    The threads of an executor would be waited for at the end of the interpreter, and duplicates that wait could use up all of them.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failure = None, None
        try:
            result = call()
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            pass  # The loop is closed: the result interests no task.

    if not start_thread(run):
        future.cancel()
    return await future

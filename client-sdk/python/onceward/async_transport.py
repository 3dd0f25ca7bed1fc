"""Calls to the service that do not block the event loop: with httpx where it is installed, otherwise in threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, TypeVar

from .answer import Answer
from .keeper import is_ending, start_thread
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
        # A client belongs to the event loop that it was first used in, and so to one process. The generator closes it with its loop.
        self._clients: dict[asyncio.AbstractEventLoop, tuple[httpx.AsyncClient, AsyncGenerator[None]]] = {}

    async def post(self, path: str, body: bytes, timeout: float) -> Answer:
        """Posts a body, like the blocking transport."""
        if httpx is None:
            return await in_thread(lambda: self._blocking.post(path, body, timeout))
        try:
            client = await self._client()
            response = await client.post(self._url + path, content=body, headers=self._headers, timeout=timeout)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            return Answer(was_sent=False)
        except (httpx.HTTPError, OSError, RuntimeError):
            return Answer()
        headers = response.headers
        return Answer(response.status_code, response.content, headers.get("content-type", ""), headers.get("retry-after"))

    async def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if found := self._clients.get(loop):
            return found[0]
        for other in [other for other in list(self._clients) if other.is_closed()]:
            # A loop that ended without its generators. Its sockets are closed when they are collected.
            self._clients.pop(other, None)
        # The environment's proxies are not for the service. Each duplicate that waits holds a connection.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
        # Without TLS, no certificates: to load them would block the event loop for a tenth of a second.
        client = httpx.AsyncClient(trust_env=False, limits=limits, verify=self._blocking.tls or False)
        closing = self._close_with(loop, client)
        self._clients[loop] = client, closing
        await anext(closing)
        return client

    async def _close_with(self, loop: asyncio.AbstractEventLoop, client: httpx.AsyncClient) -> AsyncGenerator[None]:
        """Closes the client's connections when the loop ends: `asyncio.run` ends the async generators that have begun in it."""
        try:
            yield
        finally:
            self._clients.pop(loop, None)
            await client.aclose()


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
        if is_ending():
            future.cancel()
        else:
            # To block the event loop is better than to lose the result of a run.
            run()
    return await future

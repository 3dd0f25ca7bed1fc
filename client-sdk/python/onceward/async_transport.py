"""Calls to the service that do not block the event loop: with httpx where it is installed, otherwise in threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from .answer import Answer
from .deadline import LIMIT
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

    async def post(
        self, path: str, body: bytes, timeout: float, unwanted: Callable[[Answer], None] | None = None
    ) -> Answer:
        """Posts a body, like the blocking transport. `unwanted` receives an answer that arrives after the task was cancelled."""
        if httpx is None:
            return await in_thread(lambda: self._blocking.post(path, body, timeout), unwanted)
        try:
            client = await self._client()
            # The timeouts of httpx are for each read. That to connect is shorter, so that it is told from an answer that never comes.
            async with asyncio.timeout(timeout):
                return await self._post(client, path, body, httpx.Timeout(timeout, connect=timeout * 0.9))
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            return self._blocking.lost(error, was_sent=False)
        except (httpx.HTTPError, OSError, RuntimeError) as error:
            return self._blocking.lost(error)

    async def _post(self, client: httpx.AsyncClient, path: str, body: bytes, timeout: httpx.Timeout) -> Answer:
        content = bytearray()
        async with client.stream("POST", self._url + path, content=body, headers=self._headers, timeout=timeout) as response:
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > LIMIT:
                    raise httpx.RemoteProtocolError("the response is too large")
        return self._blocking.received(response.status_code, bytes(content), response.headers)

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


async def in_thread(call: Callable[[], T], unwanted: Callable[[T], None] | None = None) -> T:
    """Calls a function in a daemon thread of its own. `unwanted` receives a result for which the task does not wait any more.

    The threads of an executor would be waited for at the end of the interpreter, and duplicates that wait could use up all of them.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    handover = Handover(unwanted)

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
            handover.give(result)
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            handover.drop()  # The loop is closed: no task receives the result.

    if not start_thread(run):
        if is_ending():
            future.cancel()
        else:
            # To block the event loop is better than to lose the result of a run.
            run()
    try:
        return await future
    except BaseException:
        handover.drop()
        raise


class Handover(Generic[T]):
    """The result of a thread, on its way to a task that may be cancelled meanwhile."""

    def __init__(self, unwanted: Callable[[T], None] | None) -> None:
        self._unwanted = unwanted
        self._results: list[T] = []
        self._is_dropped = False
        self._lock = threading.Lock()

    def give(self, result: T) -> None:
        """Has a result."""
        with self._lock:
            self._results.append(result)
        self._pass_on()

    def drop(self) -> None:
        """The task waits no more."""
        with self._lock:
            self._is_dropped = True
        self._pass_on()

    def _pass_on(self) -> None:
        with self._lock:
            results = self._results if self._is_dropped else []
            unwanted = [results.pop()] if results else []
        for each in unwanted:
            if self._unwanted is not None:
                self._unwanted(each)

"""Runs of views on ASGI, where Django cancels the request of a client that has left."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from asgiref.sync import sync_to_async
from django.http.response import HttpResponseBase


class Runs:
    """The runs of one process. Each has a task of its own, which is not cancelled with its request."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[HttpResponseBase]] = set()

    async def to_the_end(self, run: Coroutine[Any, Any, HttpResponseBase]) -> HttpResponseBase:
        """Returns the response of a run. If the request is cancelled, the run goes on, and the request waits for it."""
        task = asyncio.create_task(run)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # The view still uses the body and the thread of the request. Only a second cancellation, by the server, ends them first.
            await asyncio.wait([task])
            if not task.cancelled() and task.exception() is None:
                await sync_to_async(task.result().close)()
            raise

"""Serves an ASGI application with uvicorn, in one process and one event loop."""

from __future__ import annotations

import socket
from typing import Any

import rules
import uvicorn


class Server(uvicorn.Server):
    """uvicorn, which prints its URL as the first line of the output."""

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        print(f"http://127.0.0.1:{sockets[0].getsockname()[1]}", flush=True)


def serve(app: Any) -> None:
    """Serves until the process is asked to end."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", rules.port()))
    listener.listen(512)
    Server(uvicorn.Config(app, log_level="warning", access_log=False)).run([listener])

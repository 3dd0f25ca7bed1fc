"""A server that sends the same bytes on each connection, and closes it."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self


class Raw:
    """The server."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(self._answer)
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(65536)
            except OSError:
                if self._server.fileno() < 0:
                    return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.close()

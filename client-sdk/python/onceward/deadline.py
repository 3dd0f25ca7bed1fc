"""Responses that are read by a deadline: the timeout of a socket is for each read, so a server that drips bytes would never reach it."""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any

#: The maximum size of a response: a reply of 1 MiB in base64, and the JSON around it.
LIMIT = 4 * 1024 * 1024


class DeadlineResponse(http.client.HTTPResponse):
    """A response whose head and body arrive within the timeout that the socket has when reading begins."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        # Its file counts as a user of the socket, which is closed after the last one.
        self.fp = io.BufferedReader(DeadlineReader(self.fp.detach(), sock))

    def read_whole(self) -> bytes:
        """Reads the body. Raises `IncompleteRead` if it is cut off, or too large."""
        content = self.read(LIMIT + 1)
        if len(content) > LIMIT or self.length:
            raise http.client.IncompleteRead(content)
        return content


class DeadlineReader(io.RawIOBase):
    """Reads from a socket until a deadline."""

    def __init__(self, file: io.RawIOBase, sock: socket.socket) -> None:
        self._file, self._socket = file, sock
        timeout = sock.gettimeout()
        self._deadline = None if timeout is None else time.monotonic() + timeout

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self._socket.settimeout(left)
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()

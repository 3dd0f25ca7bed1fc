"""Calls to the service that block their thread."""

from __future__ import annotations

import http.client
import re
import ssl
from collections import deque
from urllib.parse import urlsplit

from .answer import Answer
from .per_process import PerProcess

#: The maximum number of idle connections in a process.
IDLE = 32

Connection = http.client.HTTPConnection


class Transport:
    """Posts to the service over connections that it keeps open. Safe in threads, and after a fork."""

    def __init__(self, url: str, api_key: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the URL of Onceward has to look like http://127.0.0.1:8080, not {url!r}")
        self._host, self._port, self._base = parts.hostname, parts.port, parts.path.rstrip("/")
        self.tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._headers = {"content-type": "application/json"}
        if api_key:
            # The key itself is in no error, because errors are logged.
            if not re.fullmatch(r"[!-~]([ -~]*[!-~])?", api_key):
                raise ValueError(
                    "the API key of Onceward begins or ends with white space, or has a character that a header cannot have; "
                    "check ONCEWARD_API_KEY"
                )
            self._headers["authorization"] = f"Bearer {api_key}"
        self._idle: PerProcess[deque[Connection]] = PerProcess(deque)

    def post(self, path: str, body: bytes, timeout: float) -> Answer:
        """Posts a body. Every call can be repeated: it names its attempt or its pass."""
        try:
            connection = self._idle.get().pop()
        except IndexError:
            pass
        else:
            try:
                connection.timeout = timeout
                if connection.sock is not None:
                    connection.sock.settimeout(timeout)
                return self._send(connection, path, body)
            except TimeoutError:
                return Answer()
            except (OSError, http.client.HTTPException):
                pass  # The service may have closed the idle connection long ago: a new one shows more.
        return self._post_on_new_connection(path, body, timeout)

    def _post_on_new_connection(self, path: str, body: bytes, timeout: float) -> Answer:
        connection = self._connection(timeout)
        try:
            connection.connect()
        except OSError:
            connection.close()
            return Answer(was_sent=False)
        try:
            return self._send(connection, path, body)
        except (OSError, http.client.HTTPException):
            return Answer()

    def _connection(self, timeout: float) -> Connection:
        if self.tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self.tls)

    def _send(self, connection: Connection, path: str, body: bytes) -> Answer:
        try:
            connection.request("POST", self._base + path, body, self._headers)
            response = connection.getresponse()
            content = response.read()
        except BaseException:
            connection.close()
            raise
        headers = response.headers
        answer = Answer(response.status, content, headers.get("content-type", ""), headers.get("retry-after"))
        idle = self._idle.get()
        if connection.sock is not None and len(idle) < IDLE:
            idle.append(connection)
        else:
            connection.close()
        return answer

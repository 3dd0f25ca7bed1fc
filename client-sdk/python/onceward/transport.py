"""Calls to the service that block their thread."""

from __future__ import annotations

import http.client
import re
import ssl
import time
from collections import deque
from collections.abc import Mapping
from typing import cast
from urllib.parse import urlsplit

from .answer import Answer, log
from .deadline import DeadlineResponse
from .per_process import PerProcess

#: The maximum number of idle connections in a process.
IDLE = 32
#: The seconds in which a service that fails is logged once.
QUIET = 10.0

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
        # Without user name, password and path.
        self._address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._quiet_until = 0.0

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
            except TimeoutError as error:
                return self.lost(error)
            except (OSError, http.client.HTTPException) as error:
                # The service may have closed the idle connection long ago: a new one shows more.
                return self._post_on_new_connection(path, body, timeout).after(Answer(error=error))
        return self._post_on_new_connection(path, body, timeout)

    def _post_on_new_connection(self, path: str, body: bytes, timeout: float) -> Answer:
        connection = self._connection(timeout)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            return self.lost(error, was_sent=False)
        try:
            return self._send(connection, path, body)
        except (OSError, http.client.HTTPException) as error:
            return self.lost(error)

    def lost(self, error: Exception, *, was_sent: bool = True) -> Answer:
        """Returns the absence of an answer."""
        self._warn(f"{type(error).__name__}: {error}".removesuffix(": "))
        return Answer(was_sent=was_sent, error=error)

    def received(self, status: int, body: bytes, headers: Mapping[str, str] | http.client.HTTPMessage) -> Answer:
        """Returns the answer in a response."""
        if status >= 500:
            self._warn(f"status {status}")
        return Answer(status, body, headers.get("content-type", ""), headers.get("retry-after"))

    def _warn(self, cause: str) -> None:
        """Logs that a call failed, at most once in a while."""
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET
            log.warning("a call of Onceward at %s failed (%s); check ONCEWARD_URL, the service and its store", self._address, cause)

    def _connection(self, timeout: float) -> Connection:
        connection: Connection
        if self.tls is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        else:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self.tls)
        connection.response_class = DeadlineResponse
        return connection

    def _send(self, connection: Connection, path: str, body: bytes) -> Answer:
        try:
            connection.request("POST", self._base + path, body, self._headers)
            response = cast(DeadlineResponse, connection.getresponse())
            content = response.read_whole()
        except BaseException:
            connection.close()
            raise
        answer = self.received(response.status, content, response.headers)
        idle = self._idle.get()
        if connection.sock is not None and len(idle) < IDLE:
            idle.append(connection)
        else:
            connection.close()
        return answer

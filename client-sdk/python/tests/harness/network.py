"""A proxy in front of the service that loses, delays and replaces answers."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

#: A fault: `pass`; `lose` the answer, or replace it by a page of a gateway (`replace`); `drop` the call before the service
#: sees it, or after a while (`stall`); `late`: drop it, and pass it on after a while; `drip`: send the answer byte by byte; a delay of the
#: answer in seconds; a status of a gateway, or its status and body, in place of the answer.
Fault = str | float | int | tuple[int, bytes]
#: Decides the fault of a call by its path and its number among the calls with this path.
Plan = Callable[[str, int], Fault]


#: The seconds for which a stalled call has no answer, and after which a late one arrives at the service.
STALL = 0.5
#: The seconds between two bytes of an answer that drips.
DRIP = 0.05


def smooth(_path: str, _number: int) -> Fault:
    """No fault."""
    return "pass"


class Network:
    """The proxy. The plan can be changed at any time."""

    def __init__(self, service_url: str, plan: Plan = smooth) -> None:
        self.plan = plan
        self.calls: list[tuple[str, bytes]] = []
        #: The statuses of the answers to calls that arrived late.
        self.late_answers: list[int] = []
        self._lock = threading.Lock()
        upstream = urlsplit(service_url).netloc
        network = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                fault = network._note(self.path, body)
                if fault in ("drop", "stall"):
                    time.sleep(STALL if fault == "stall" else 0)
                    return self._cut()
                if isinstance(fault, int):
                    return self._answer(fault, b"{}", {})
                if isinstance(fault, tuple):
                    return self._answer(*fault, {})
                if fault == "late":
                    self._cut()
                    time.sleep(STALL)
                connection = http.client.HTTPConnection(upstream, timeout=40)
                connection.request("POST", self.path, body, dict(self.headers))
                response = connection.getresponse()
                content = response.read()
                connection.close()
                if fault == "late":
                    network.late_answers.append(response.status)
                if fault in ("lose", "late"):
                    return self._cut()
                if fault == "replace":
                    return self._answer(502, b"<html>", {})
                if fault == "drip":
                    return self._drip(content)
                if isinstance(fault, float):
                    time.sleep(fault)
                self._answer(response.status, content, dict(response.headers))

            def _cut(self) -> None:
                self.close_connection = True
                try:
                    self.connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # The client has left.

            def _drip(self, content: bytes) -> None:
                answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(content), content)
                try:
                    for at in range(len(answer)):
                        self.wfile.write(answer[at : at + 1])
                        time.sleep(DRIP)
                except OSError:
                    self.close_connection = True

            def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
                try:
                    self.send_response(status)
                    for name in ("content-type", "retry-after"):
                        if name in headers:
                            self.send_header(name, headers[name])
                    self.send_header("content-length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def _note(self, path: str, body: bytes) -> Fault:
        with self._lock:
            self.calls.append((path, body))
            number = sum(1 for each, _ in self.calls if each == path)
            return self.plan(path, number)

    def bodies(self, path: str) -> list[bytes]:
        """Returns the bodies of the calls to a path."""
        with self._lock:
            return [body for each, body in self.calls if each == path]

    def close(self) -> None:
        """Stops to listen: connections are refused."""
        self._server.shutdown()
        self._server.server_close()

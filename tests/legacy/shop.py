"""A shop from before Onceward: HTML forms, a JSON API and a few odd corners, on the standard library alone.

It knows nothing of Onceward. It prints a line once it listens, and writes every order to a ledger file, one line each, before it responds.

Usage: shop.py PORT LEDGER [CERTIFICATE KEY]
"""

import base64
import hashlib
import html
import json
import os
import socket
import ssl
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

PORT, LEDGER = int(sys.argv[1]), sys.argv[2]
LOCK = threading.Lock()


def order(item, handler):
    """Writes an order to the ledger, and returns its number."""
    with LOCK:
        with open(LEDGER, "a+") as ledger:
            ledger.seek(0)
            number = len(ledger.readlines()) + 1
            line = {
                "order": number,
                "item": item,
                "path": urlsplit(handler.path).path,
                "run": handler.headers.get("onceward-run"),
                "key": handler.headers.get("idempotency-key"),
                "user": handler.cookie("user"),
            }
            ledger.write(json.dumps(line) + "\n")
            ledger.flush()
            os.fsync(ledger.fileno())
    return number


def page(title, body, head=""):
    return f"<!doctype html>\n<html><head><title>{title}</title>{head}</head>\n<body><h1>{title}</h1>{body}</body></html>\n"


FORM = """<form method="post" action="/orders"{attributes}>
<label>Item <input name="item" value="tea"></label> <button id="order">Order</button></form>"""

UPLOAD = """<form method="post" action="/uploads" enctype="multipart/form-data"{attributes}>
<input name="item" value="photo"> <input type="file" name="file"> <button id="order">Send</button></form>"""

SCRIPT = '<script src="/_onceward/sdk/onceward.js" defer></script>'


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def cookie(self, name):
        for pair in (self.headers.get("cookie") or "").split(";"):
            key, _, value = pair.strip().partition("=")
            if key == name:
                return value
        return None

    # Pages

    def do_GET(self):
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        if url.path == "/":
            self.send_page(page("Shop", FORM.format(attributes="")), csp=query.get("csp"))
        elif url.path == "/scripted":
            self.send_page(page("Shop", FORM.format(attributes=" data-onceward"), SCRIPT))
        elif url.path == "/upload":
            self.send_page(page("Upload", UPLOAD.format(attributes="")))
        elif url.path == "/fragment":
            self.send_page("<p>part of a page</p>")
        elif url.path == "/login":
            self.send_page(page("Hello", ""), headers=[("Set-Cookie", f"user={query.get('user', 'alice')}; Path=/")])
        elif url.path == "/headers":
            self.send_json(200, {"path": self.path, "headers": [[k.lower(), v] for k, v in self.headers.items()]})
        elif url.path == "/slow":
            time.sleep(float(query.get("seconds", 1)))
            self.send_json(200, {})
        elif url.path == "/big":
            self.send_big(int(query["bytes"]), "chunked" in query)
        elif url.path == "/events":
            self.send_events(int(query.get("count", 3)), float(query.get("seconds", 0.2)))
        elif url.path == "/socket":
            self.websocket()
        else:
            self.send_page(page("Not found", ""), status=404)

    do_HEAD = do_GET

    # Submissions

    def do_POST(self):
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        if url.path == "/sink":
            return self.send_json(200, {"bytes": self.drain(), "headers": [[k.lower(), v] for k, v in self.headers.items()]})
        body = self.read_body()
        kind = (self.headers.get("content-type") or "").split(";")[0].strip()
        if kind == "application/json":
            try:
                fields = json.loads(body or b"{}")
            except ValueError:
                return self.send_json(400, {"error": "malformed"})
        elif kind == "application/x-www-form-urlencoded":
            fields = dict(parse_qsl(body.decode()))
        else:
            fields = {"item": f"{len(body)} bytes"}
        self.submit(url.path, query, fields)

    do_PUT = do_PATCH = do_DELETE = do_POST

    def handle_expect_100(self):
        """Rejects a request by its head, or asks for its body."""
        if urlsplit(self.path).path != "/reject":
            return super().handle_expect_100()
        self.close_connection = True
        self.send_json(403, {"error": "not allowed"})
        return False

    def submit(self, path, query, fields):
        item = str(fields.get("item", "nothing"))
        if query.get("before") == "500":
            return self.send_page(page("Error", ""), status=500)
        if "slow" in query and query.get("when") == "before":
            time.sleep(float(query["slow"]))
        number = order(item, self)
        if "slow" in query and query.get("when") != "before":
            time.sleep(float(query["slow"]))
        failure = query.get("fail")
        if failure == "reset":
            return self.reset()
        if failure == "broken":
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"<p>half of")
            self.close_connection = True
            return None
        if failure == "silent":
            time.sleep(3600)
        if failure:
            return self.send_page(page("Error", ""), status=int(failure))
        if query.get("reply") == "events":
            return self.send_events(int(query.get("count", 3)), float(query.get("seconds", 0.05)))
        if query.get("reply") == "big":
            return self.send_big(int(query["bytes"]), "chunked" in query)
        if query.get("reply") == "chunked":
            return self.send_chunked([f"order {number}: ".encode(), item.encode()])
        if path.startswith("/api/"):
            headers = [("Location", f"/api/orders/{number}"), ("Set-Cookie", f"last={number}"), ("X-Cost", "3")]
            return self.send_json(201, {"order": number, "item": item, "run": self.headers.get("onceward-run")}, headers)
        return self.send_page(page(f"Order {number}", f"<p>{html.escape(item)}</p>"), status=201)

    # Bodies

    def read_body(self):
        if "chunked" in (self.headers.get("transfer-encoding") or "").lower():
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline() not in (b"\r\n", b""):
                pass
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def drain(self):
        """Reads a body without keeping it, and returns its length."""
        if "chunked" in (self.headers.get("transfer-encoding") or "").lower():
            return len(self.read_body())
        left = total = int(self.headers.get("content-length") or 0)
        while left and (chunk := self.rfile.read(min(left, 65536))):
            left -= len(chunk)
        return total - left

    def send_whole(self, status, kind, body, headers=()):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_page(self, text, status=200, headers=(), csp=None):
        headers = list(headers) + ([("Content-Security-Policy", csp)] if csp else [])
        self.send_whole(status, "text/html; charset=utf-8", text.encode(), headers)

    def send_json(self, status, value, headers=()):
        self.send_whole(status, "application/json", json.dumps(value).encode(), headers)

    def send_chunked(self, chunks, kind="text/plain", pause=0):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.flush()
            time.sleep(pause)
        self.wfile.write(b"0\r\n\r\n")

    def send_events(self, count, pause):
        self.send_chunked((b"data: %d\n\n" % number for number in range(count)), "text/event-stream", pause)

    def send_big(self, size, chunked):
        piece = b"x" * 65536
        if chunked:
            return self.send_chunked((piece[: min(65536, size - at)] for at in range(0, size, 65536)))
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(size))
        self.end_headers()
        for at in range(0, size, 65536):
            self.wfile.write(piece[: min(65536, size - at)])
        return None

    def reset(self):
        """Closes the connection with a reset, in place of a response."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    # WebSocket (RFC 6455): echoes every frame of up to 64 KiB

    def websocket(self):
        if (self.headers.get("upgrade") or "").lower() != "websocket":
            return self.send_json(426, {"error": "upgrade required"})
        accept = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(accept.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        while frame := self.read_frame():
            opcode, payload = frame
            length = bytes([len(payload)]) if len(payload) < 126 else b"\x7e" + struct.pack(">H", len(payload))
            self.wfile.write(bytes([0x80 | opcode]) + length + payload)
            if opcode == 8:
                break
        return None

    def read_frame(self):
        head = self.rfile.read(2)
        if len(head) < 2:
            return None
        length = head[1] & 0x7F
        if length == 126:
            length = struct.unpack(">H", self.rfile.read(2))[0]
        mask = self.rfile.read(4)
        masked = self.rfile.read(length)
        return head[0] & 0x0F, bytes(byte ^ mask[at % 4] for at, byte in enumerate(masked))

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 4096
    daemon_threads = True

    def handle_error(self, *_):
        """A client that closes its connection is not worth a stack trace."""


server = Server(("127.0.0.1", PORT), Shop)
if len(sys.argv) > 3:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[3:5])
    # The handshake is made by the thread of the connection, with its first read.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print("listening", flush=True)
server.serve_forever()

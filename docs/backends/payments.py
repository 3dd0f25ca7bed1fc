"""An HTTP server in Python that makes each payment once: it claims each request at Onceward before it pays.

    ONCEWARD_URL=http://127.0.0.1:8080 LEDGER=payments.txt python3 payments.py

A program sends an Idempotency-Key. A page sends the Onceward-Token that it fetched before, and its second click receives the first
response. The server renews its claim while it works. If it crashes, the outcome of the payment is unknown, and the payment is not made
again until an operator settles it. With RETRYABLE=1 it is made again once the lease has expired, and may then be made twice.
It needs only the standard library. It listens on a free port, and prints its URL.
"""

import base64
import hashlib
import http.client
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ONCEWARD = os.environ["ONCEWARD_URL"]
API_KEY = os.environ.get("ONCEWARD_API_KEY")
LEASE = 2.0  # seconds
# Timeout of a request to Onceward. It is short enough to retry well within the lease, so one lost response does not lose the claim.
TIMEOUT = LEASE / 3
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(duration):
    """Parses a duration of Onceward, such as `333ms` or `5s`."""
    number = duration.rstrip("dhms")
    return int(number) * UNITS[duration[len(number) :]]


def call(path, body):
    """Posts to Onceward. Returns the status, the body and `Retry-After`."""
    headers = {"content-type": "application/json"}
    if API_KEY:
        headers["authorization"] = "Bearer " + API_KEY
    request = urllib.request.Request(ONCEWARD + path, json.dumps(body).encode(), headers)
    try:
        try:
            response = urllib.request.urlopen(request, timeout=TIMEOUT)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            return response.status, response.read(), response.headers.get("retry-after")
    except (OSError, http.client.HTTPException):
        # Without a complete response it is unknown whether this is a duplicate, so nothing runs.
        return 503, b'{"code":"store_unavailable"}', "1"


def claim(intent):
    """Claims a key or token. A claim whose response was lost may exist: a retry with the same attempt receives the same pass."""
    intent["attempt"] = uuid.uuid4().hex
    deadline = time.monotonic() + LEASE
    while True:
        response = call("/claim", intent)
        if response[0] < 500 or time.monotonic() > deadline:
            return response
        time.sleep(TIMEOUT / 2)


def is_processed(status):
    """Returns whether Onceward has processed the request. It has not without the right API key."""
    return status < 500 and status != 401


class Claim:
    """A claim, renewed until Onceward has stored the result of the run."""

    def __init__(self, claimed):
        self.claim_pass, self.result = claimed["pass"], None
        # Twice as often as Onceward requires, because one renewal may time out.
        self.interval = seconds(claimed["renew_every"]) / 2
        self.lock, self.settled = threading.Lock(), threading.Event()
        threading.Thread(target=self.renew, daemon=True).start()

    def renew(self):
        while not self.settled.wait(self.interval):
            self.report()

    def report(self):
        """Reports the result of the run. Renews the claim if there is no result yet, or if reporting it fails."""
        with self.lock:
            if self.settled.is_set():
                return
            if self.result and is_processed(call(*self.result)[0]):
                self.settled.set()
            else:
                call("/claim/renew", {"pass": self.claim_pass})

    def complete(self, status, body):
        reply = {"status": status, "headers": [["content-type", "application/json"]]}
        reply["body"] = base64.b64encode(body).decode()
        self.result = ("/claim/complete", {"pass": self.claim_pass, "reply": reply})
        self.report()

    def release(self):
        self.result = ("/claim/release", {"pass": self.claim_pass})
        self.report()


def pay(order):
    """The effect that must happen once."""
    time.sleep(float(order.get("takes", 0)))
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write(order["order"] + "\n")
    return json.dumps({"paid": order["order"]}).encode()


class Payments(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length)
        if len(body) < length:
            # The client has closed the connection before its body was complete.
            self.close_connection = True
            return
        intent = {
            "action": "POST /payments",
            "subject": self.headers.get("x-user", "anonymous"),
            "fingerprint": hashlib.sha256(body).hexdigest(),
            "lease": "%dms" % (LEASE * 1000),
        }
        if key := self.headers.get("idempotency-key"):
            intent |= {"key": key, "at_most_once": not os.environ.get("RETRYABLE")}
        elif token := self.headers.get("onceward-token"):
            intent["token"] = token
        else:
            return self.respond(400, b'{"code":"key_missing"}')
        status, content, retry_after = claim(intent)
        if status == 401:
            # A configuration error: the operator has to fix it, and the client may retry.
            print("Onceward rejects this backend: ONCEWARD_API_KEY is missing or wrong", file=sys.stderr, flush=True)
            return self.respond(503, b'{"code":"store_unavailable"}', [("retry-after", "1")])
        if status != 200:
            return self.respond(status, content, [("retry-after", retry_after)] if retry_after else [])
        verdict = json.loads(content)
        if verdict["outcome"] == "replay":
            reply = verdict["reply"]
            headers = [tuple(header) for header in reply["headers"]] + [("idempotent-replayed", "true")]
            return self.respond(reply["status"], base64.b64decode(reply["body"]), headers)
        claimed = Claim(verdict)
        try:
            paid = pay(json.loads(body))
        except Exception:
            # The effect is the last step of pay(), so a failure had no effect.
            claimed.release()
            return self.respond(500, b'{"code":"internal"}')
        claimed.complete(201, paid)
        self.respond(201, paid, [("content-type", "application/json")])

    def respond(self, status, body, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Payments)
    print("http://127.0.0.1:%d" % server.server_address[1], flush=True)
    server.serve_forever()

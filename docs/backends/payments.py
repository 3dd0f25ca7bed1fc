"""A plain HTTP server in Python that pays once, however often it is asked: by asking Onceward first.

    ONCEWARD_URL=http://127.0.0.1:8080 LEDGER=payments.txt python3 payments.py

A program sends an Idempotency-Key. A page sends the Onceward-Token that it fetched before: its second click gets the first answer.
It renews its claim while it works. If it dies in the middle, nobody can tell whether it has paid, and the payment is not made again
before an operator has settled it. With RETRYABLE=1 it is made again once the lease has expired, and then perhaps twice.
Nothing but the standard library. It listens on a free port, and says on which.
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
# One answer that does not come must not cost the claim: so it is given up, and asked for again, well within the lease.
PATIENCE = LEASE / 3
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(duration):
    """Reads a duration as Onceward writes it: `333ms`, `5s`."""
    number = duration.rstrip("dhms")
    return int(number) * UNITS[duration[len(number) :]]


def ask(path, body):
    """Posts to Onceward. Gives the status, the body, and how long to wait before the same is asked again."""
    headers = {"content-type": "application/json"}
    if API_KEY:
        headers["authorization"] = "Bearer " + API_KEY
    request = urllib.request.Request(ONCEWARD + path, json.dumps(body).encode(), headers)
    try:
        try:
            answer = urllib.request.urlopen(request, timeout=PATIENCE)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return answer.status, answer.read(), answer.headers.get("retry-after")
    except (OSError, http.client.HTTPException):
        # Without a whole answer it cannot be found out whether it was sent before, so nothing runs.
        return 503, b'{"code":"store_unavailable"}', "1"


def claim(asked):
    """Claims a key. A claim whose answer was lost may have been made: asked for under the same attempt, it is given again."""
    asked["attempt"] = uuid.uuid4().hex
    deadline = time.monotonic() + LEASE
    while True:
        told = ask("/claim", asked)
        if told[0] < 500 or time.monotonic() > deadline:
            return told
        time.sleep(PATIENCE / 2)


def is_heard(status):
    """Whether Onceward has taken in what it was told. Without the right key it has not."""
    return status < 500 and status != 401


class Claim:
    """The right to run under a key, renewed until the run has ended and Onceward has heard how."""

    def __init__(self, told):
        self.given, self.last_word = told["pass"], None
        # Twice as often as Onceward asks for it, since one renewal may get stuck.
        self.pause = seconds(told["renew_every"]) / 2
        self.turn, self.over = threading.Lock(), threading.Event()
        threading.Thread(target=self.keep, daemon=True).start()

    def keep(self):
        while not self.over.wait(self.pause):
            self.say()

    def say(self):
        """Says how the run has ended. As long as that is not heard, or not known, says that the claim is still held."""
        with self.turn:
            if self.over.is_set():
                return
            if self.last_word and is_heard(ask(*self.last_word)[0]):
                self.over.set()
            else:
                ask("/claim/renew", {"pass": self.given})

    def complete(self, status, body):
        reply = {"status": status, "headers": [["content-type", "application/json"]]}
        reply["body"] = base64.b64encode(body).decode()
        self.last_word = ("/claim/complete", {"pass": self.given, "reply": reply})
        self.say()

    def release(self):
        self.last_word = ("/claim/release", {"pass": self.given})
        self.say()


def pay(order):
    """What must happen once."""
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
            # The client has hung up in the middle.
            self.close_connection = True
            return
        asked = {
            "action": "POST /payments",
            "subject": self.headers.get("x-user", "anonymous"),
            "fingerprint": hashlib.sha256(body).hexdigest(),
            "lease": "%dms" % (LEASE * 1000),
        }
        if key := self.headers.get("idempotency-key"):
            asked |= {"key": key, "at_most_once": not os.environ.get("RETRYABLE")}
        elif token := self.headers.get("onceward-token"):
            asked["token"] = token
        else:
            return self.answer(400, b'{"code":"key_missing"}')
        status, told, wait = claim(asked)
        if status == 401:
            # That is for the operator to set right: the customer has done nothing wrong, and may come again.
            print("Onceward rejects this backend: ONCEWARD_API_KEY is missing or wrong", file=sys.stderr, flush=True)
            return self.answer(503, b'{"code":"store_unavailable"}', [("retry-after", "1")])
        if status != 200:
            return self.answer(status, told, [("retry-after", wait)] if wait else [])
        told = json.loads(told)
        if told["outcome"] == "replay":
            reply = told["reply"]
            headers = [tuple(header) for header in reply["headers"]] + [("idempotent-replayed", "true")]
            return self.answer(reply["status"], base64.b64decode(reply["body"]), headers)
        own = Claim(told)
        try:
            paid = pay(json.loads(body))
        except Exception:
            # Its effect is the last thing that it does, so there was none.
            own.release()
            return self.answer(500, b'{"code":"internal"}')
        own.complete(201, paid)
        self.answer(201, paid, [("content-type", "application/json")])

    def answer(self, status, body, headers=()):
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

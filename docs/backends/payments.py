"""An HTTP server in Python that makes each payment once: it claims each request at Onceward before it pays.

    pip install ./client-sdk/python
    ONCEWARD_URL=http://127.0.0.1:8080 LEDGER=payments.txt python3 docs/backends/payments.py

A program sends an Idempotency-Key. A page sends the Onceward-Token that it fetched before, and its second click receives the first
response. The package `onceward` renews the claim while the server works. If the server crashes, the outcome of the payment is unknown, and
the payment is not made again until an operator settles it. With RETRYABLE=1 it is made again once the lease has expired, and may then be
made twice. It listens on a free port, and prints its URL.
"""

import hashlib
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from onceward import NotApplied, Onceward, Rejected, Replayed, Reply

# The URL and the API key are in ONCEWARD_URL and ONCEWARD_API_KEY.
onceward = Onceward()


def pay(order):
    """The effect that must happen once. It is the last step, so a failure had no effect."""
    try:
        time.sleep(float(order.get("takes", 0)))
        with open(os.environ["LEDGER"], "a") as ledger:
            ledger.write(order["order"] + "\n")
    except Exception as error:
        raise NotApplied from error
    return Reply.json({"paid": order["order"]}, 201)


class Payments(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length)
        if len(body) < length:
            # The client has closed the connection before its body was complete.
            self.close_connection = True
            return
        submission = {
            "action": "POST /payments",
            "subject": self.headers.get("x-user", "anonymous"),
            "fingerprint": hashlib.sha256(body).hexdigest(),
            "lease": 2.0,
        }
        if key := self.headers.get("idempotency-key"):
            submission |= {"key": key, "at_most_once": not os.environ.get("RETRYABLE")}
        elif token := self.headers.get("onceward-token"):
            submission["token"] = token
        else:
            return self.respond(Reply.json({"code": "key_missing"}, 400))
        try:
            with onceward.claim(**submission) as claim:
                paid = pay(json.loads(body))
                claim.complete(paid)
            self.respond(paid)
        except Replayed as replayed:
            self.respond(replayed.reply, [("idempotent-replayed", "true")])
        except Rejected as rejected:
            problem = rejected.problem
            retry_after = [("retry-after", problem.retry_after)] if problem.retry_after else []
            self.respond(Reply(problem.status, (("content-type", problem.content_type),), problem.body), retry_after)
        except Exception:
            self.respond(Reply.json({"code": "internal"}, 500))

    def respond(self, reply, more=()):
        self.send_response(reply.status)
        for name, value in [*reply.headers, *more, ("content-length", str(len(reply.body)))]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Payments)
    print("http://127.0.0.1:%d" % server.server_address[1], flush=True)
    server.serve_forever()

"""An HTTP server in Python that makes each payment once: it claims each request at Onceward before it pays.

    pip install ./client-sdk/python
    ONCEWARD_URL=http://127.0.0.1:8080 LEDGER=payments.txt python3 docs/backends/payments.py

A program sends an Idempotency-Key. A page sends the Onceward-Token that it fetched before, and its second click receives the first
response. The package `onceward` renews the claim while the server works. If the server crashes, the outcome of the payment is unknown, and
the payment is not made again until an operator settles it. With RETRYABLE=1 it is made again once the lease has expired, and may then be
made twice. It listens on a free port, and prints its URL.
"""

import json
import os
import time
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from onceward import Effect, Onceward, state_effect
from onceward.wsgi import Once


def pay(environ, start_response):
    """Makes a payment: the effect that must happen once."""
    try:
        payment = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        order, takes = payment["order"] + "\n", float(payment.get("takes", 0))
    except (ValueError, TypeError, KeyError, AttributeError):
        # The key or token is free again, so the client may correct the body.
        state_effect(Effect.NOT_APPLIED)
        return respond(start_response, "400 Bad Request", {"code": "bad_request"})
    time.sleep(takes)
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write(order)
    return respond(start_response, "201 Created", {"paid": payment["order"]})


def respond(start_response, status, content):
    start_response(status, [("content-type", "application/json")])
    return [json.dumps(content).encode()]


# The URL and the API key are in ONCEWARD_URL and ONCEWARD_API_KEY.
onceward = Onceward()
# In a project of yours: the user that your authentication has found. Any client can send this header.
rules = {"lease": 2.0, "subject": lambda request: request.headers.get("x-user", "anonymous")}
by_key = Once(pay, onceward, at_most_once=not os.environ.get("RETRYABLE"), **rules)
by_token = Once(pay, onceward, token=True, **rules)


def application(environ, start_response):
    return (by_token if "HTTP_ONCEWARD_TOKEN" in environ else by_key)(environ, start_response)


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads, request_queue_size = True, 128


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = make_server("127.0.0.1", 0, application, Server, Quiet)
    print("http://127.0.0.1:%d" % server.server_port, flush=True)
    server.serve_forever()

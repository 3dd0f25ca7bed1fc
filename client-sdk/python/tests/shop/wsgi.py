"""The contract shop on Flask and gunicorn."""

from __future__ import annotations

import rules
from flask import Flask, Response, jsonify, request
from order import Order, count
from prefork import Prefork

from onceward import Onceward, Rejected
from onceward.wsgi import Once

onceward = Onceward()
# Before the fork: the client must not share this connection with the workers.
try:
    onceward.issue()
except Rejected:
    pass
app = Flask(__name__)
if rules.IS_PROTECTED:
    app.wsgi_app = Once(app.wsgi_app, onceward, path="/orders", subject=rules.user, **rules.COMMON)
    app.wsgi_app = Once(app.wsgi_app, onceward, path="/retryable", subject=rules.user, at_most_once=False, **rules.COMMON)
    app.wsgi_app = Once(app.wsgi_app, onceward, path="/forms", subject="anonymous", token=True, **rules.COMMON)


@app.post("/orders")
@app.post("/retryable")
@app.post("/forms")
def protected() -> Response:
    return run(Order(request.headers, rules.IS_PROTECTED))


@app.post("/open")
def unprotected() -> Response:
    return run(Order(request.headers, is_protected=False))


def run(order: Order) -> Response:
    order.run_to_end()
    if order.is_streamed:
        return Response(order.chunks(), order.status)
    return Response(order.body, order.status, order.response_headers)


@app.get("/orders")
def ledger() -> Response:
    return Response(count(), mimetype="text/plain")


@app.post("/token")
def token() -> tuple[Response, int]:
    try:
        issued = onceward.issue()
    except Rejected as rejected:
        return jsonify(code=rejected.code), rejected.problem.status
    return jsonify(token=issued.token, expires_at=issued.expires_at, expires_in=issued.expires_in), 201


if __name__ == "__main__":
    Prefork(app).run()

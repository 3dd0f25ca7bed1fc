"""The contract shop on Django and gunicorn. Views run in a transaction (ATOMIC_REQUESTS) of an SQLite database, beside the ledger.

`POST /rows` is protected too, and its effect is a row: with `x-raise: after` the transaction is rolled back, and with `x-rollback: yes`
the view asks for that without an exception. `GET /rows` returns the number of rows.
"""

from __future__ import annotations

import os
import tempfile

import django
import rules
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import path
from order import Order, count
from prefork import Prefork

from onceward import Onceward, Rejected

onceward = Onceward()
DATABASE = os.environ.get("DATABASE") or tempfile.mkdtemp() + "/shop.sqlite3"
settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": DATABASE,
            "ATOMIC_REQUESTS": True,
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
        }
    },
    MIDDLEWARE=["django.middleware.common.CommonMiddleware", *(["onceward.django.Once"] if rules.IS_PROTECTED else [])],
    ONCEWARD=[
        {"client": onceward, "path": ["/orders", "/rows"], "subject": rules.user, **rules.COMMON},
        {"client": onceward, "path": "/retryable", "subject": rules.user, "at_most_once": False, **rules.COMMON},
        {"client": onceward, "path": "/forms", "subject": "anonymous", "token": True, **rules.COMMON},
    ],
    ROOT_URLCONF=__name__,
    SECRET_KEY="a-key-of-the-tests",
)
django.setup()


@transaction.non_atomic_requests
def orders(request: HttpRequest) -> HttpResponseBase:
    """The contract's handler. Its effect is not in the database, so it holds no transaction while it waits."""
    if request.method != "POST":
        return HttpResponse(count(), content_type="text/plain")
    return run(Order(request.headers, rules.IS_PROTECTED))


@transaction.non_atomic_requests
def unprotected(request: HttpRequest) -> HttpResponseBase:
    return run(Order(request.headers, is_protected=False))


def run(order: Order) -> HttpResponseBase:
    order.run_to_end()
    if order.is_streamed:
        return StreamingHttpResponse(order.chunks(), status=order.status)
    return respond(order)


def respond(order: Order) -> HttpResponse:
    response = HttpResponse(order.body, status=order.status)
    # Instead of the default.
    del response["content-type"]
    for name, value in order.response_headers:
        if name == "set-cookie":
            response.set_cookie(*value.split("="))
        else:
            # Django has one line for each name, cookies aside.
            response[name] = f"{response[name]}, {value}" if name in response else value
    return response


def rows(request: HttpRequest) -> HttpResponse:
    with connection.cursor() as cursor:
        if request.method == "POST":
            cursor.execute("INSERT INTO rows VALUES (%s)", [request.headers.get("x-order", "order")])
        cursor.execute("SELECT count(*) FROM rows")
        count = cursor.fetchone()[0]
    if request.headers.get("x-hook") == "fails":
        transaction.on_commit(fail)
    if request.headers.get("x-raise") == "after":
        raise RuntimeError("after the row was inserted")
    if request.headers.get("x-rollback") == "yes":
        transaction.set_rollback(True)
    return HttpResponse(str(count), status=int(request.headers.get("x-status", 200)))


def fail() -> None:
    raise RuntimeError("a hook after the commit")


@transaction.non_atomic_requests
def token(_request: HttpRequest) -> JsonResponse:
    try:
        issued = onceward.issue()
    except Rejected as rejected:
        return JsonResponse({"code": rejected.code}, status=rejected.problem.status)
    body = {"token": issued.token, "expires_at": issued.expires_at, "expires_in": issued.expires_in}
    return JsonResponse(body, status=201)


urlpatterns = [
    path("orders", orders),
    path("retryable", orders),
    path("forms", orders),
    path("open", unprotected),
    path("rows", rows),
    path("token", token),
]


def create_table() -> None:
    """Creates the table of `rows`."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS rows (name TEXT)")
    connection.close()


if __name__ == "__main__":
    create_table()
    Prefork(get_wsgi_application()).run()

"""A Django application in the process of the tests. Its views write a row each, in the transaction that their name says, and may do more.

The paths are `/{policy}/{view}`: `keys`, `retryable` and `forms` (tokens). The first middleware is not async.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from typing import Any

import django
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.db import IntegrityError, OperationalError, connection, transaction
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from onceward import Effect, Onceward, state_effect

MIDDLEWARE = [f"{__name__}.Surrounding", "django.middleware.csrf.CsrfViewMiddleware", "onceward.django.Once"]
settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": tempfile.mkdtemp() + "/bank.sqlite3",
            "ATOMIC_REQUESTS": True,
        }
    },
    LOGGING_CONFIG=None,
    MIDDLEWARE=MIDDLEWARE,
    ROOT_URLCONF=__name__,
    SECRET_KEY="a-key-of-the-tests",
)
django.setup()

Respond = Callable[[HttpRequest], Any]
#: The seconds that a view takes if it waits.
WAIT = 0.5


class Surrounding:
    """A middleware that is before Once. It begins a transaction, or parses the form, if a request asks for it."""

    def __init__(self, get_response: Respond) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        match request.headers.get("x-surrounding"):
            case "transaction":
                with transaction.atomic():
                    return self._get_response(request)
            case "form":
                request.POST.get("a")
        return self._get_response(request)


class Plain:
    """A middleware that is not async."""

    def __init__(self, get_response: Respond) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        return self._get_response(request)


def insert() -> None:
    """Writes a row."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO rows VALUES ('row')")


def count() -> int:
    """Returns the number of rows."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS rows (name TEXT)")
        cursor.execute("SELECT count(*) FROM rows")
        return int(cursor.fetchone()[0])


def lose_answer_to_commit() -> None:
    """Has the next COMMIT raise, after the database has carried it out."""

    def commit() -> None:
        del connection._commit
        connection._commit()
        raise OperationalError("the answer to COMMIT was lost")

    connection._commit = commit


def end(request: HttpRequest) -> HttpResponse:
    """Ends a view as the request asks for it."""
    if request.headers.get("x-raise"):
        raise RuntimeError("at the end of the view")
    if stated := request.headers.get("x-effect"):
        state_effect(Effect(stated))
    return HttpResponse("done", status=int(request.headers.get("x-status", 201)))


def write(request: HttpRequest) -> HttpResponse:
    """Writes in the transaction of the request."""
    insert()
    if request.headers.get("x-rollback"):
        transaction.set_rollback(True)
    return end(request)


def wait(request: HttpRequest) -> HttpResponse:
    """Takes a while before it writes."""
    time.sleep(WAIT)
    return write(request)


async def write_async(request: HttpRequest) -> HttpResponse:
    """Writes in a transaction of the view, which a rollback ends if the view raises there."""

    def insert_in_transaction() -> HttpResponse:
        with transaction.atomic():
            insert()
            return end(request)

    if request.headers.get("x-cancel"):
        raise asyncio.CancelledError
    await asyncio.sleep(WAIT if request.headers.get("x-wait") else 0)
    return await sync_to_async(insert_in_transaction)()


def write_and_catch(request: HttpRequest) -> HttpResponse:
    """Catches the rollback of a savepoint, or of a transaction if the request has none."""
    try:
        with transaction.atomic():
            insert()
            raise IntegrityError
    except IntegrityError:
        pass
    return end(request)


def lose_commit(request: HttpRequest) -> HttpResponse:
    """Writes in the transaction of the request. The answer to its COMMIT is lost."""
    lose_answer_to_commit()
    return write(request)


def lose_own_commit(request: HttpRequest) -> HttpResponse:
    """Writes in a transaction of the view. The answer to its COMMIT is lost, which the view reports by another exception."""
    lose_answer_to_commit()
    try:
        with transaction.atomic():
            insert()
    except OperationalError:
        raise RuntimeError("the database is gone") from None
    return end(request)


def upload(request: HttpRequest) -> HttpResponse:
    """Receives a file in a form that is protected against CSRF."""
    insert()
    return HttpResponse(request.FILES["file"].read(), status=201)


def form(request: HttpRequest) -> HttpResponse:
    """Returns the CSRF token of a form."""
    return HttpResponse(get_token(request))


VIEWS: dict[str, Respond] = {
    "write": csrf_exempt(write),
    "catch-savepoint": csrf_exempt(write_and_catch),
    "catch": csrf_exempt(transaction.non_atomic_requests(lambda request: write_and_catch(request))),
    "lose-commit": csrf_exempt(lose_commit),
    "lose-own-commit": csrf_exempt(transaction.non_atomic_requests(lose_own_commit)),
    "upload": upload,
    "wait": csrf_exempt(wait),
    "async": csrf_exempt(transaction.non_atomic_requests(write_async)),
}
POLICIES: dict[str, dict[str, bool]] = {"keys": {}, "retryable": {"at_most_once": False}, "forms": {"token": True}}
urlpatterns = [path(f"{policy}/{name}", view) for policy in POLICIES for name, view in VIEWS.items()] + [path("form", form)]


def configure(onceward: Onceward) -> None:
    """Protects the application by a service."""
    rules = {"client": onceward, "subject": "alice", "lease": 30.0}
    settings.ONCEWARD = [rules | {"path": f"/{name}/{{view}}"} | policy for name, policy in POLICIES.items()]
    count()


def bank(onceward: Onceward) -> WSGIHandler:
    """Returns the application, protected by a service."""
    configure(onceward)
    return WSGIHandler()


def async_bank(onceward: Onceward) -> ASGIHandler:
    """Returns the application on ASGI, protected by a service."""
    configure(onceward)
    return ASGIHandler()

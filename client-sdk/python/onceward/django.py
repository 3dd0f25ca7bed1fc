"""Middleware for Django.

    MIDDLEWARE = [..., "onceward.django.Once"]
    ONCEWARD = {"path": "/orders", "subject": lambda request: request.headers.get("x-user")}
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse
from django.http.request import RawPostDataException
from django.http.response import HttpResponseBase

from .claim import Claim, Replayed
from .client import Onceward
from .django_cancellation import Runs
from .django_transaction import TransactionWatch, effect_in_transaction
from .effect import Statement, current, judge
from .problem import Rejected
from .protection import Protection, Request, is_look, outcome, outcome_headers, replay_headers
from .wsgi_body import drain

#: Headers with one value, which may contain a comma.
SINGLE = frozenset({"content-disposition", "content-length", "content-type", "etag", "location"})
#: The attribute of a request that has its run.
RUN = "_onceward_run"

GetResponse = Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]


class Once:
    """Runs the view of a protected path once per key or token. The last entry of `MIDDLEWARE`, so that it sees what the others made of it.

    The setting `ONCEWARD` is a dictionary of rules, or a list of them, of which the first that covers a request counts.
    """

    sync_capable = async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response
        self._protections = protections(getattr(settings, "ONCEWARD", None))
        self._runs = Runs()
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self._is_async:
            return self._arespond(request)
        if isinstance(request, ASGIRequest) and self._covering(request):
            raise ImproperlyConfigured(
                "a middleware that is not async stands behind onceward.django.Once, so Django would cut off the view when a client "
                "leaves: make Once the last entry of MIDDLEWARE"
            )
        return self._respond(request)

    def _respond(self, request: HttpRequest) -> HttpResponseBase:
        if rejected := self._unreadable(request):
            return rejected
        try:
            response = cast(HttpResponseBase, self._get_response(request))
        except BaseException:
            if run := getattr(request, RUN, None):
                run.leave()
            raise
        run = getattr(request, RUN, None)
        return response if run is None else run.settle(response)

    async def _arespond(self, request: HttpRequest) -> HttpResponseBase:
        """Like `_respond`, on ASGI. Django calls the other methods in a thread of the request."""
        if self._covering(request) is None:
            return await cast(Awaitable[HttpResponseBase], self._get_response(request))
        if rejected := self._unreadable(request):
            return rejected
        return await self._runs.to_the_end(self._arun(request))

    async def _arun(self, request: HttpRequest) -> HttpResponseBase:
        try:
            response = await cast(Awaitable[HttpResponseBase], self._get_response(request))
        except BaseException:
            if run := getattr(request, RUN, None):
                run.leave()
            raise
        run = getattr(request, RUN, None)
        return response if run is None else cast(HttpResponseBase, await sync_to_async(run.settle)(response))

    def _unreadable(self, request: HttpRequest) -> HttpResponse | None:
        """Reads the body of a covered request. Returns the rejection if that fails.

        This is before `process_view` of other middleware, which may parse a form from the stream, as the check for CSRF does.
        """
        try:
            if protection := self._covering(request):
                body_of(request, protection)
        except Rejected as rejected:
            return rejection(rejected)
        return None

    def process_view(self, request: HttpRequest, view: object, args: object, kwargs: object) -> HttpResponse | None:
        """Claims the key or token right before the view runs, after the checks of other middleware."""
        protection = self._covering(request)
        if protection is None:
            return None
        try:
            intent = protection.intent(request_of(request, protection), subject_of(protection, request))
            if is_look({name.lower(): value for name, value in request.headers.items()}):
                raise Replayed(protection.onceward.look_up(intent))
            claim = protection.onceward.claim_for(intent).__enter__()
        except Rejected as rejected:
            return rejection(rejected)
        except Replayed as replayed:
            return response_of(replayed.reply.status, replay_headers(replayed.reply), replayed.reply.body)
        setattr(request, RUN, Run(protection, claim, view))
        return None

    def process_exception(self, request: HttpRequest, exception: Exception) -> None:
        """Notes the exception of the view, which Django turns into a response."""
        if run := getattr(request, RUN, None):
            run.statement.exception = exception

    def _covering(self, request: HttpRequest) -> Protection | None:
        """Returns the rules that cover a request. Their paths have no prefix (`FORCE_SCRIPT_NAME`), as those of the `urlpatterns`."""
        covering = (each for each in self._protections if each.covers(request.method or "", request.path_info))
        return next(covering, None)


class Run:
    """One run of a view."""

    def __init__(self, protection: Protection, claim: Claim, view: object) -> None:
        self._protection, self._claim = protection, claim
        self.statement = Statement()
        current.set(self.statement)
        self._watch = TransactionWatch(view)
        self._watch.start()

    def settle(self, response: HttpResponseBase) -> HttpResponseBase:
        """Settles the claim by the response."""
        self._stop()
        status = response.status_code
        effect = judge(self._protection.policy, self.statement, status)
        if not self.statement.is_explicit:
            effect = effect_in_transaction(self._watch.result(self.statement.exception), effect, status)
        body = response.content if isinstance(response, HttpResponse) else None
        settled = self._claim.settle(effect, self._protection.reply(status, response.items(), body))
        for name, value in outcome_headers(outcome(effect, settled)):
            response[name] = value
        return response

    def leave(self) -> None:
        """Leaves the claim after an exception that Django does not turn into a response, such as the end of the process."""
        self._stop()
        self._claim.leave()

    def _stop(self) -> None:
        self._watch.stop()
        current.set(None)


def protections(rules: Any) -> list[Protection]:
    """Reads the setting."""
    if not rules:
        raise ImproperlyConfigured("the setting ONCEWARD is missing: a dictionary with path and subject")
    return [protection(dict(each)) for each in (rules if isinstance(rules, (list, tuple)) else [rules])]


def protection(rules: dict[str, Any]) -> Protection:
    """Reads one dictionary of the setting."""
    onceward = rules.pop("client", None) or Onceward(rules.pop("url", None), rules.pop("api_key", None))
    try:
        return Protection(onceward, rules.pop("subject", None), rules)  # type: ignore[arg-type]
    except TypeError as error:
        raise ImproperlyConfigured(f"ONCEWARD: {error}") from error


def subject_of(protection: Protection, request: HttpRequest) -> object:
    """Returns the subject. The application's function receives the request of Django."""
    return protection.subject if isinstance(protection.subject, str) else protection.subject(request)


def request_of(request: HttpRequest, protection: Protection) -> Request:
    """Returns the request with its body."""
    body = body_of(request, protection)
    headers = {name.lower(): value for name, value in request.headers.items()}
    return Request(request.method or "", request.path, request.META.get("QUERY_STRING", ""), headers, request, body)


def body_of(request: HttpRequest, protection: Protection) -> bytes:
    """Reads the body, which Django keeps for the view."""
    declared = request.META.get("CONTENT_LENGTH") or "0"
    if declared.isdigit() and int(declared) > protection.body_limit:
        drain(request, int(declared))
        raise protection.too_large()
    try:
        body = request.body
    except OSError as error:
        raise Rejected.as_code("bad_request", "The body ended early.") from error
    except RawPostDataException as error:
        raise ImproperlyConfigured(
            "a middleware before onceward.django.Once has parsed the multipart form of a request, so its body cannot be compared: "
            "move that middleware behind Once, or have it read request.body first"
        ) from error
    if len(body) > protection.body_limit:
        raise protection.too_large()
    if declared.isdigit() and len(body) < int(declared):
        raise Rejected.as_code("bad_request", "The body ended early.")
    return body


def rejection(rejected: Rejected) -> HttpResponse:
    """Creates the response to a rejected request."""
    problem = rejected.problem
    return response_of(problem.status, problem.headers(), problem.body)


def response_of(status: int, headers: list[tuple[str, str]], body: bytes) -> HttpResponse:
    """Creates a response with exactly these headers. Django has one line for each name, so several values become a list."""
    response = HttpResponse(body, status=status)
    del response["content-type"]
    for name, value in headers:
        response[name] = f"{response[name]}, {value}" if name in response and name not in SINGLE else value
    return response

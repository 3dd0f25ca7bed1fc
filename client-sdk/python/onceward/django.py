"""Middleware for Django.

    MIDDLEWARE = [..., "onceward.django.Once"]
    ONCEWARD = {"path": "/orders", "subject": lambda request: request.headers.get("x-user")}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.http.request import RawPostDataException
from django.http.response import HttpResponseBase

from .claim import Claim, Replayed
from .client import Onceward
from .django_transaction import TransactionWatch, effect_in_transaction
from .effect import Effect, Statement, current, judge
from .problem import Rejected
from .protection import Protection, Request, is_look, outcome, outcome_headers, replay_headers
from .wsgi_body import drain

#: Headers with one value, which may contain a comma.
SINGLE = frozenset({"content-disposition", "content-length", "content-type", "etag", "location"})
#: The attribute of a request that has its run.
RUN = "_onceward_run"


class Once:
    """Runs the view of a protected path once per key or token. The last entry of `MIDDLEWARE`, so that it sees what the others made of it.

    The setting `ONCEWARD` is a dictionary of rules, or a list of them, of which the first that covers a request counts.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response
        self._protections = protections(getattr(settings, "ONCEWARD", None))

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if protection := self._covering(request):
            # Before `process_view` of other middleware, which may parse a form from the stream, as the check for CSRF does.
            try:
                body_of(request, protection)
            except Rejected as rejected:
                return rejection(rejected)
        try:
            response = self._get_response(request)
        except BaseException as error:
            if run := getattr(request, RUN, None):
                run.fail(error)
            raise
        run = getattr(request, RUN, None)
        return response if run is None else run.settle(response)

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
        status, settled = response.status_code, None
        effect = judge(self._protection.policy, self.statement, status)
        if not self.statement.is_explicit:
            effect = effect_in_transaction(self._watch.result(self.statement.exception), effect, status)
        match effect:
            case Effect.APPLIED:
                body = response.content if isinstance(response, HttpResponse) else None
                settled = self._claim.complete(self._protection.reply(status, response.items(), body))
            case Effect.NOT_APPLIED:
                settled = self._claim.release()
            case Effect.UNKNOWN:
                self._claim.leave()
        for name, value in outcome_headers(outcome(effect, settled)):
            response[name] = value
        return response

    def fail(self, error: BaseException) -> None:
        """Settles the claim by an exception that Django does not turn into a response, such as the end of the process."""
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

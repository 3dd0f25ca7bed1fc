"""The decisions of the package, as tables with the values of the Rust library."""

from __future__ import annotations

import subprocess

import httpx
import pytest
from werkzeug.exceptions import RequestTimeout

from onceward import Effect, NotApplied, Onceward, Policy, Problem, Rejected, Unknown
from onceward.answer import Answer
from onceward.result import Settled
from onceward.duration import seconds, text
from onceward.effect import Statement, effect_of_exception, effect_of_status, judge
from onceward.fingerprint import fingerprint
from onceward.form_token import token_field
from onceward.key_header import parse_key
from onceward.protection import Protection, Request, key_of, outcome, pattern, replay_headers
from onceward.reply import Reply, kept_headers
from onceward.retries import patience

# As in `guard/src/policy.rs`: + is applied, - is not applied, ? is unknown.
STATUSES = [200, 302, 400, 401, 403, 404, 408, 409, 422, 425, 429, 500, 501, 502, 503, 504, 505, 599]
SIGNS = {Effect.APPLIED: "+", Effect.NOT_APPLIED: "-", Effect.UNKNOWN: "?"}


@pytest.mark.parametrize(
    ("policy", "column"),
    [
        (Policy.TOKEN, "++-----------?-???"),
        (Policy.RETRYABLE, "+++--+-++----?-???"),
        (Policy.AT_MOST_ONCE, "+++--+?++--???????"),
    ],
)
def test_status_maps_to_the_effect_of_the_library(policy: Policy, column: str) -> None:
    assert "".join(SIGNS[effect_of_status(policy, status)] for status in STATUSES) == column


class PaymentTimeoutError(Exception):
    """A timeout of a library, which is no `TimeoutError`."""


class Late(PaymentTimeoutError):
    """A timeout whose own name does not say so."""


class LateAndNotApplied(NotApplied, PaymentTimeoutError):
    """A timeout before the effect, as the application knows."""


def raised(
    error: Exception,
    cause: Exception | None = None,
    from_: Exception | None = None,
    context: Exception | None = None,
) -> Exception:
    """Returns an exception that was raised from another one, which may have been raised from a third."""
    error.__cause__, error.__context__ = cause, context
    if cause is not None and from_ is not None:
        cause.__cause__ = from_
    return error


@pytest.mark.parametrize(
    ("policy", "error", "effect"),
    [
        (Policy.AT_MOST_ONCE, RuntimeError(), Effect.UNKNOWN),
        (Policy.RETRYABLE, RuntimeError(), Effect.NOT_APPLIED),
        (Policy.TOKEN, RuntimeError(), Effect.NOT_APPLIED),
        (Policy.AT_MOST_ONCE, NotApplied(), Effect.NOT_APPLIED),
        (Policy.RETRYABLE, Unknown(), Effect.UNKNOWN),
        (Policy.RETRYABLE, KeyboardInterrupt(), Effect.UNKNOWN),
        (Policy.RETRYABLE, GeneratorExit(), Effect.UNKNOWN),
        (Policy.TOKEN, SystemExit(), Effect.UNKNOWN),
        # The call that timed out may have taken effect.
        (Policy.RETRYABLE, TimeoutError(), Effect.UNKNOWN),
        (Policy.TOKEN, TimeoutError(), Effect.UNKNOWN),
        (Policy.TOKEN, ExceptionGroup("", [RuntimeError(), ExceptionGroup("", [TimeoutError()])]), Effect.UNKNOWN),
        (Policy.TOKEN, BaseExceptionGroup("", [KeyboardInterrupt()]), Effect.UNKNOWN),
        (Policy.TOKEN, ExceptionGroup("", [RuntimeError()]), Effect.NOT_APPLIED),
        # Libraries have timeouts of their own.
        (Policy.RETRYABLE, httpx.ReadTimeout(""), Effect.UNKNOWN),
        (Policy.TOKEN, httpx.ReadTimeout(""), Effect.UNKNOWN),
        (Policy.TOKEN, PaymentTimeoutError(), Effect.UNKNOWN),
        (Policy.RETRYABLE, Late(), Effect.UNKNOWN),
        (Policy.TOKEN, subprocess.TimeoutExpired("pay", 1), Effect.UNKNOWN),
        (Policy.TOKEN, ExceptionGroup("", [RuntimeError(), Late()]), Effect.UNKNOWN),
        (Policy.TOKEN, raised(RuntimeError(), cause=KeyError(), from_=Late()), Effect.UNKNOWN),
        (Policy.RETRYABLE, raised(RuntimeError(), cause=httpx.ConnectTimeout("")), Effect.UNKNOWN),
        (Policy.RETRYABLE, raised(NotApplied(), cause=Late()), Effect.NOT_APPLIED),
        (Policy.AT_MOST_ONCE, LateAndNotApplied(), Effect.NOT_APPLIED),
        (Policy.TOKEN, raised(Unknown(), cause=NotApplied()), Effect.UNKNOWN),
        # What was only handled meanwhile is no cause.
        (Policy.TOKEN, raised(RuntimeError(), context=Late()), Effect.NOT_APPLIED),
        # A response of Flask, whose status counts.
        (Policy.RETRYABLE, RequestTimeout(), Effect.NOT_APPLIED),
        (Policy.TOKEN, raised(RequestTimeout(), cause=Late()), Effect.UNKNOWN),
        (Policy.TOKEN, raised(circular := RuntimeError(), cause=circular), Effect.NOT_APPLIED),
    ],
)
def test_exception_counts_as_500_unless_its_type_says_more(policy: Policy, error: BaseException, effect: Effect) -> None:
    assert effect_of_exception(policy, error) is effect


def test_statement_decides_before_exception_before_status() -> None:
    said = Statement()
    assert judge(Policy.AT_MOST_ONCE, said, 201) is Effect.APPLIED
    assert judge(Policy.AT_MOST_ONCE, said, None) is Effect.UNKNOWN, "no response at all"
    said.exception = RuntimeError()
    assert judge(Policy.AT_MOST_ONCE, said, 422) is Effect.APPLIED, "the framework has turned it into a response"
    said.exception = NotApplied()
    assert judge(Policy.AT_MOST_ONCE, said, 500) is Effect.NOT_APPLIED
    said.exception = TimeoutError()
    assert judge(Policy.TOKEN, said, 500) is Effect.UNKNOWN
    said.effect = Effect.APPLIED
    assert judge(Policy.AT_MOST_ONCE, said, 500) is Effect.APPLIED


def test_descriptive_and_named_headers_are_stored_cookies_never() -> None:
    headers = [("Content-Type", "text/plain"), ("X-Cost", "1"), ("x-other", "2"), ("Set-Cookie", "s"), ("Date", "now")]
    assert kept_headers(headers, {"x-cost", "set-cookie", "date"}) == (("content-type", "text/plain"), ("x-cost", "1"))
    every = "Cache-Control Content-Disposition Content-Encoding Content-Language Content-Type ETag Link Location Vary".split()
    assert [name for name, _ in kept_headers((name, "") for name in every)] == [name.lower() for name in every]


@pytest.mark.parametrize(
    ("effect", "settled", "value"),
    [
        (Effect.APPLIED, Settled.RECORDED, "executed"),
        (Effect.APPLIED, Settled.LOST, "unprotected"),
        (Effect.APPLIED, Settled.PENDING, "unprotected"),
        (Effect.NOT_APPLIED, Settled.RECORDED, "not_applied"),
        (Effect.NOT_APPLIED, Settled.PENDING, "not_released"),
        (Effect.NOT_APPLIED, Settled.LOST, "unprotected"),
        (Effect.UNKNOWN, None, "unknown"),
    ],
)
def test_outcome_shows_whether_the_result_was_recorded(effect: Effect, settled: Settled | None, value: str) -> None:
    assert outcome(effect, settled) == value


def test_fingerprint_covers_every_part_and_no_boundary() -> None:
    base = ("POST", "/orders", "a=1", "application/json; charset=utf-8", b'{"a":1}')
    others = [
        ("PUT", *base[1:]),
        ("POST", "/order", *base[2:]),
        ("POST", "/orders", "a=2", *base[3:]),
        (*base[:3], "text/json", base[4]),
        (*base[:4], b'{"a":2}'),
        # The parts are not merely joined.
        ("POST", "/ordersa", "=1", *base[3:]),
    ]
    assert len({fingerprint(*parts) for parts in [base, *others]}) == 7
    assert fingerprint(*base[:3], "application/JSON", base[4]) == fingerprint(*base)

    def multipart(mark: str, value: str = "1") -> str:
        body = f'--{mark}\r\ncontent-disposition: form-data; name="a"\r\n\r\n{value}\r\n--{mark}--\r\n'
        return fingerprint("POST", "/orders", "", f'multipart/form-data; boundary="{mark}"', body.encode())

    assert multipart("one") == multipart("two") != multipart("one", "2")


# As in `client-sdk/node/test/tables.test.mjs`.
@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("abc", "abc"),
        (" abc ", "abc"),
        ('"abc"', "abc"),
        ('"a,b;c"', "a,b;c"),
        (r'"a\"b\\"', 'a"b\\'),
        ("x" * 255, "x" * 255),
        ('"k-1"', "k-1"),
        ("!" * 255, "!" * 255),
    ],
)
def test_key_is_read_bare_or_quoted(header: str, key: str) -> None:
    assert parse_key(header) == key_of(header) == key


@pytest.mark.parametrize(
    "header",
    ["", '""', "a b", "a,b", "a;b", 'a"b', '"abc', '"a"b"', r'"a\b"', "schlüssel", "x" * 256, '"a","b"', '"a"\n', "\xa0a"],
)
def test_key_that_other_servers_reject_is_malformed(header: str) -> None:
    assert parse_key(header) is None


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (None, "key_missing"),
        ("", "key_missing"),
        ('""', "key_malformed"),
        ("a b", "key_malformed"),
        ("first, second", "key_malformed"),
        ("ü", "key_malformed"),
        ("k" * 256, "key_malformed"),
    ],
)
def test_malformed_key_is_rejected(header: str | None, code: str) -> None:
    with pytest.raises(Rejected) as rejected:
        key_of(header)
    assert rejected.value.code == code


def test_token_is_found_in_forms_only() -> None:
    part = '--b\r\ncontent-disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    body = part.format("_oncewards", "no") + part.format("_onceward", "yes") + part.format("a", "_onceward") + "--b--\r\n"
    assert token_field("multipart/form-data; boundary=b", body.encode()) == "yes"
    assert token_field("application/x-www-form-urlencoded", b"a=1&_onceward=y%2Bs&_onceward=no") == "y+s"
    assert token_field("application/json", b'{"_onceward":"no"}') is None
    assert token_field("multipart/form-data", body.encode()) is None
    assert token_field("multipart/form-data; boundary=b", b"\x00\xff--b\r\n_onceward") is None


def test_path_of_a_rule_matches_whole_segments() -> None:
    assert pattern("/orders/{id}/items").fullmatch("/orders/7/items")
    for other in ["/orders/7/items/8", "/orders//items", "/orders/7/8/items", "/ordersX7/items"]:
        assert not pattern("/orders/{id}/items").fullmatch(other)
    assert not pattern("/a.b").fullmatch("/aXb")


def test_middleware_without_subject_says_what_to_pass() -> None:
    with pytest.raises(TypeError, match=r"subject is required: pass a function .*subject=lambda request"):
        Protection(None, None, {})


@pytest.mark.parametrize("subject", [None, ""])
def test_request_without_subject_is_unauthorized(subject: str | None) -> None:
    protection = Protection(Onceward("http://127.0.0.1:9"), lambda request: subject, {})
    request = Request("POST", "/orders", "", {"idempotency-key": "k"}, None)
    with pytest.raises(Rejected, match="unauthorized"):
        protection.intent(request, protection.subject(request))  # type: ignore[operator]


def test_subject_of_another_type_is_an_error() -> None:
    class AnonymousUser:
        def __str__(self) -> str:
            return "AnonymousUser"

    async def subject() -> str:
        return "alice"

    protection = Protection(Onceward("http://127.0.0.1:9"), subject, {})
    request, coroutine = Request("POST", "/orders", "", {"idempotency-key": "k"}, None), subject()
    for value in [AnonymousUser(), coroutine, True, b"alice", ["alice"]]:
        with pytest.raises(TypeError, match="subject has to be a str, an int or a UUID, not"):
            protection.intent(request, value)
    coroutine.close()
    assert protection.intent(request, 7).subject == "7"


def test_only_unsafe_methods_of_named_paths_are_covered() -> None:
    onceward = Onceward("http://127.0.0.1:9")
    some, every = Protection(onceward, "s", {"path": ["/a", "/b/{id}"]}), Protection(onceward, "s", {})
    covered = [some.covers(method, path) for method in ("POST", "DELETE", "GET", "HEAD") for path in ("/a", "/b/1", "/c")]
    assert covered == [True, True, False] * 2 + [False] * 6
    assert every.covers("PATCH", "/c") and not every.covers("OPTIONS", "/c")


def test_durations_are_read_and_written() -> None:
    assert [seconds(each) for each in ["333ms", "5s", "2m", "1h", "1d"]] == [0.333, 5, 120, 3600, 86400]
    assert text(1.5) == "1500ms"


def test_claim_is_retried_for_as_long_as_it_may_exist() -> None:
    assert patience(Answer(), 15) == 15, "the answer was lost"
    assert patience(Answer(503), 15) == 3
    assert patience(Answer(was_sent=False), 15) == 1, "nothing was sent"
    assert patience(Answer(503), 2) == 2


@pytest.mark.parametrize(
    ("answer", "is_verdict"),
    [
        (Answer(204), True),
        (Answer(200, b'{"outcome":"run"}'), True),
        (Answer(409, b'{"code":"claim_lost","retry":"no"}'), True),
        # Its API key is wrong, so the service has not looked at the call.
        (Answer(401, b'{"code":"unauthorized","retry":"no"}'), False),
        (Answer(503, b'{"code":"store_unavailable","retry":"same"}'), False),
        (Answer(), False),
        (Answer(200, b"<html>"), False),
        (Answer(302), False),
        (Answer(404, b"<html>"), False),
        (Answer(409, b"{}"), False),
        (Answer(409, b"[]"), False),
        (Answer(429, b'{"code":429,"retry":"no"}'), False),
    ],
)
def test_answer_of_a_gateway_is_no_verdict(answer: Answer, is_verdict: bool) -> None:
    assert answer.is_verdict is is_verdict


@pytest.mark.parametrize("status", [302, 404, 409, 429])
def test_answer_of_a_gateway_is_logged(status: int, caplog: pytest.LogCaptureFixture) -> None:
    assert Answer(status, b"<html>").problem().code == "store_unavailable"
    assert f"answers with status {status}, but not as Onceward does; check ONCEWARD_URL" in caplog.text


@pytest.mark.parametrize("status", [0, 302, 401, 404, 500, 503])
def test_fault_of_the_service_becomes_store_unavailable(status: int) -> None:
    problem = Answer(status, b"<html>").problem()
    assert (problem.status, problem.code, problem.retry_after) == (503, "store_unavailable", "1")


def test_success_that_is_not_json_runs_nothing() -> None:
    for body in [b"", b"{", b"[]", b"<html>"]:
        with pytest.raises(Rejected, match="store_unavailable"):
            Answer(200, body).json()
    with pytest.raises(Rejected, match="store_unavailable"):
        Answer(200, b'{"status":"ok"}').json("outcome")


@pytest.mark.parametrize("status", [204, 304])
def test_reply_without_a_body_by_http_is_stored(status: int) -> None:
    protection = Protection(Onceward("http://127.0.0.1:9"), "s", {})
    for body in [None, b"", b"not sent"]:
        assert protection.reply(status, [], body) == Reply(status)
    assert "content-length" not in dict(replay_headers(Reply(status))) and protection.reply(200, [], None) is None


def test_reply_survives_the_wire() -> None:
    reply = Reply(201, (("etag", "é"),), bytes(range(256)))
    assert Reply.from_wire(reply.to_wire()) == reply
    assert "problem" in Problem.create("key_missing").content_type

"""The client over a network that loses answers, and at a service that fails."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from harness.claims import Open, code_of, named
from harness.process import API_KEY, until
from harness.raw import Raw
from harness.service import Service

from onceward import Onceward, Rejected, Reply, Settled, async_transport, orphan
from onceward.answer import Answer
from onceward.deadline import LIMIT
from onceward.intent import Intent
from onceward.retries import Retries


@pytest.mark.parametrize("transport", ["blocking", "httpx", "threads"])
@pytest.mark.parametrize("fault", ["lose", "drop", 503, 302, 404, 429, (200, b"<html>")])
def test_claim_without_answer_is_repeated_with_its_attempt(
    network: Open, monkeypatch: pytest.MonkeyPatch, fault: Any, transport: str
) -> None:
    if transport == "threads":
        monkeypatch.setattr(async_transport, "httpx", None)
    faulty = network(lambda path, number: fault if path == "/claim" and number <= 2 else "pass")
    client, claim, runs = Onceward(faulty.url, API_KEY), named(), []

    async def arun() -> None:
        async with client.claim(**claim):
            runs.append(1)

    if transport == "blocking":
        with client.claim(**claim):
            runs.append(1)
    else:
        asyncio.run(arun())
    bodies = faulty.bodies("/claim")
    assert (len(runs), len(bodies), len(set(bodies))) == (1, 3, 1)
    assert code_of(client, claim) == "reply_not_kept"
    assert json.loads(faulty.bodies("/claim")[-1])["attempt"] != json.loads(bodies[0])["attempt"]


def test_unreachable_service_runs_nothing_soon(network: Open) -> None:
    gone = network()
    gone.close()
    began = time.monotonic()
    assert code_of(Onceward(gone.url, API_KEY), named()) == "store_unavailable"
    assert time.monotonic() - began < 2


def test_silent_service_runs_nothing_within_the_lease(network: Open) -> None:
    silent = network(lambda path, number: 2.0)
    began = time.monotonic()
    assert code_of(Onceward(silent.url, API_KEY), named(lease=0.6)) == "store_unavailable"
    assert time.monotonic() - began < 1.5


@pytest.mark.parametrize("transport", ["blocking", "httpx", "threads"])
@pytest.mark.parametrize(("fault", "lease"), [("lose", 0.6), ("replace", 9.0)])
def test_claim_that_is_given_up_is_released(
    network: Open, onceward: Onceward, monkeypatch: pytest.MonkeyPatch, transport: str, fault: str, lease: float
) -> None:
    if transport == "threads":
        monkeypatch.setattr(async_transport, "httpx", None)
    claim = named(lease=lease)
    # The service grants the claim.
    faulty = network(lambda path, number: fault if path == "/claim" else "pass")

    async def aclaim() -> None:
        async with Onceward(faulty.url, API_KEY).claim(**claim):
            pytest.fail("the claim was given up")

    if transport == "blocking":
        assert code_of(Onceward(faulty.url, API_KEY), claim) == "store_unavailable"
    else:
        with pytest.raises(Rejected, match="store_unavailable"):
            asyncio.run(aclaim())
    faulty.plan = lambda path, number: "pass"
    until("the key is free", lambda: code_of(onceward, claim) != "in_progress", 5)
    assert code_of(onceward, claim) == "reply_not_kept", "it ran now"
    assert len({json.loads(body)["attempt"] for body in faulty.bodies("/claim")}) == 1


#: Answers that say nothing about an earlier try of the claim: a rejected API key, a body that arrived late, the limit of a gateway, and
#: its JSON.
SILENT = [
    401,
    (400, b'{"code": "bad_request", "retry": "no"}'),
    (429, b'{"code": "rate_limited", "retry": "same"}'),
    (200, b'{"message": "welcome"}'),
]


@pytest.mark.parametrize("silent", SILENT)
def test_claim_whose_answer_was_lost_is_released_after_a_final_answer(network: Open, onceward: Onceward, silent: Any) -> None:
    # The service grants the claim on the first try. The third is that of the background.
    plan = {1: "lose", 2: silent, 3: silent}
    faulty = network(lambda path, number: plan.get(number, "pass") if path == "/claim" else "pass")
    claim = named(lease=9.0)
    assert code_of(Onceward(faulty.url, API_KEY), claim) != "run"
    until("the key is free", lambda: code_of(onceward, claim) != "in_progress", 5)
    assert code_of(onceward, claim) == "reply_not_kept", "it ran now"
    bodies = [json.loads(body) for body in faulty.bodies("/claim")]
    assert len({body["attempt"] for body in bodies}) == 1 and len(bodies) == 4


@pytest.mark.parametrize("silent", SILENT)
def test_release_in_the_background_is_repeated_until_it_is_recorded(network: Open, onceward: Onceward, silent: Any) -> None:
    plan = {"/claim": {1: "lose", 2: 401}, "/claim/release": {1: silent}}
    faulty, claim = network(lambda path, number: plan[path].get(number, "pass")), named(lease=9.0)
    assert code_of(Onceward(faulty.url, API_KEY), claim) == "store_unavailable"
    until("the key is free", lambda: code_of(onceward, claim) != "in_progress", 5)
    assert code_of(onceward, claim) == "reply_not_kept", "it ran now"


def test_claim_that_was_rejected_is_not_open() -> None:
    problem = b'{"code": "bad_request", "retry": "no"}'
    for answer, is_open in [(Answer(401), False), (Answer(400, problem), False), (Answer(409, problem), False), (Answer(200, b"{}"), True)]:
        retries = Retries(1.0)
        assert retries.delay_after(answer) is None and retries.is_open == is_open


def test_claim_that_is_never_released_is_logged(
    network: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(orphan, "QUIET", 0.0)
    silent = network(lambda path, number: "lose")
    assert code_of(Onceward(silent.url, API_KEY), named(lease=0.3)) == "store_unavailable"
    until("the operator learns it", lambda: "could not release a claim of a request that was rejected" in caplog.text, 5)


def test_service_that_hangs_makes_few_threads(network: Open) -> None:
    stuck = network(lambda path, number: 2.0)
    client = Onceward(stuck.url, API_KEY)
    with ThreadPoolExecutor(40) as pool:
        codes = list(pool.map(lambda _: code_of(client, named(lease=0.6)), range(40)))
    assert codes == ["store_unavailable"] * 40
    releasing = [each for each in threading.enumerate() if getattr(each, "_target", None) == orphan.orphans.get()._run]
    assert 1 <= len(releasing) <= orphan.THREADS


class StuckOrphan(orphan.Orphan):
    """An orphan whose try ends as it is told."""

    def __init__(self, end: Callable[[], bool]) -> None:
        self._end, self.tries = end, 0

    def is_over(self) -> bool:
        self.tries += 1
        return self._end()


def test_orphans_that_wait_are_limited_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(orphan, "LIMIT", 2)
    orphans, go = orphan.Orphans(), threading.Event()
    busy = [StuckOrphan(go.wait) for _ in range(orphan.THREADS)]
    for each in busy:
        orphans.add(each)
        until("a thread tries it", lambda: each.tries == 1)  # noqa: B023
    later = [StuckOrphan(go.wait) for _ in range(5)]
    for each in later:
        orphans.add(each)
    assert caplog.text.count("because 2 others wait for that") == 1
    go.set()
    until("all threads have ended", lambda: orphans._threads == 0)
    assert [each.tries for each in later] == [1, 1, 0, 0, 0], "the newest are dropped"


def test_error_of_an_orphan_costs_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> bool:
        raise KeyError("canary")

    orphans, last = orphan.Orphans(), StuckOrphan(lambda: True)
    for _ in range(2 * orphan.THREADS):
        orphans.add(StuckOrphan(fail))
    orphans.add(last)
    until("all threads have ended", lambda: orphans._threads == 0)
    assert last.tries == 1 and caplog.text.count("KeyError('canary')") == 1


@pytest.mark.parametrize("result", ["release", "complete"])
def test_renewal_that_arrives_after_the_release_blocks_no_key(network: Open, onceward: Onceward, result: str) -> None:
    faulty = network(lambda path, number: "late" if path == "/claim/renew" else "pass")
    # The renewal arrives half a second late at most, and the claim is released again after the lease.
    claim = named(lease=4.0)
    with Onceward(faulty.url, API_KEY).claim(**claim) as claimed:
        until("a renewal is lost", lambda: claimed._has_lost_renewal)
        assert (claimed.release() if result == "release" else claimed.complete()) is Settled.RECORDED
    until("the renewal has arrived", lambda: len(faulty.late_answers) == len(faulty.bodies("/claim/renew")))
    if result == "release":
        assert 204 in faulty.late_answers and code_of(onceward, claim) == "in_progress", "the renewal has claimed the key again"
        until("the key is free", lambda: code_of(onceward, claim) not in ("in_progress", "outcome_unknown"))
    assert code_of(onceward, claim) == "reply_not_kept"
    assert len(faulty.bodies(f"/claim/{result}")) == (2 if result == "release" else 1)


@pytest.mark.parametrize("transport", ["blocking", "httpx", "threads"])
@pytest.mark.parametrize("is_idle", [False, True])
def test_response_that_drips_is_given_up_in_time(
    network: Open, monkeypatch: pytest.MonkeyPatch, transport: str, is_idle: bool
) -> None:
    if transport == "threads":
        monkeypatch.setattr(async_transport, "httpx", None)
    drips = network(lambda path, number: "drip" if path == "/claim/renew" else "pass")
    client = Onceward(drips.url, API_KEY)

    async def apost() -> tuple[Answer, float]:
        if is_idle:
            await client.aissue()
        began = time.monotonic()
        return await client._async_transport.post("/claim/renew", b"{}", 0.3), time.monotonic() - began

    def post() -> tuple[Answer, float]:
        if is_idle:
            client.issue()
        began = time.monotonic()
        return client._transport.post("/claim/renew", b"{}", 0.3), time.monotonic() - began

    answer, took = post() if transport == "blocking" else asyncio.run(apost())
    assert (answer.status, answer.was_sent, took < 1.0) == (0, True, True), took
    assert isinstance(answer.error, TimeoutError)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_response_that_is_too_large_or_cut_off_is_no_answer(is_async: bool, is_chunked: bool) -> None:
    size = (b"%x" if is_chunked else b"%d") % (LIMIT * 1000)
    head = b"HTTP/1.1 200 OK\r\n" + (b"transfer-encoding: chunked\r\n\r\n%s\r\n" if is_chunked else b"content-length: %s\r\n\r\n") % size
    for body in [b"x" * 100, b"x" * (2 * LIMIT)]:
        with Raw(head + body) as raw:
            client = Onceward(raw.url)
            call = client._async_transport.post("/claim", b"", 5.0) if is_async else None
            answer = asyncio.run(call) if call else client._transport.post("/claim", b"", 5.0)
        assert (answer.status, answer.was_sent) == (0, True) and answer.error is not None


@pytest.mark.parametrize("transport", ["blocking", "httpx", "threads"])
def test_unreachable_service_is_logged_once_with_its_cause(
    refusing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, transport: str
) -> None:
    if transport == "threads":
        monkeypatch.setattr(async_transport, "httpx", None)
    client = Onceward(refusing.replace("://", "://user:canary@") + "/canary", "a-key-canary")

    async def aclaim() -> None:
        async with client.claim(**named(lease=0.6)):
            pytest.fail("it ran")

    for _ in range(2):
        with pytest.raises(Rejected, match="store_unavailable") as rejected:
            if transport == "blocking":
                with client.claim(**named(lease=0.6)):
                    pytest.fail("it ran")
            asyncio.run(aclaim())
    cause = httpx.ConnectError if transport == "httpx" else ConnectionRefusedError
    assert isinstance(rejected.value.__cause__, cause)
    # A claim of another test may fail in the background meanwhile.
    lines = [record.getMessage() for record in caplog.records if refusing.removeprefix("http://") in record.getMessage()]
    assert len(lines) == 1 and f"a call of Onceward at {refusing} failed ({cause.__name__}: " in lines[0], lines
    assert "canary" not in caplog.text


def test_gateway_that_fails_is_logged(network: Open, caplog: pytest.LogCaptureFixture) -> None:
    faulty = network(lambda path, number: (502, b"<html>"))
    assert code_of(Onceward(faulty.url, API_KEY), named(lease=0.3)) == "store_unavailable"
    assert caplog.text.count("failed (status 502)") == 1


@pytest.mark.parametrize(
    ("path", "settings", "code"),
    [("/onceward", {}, "not_found"), ("", {"lease": 7200.0}, "bad_request"), ("", {"wait": 60.0}, "bad_request")],
)
def test_mistake_in_the_settings_is_logged_and_not_blamed_on_the_client(
    service: Service, caplog: pytest.LogCaptureFixture, path: str, settings: dict[str, Any], code: str
) -> None:
    client = Onceward(service.url + path, API_KEY)
    assert code_of(client, named(**settings)) == "store_unavailable"
    lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(lines) == 1 and f"rejects a call of this backend as {code}: " in lines[0]
    assert all(name in lines[0] for name in settings)


def test_look_up_tells_no_record_from_a_wrong_url(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    intent = Intent(action="order", subject="alice", key=uuid.uuid4().hex)
    for path, code, errors in [("", "not_found", 0), ("/onceward", "store_unavailable", 1)]:
        client = Onceward(service.url + path, API_KEY)
        for look in [lambda: client.look_up(intent), lambda: asyncio.run(client.alook_up(intent))]:
            caplog.clear()
            with pytest.raises(Rejected, match=code):
                look()
            assert sum(record.levelname == "ERROR" for record in caplog.records) == errors


def test_cause_of_a_rejection_is_no_timeout_of_the_handler(network: Open, onceward: Onceward) -> None:
    silent = network(lambda path, number: 2.0)
    claim = named(at_most_once=False, lease=30.0)
    with pytest.raises(Rejected) as rejected, onceward.claim(**claim):
        Onceward(silent.url, API_KEY, timeout=0.1).issue()
    assert isinstance(rejected.value.__cause__, TimeoutError)
    assert code_of(onceward, claim) == "run"


def test_wrong_api_key_is_logged_and_runs_nothing(network: Open, caplog: pytest.LogCaptureFixture) -> None:
    through = network()
    assert code_of(Onceward(through.url, "a-wrong-key-canary"), named()) == "store_unavailable"
    assert len(through.calls) == 1, "a wrong key does not become right"
    assert "ONCEWARD_API_KEY is missing or wrong" in caplog.text and "canary" not in caplog.text


@pytest.mark.parametrize("is_async", [False, True])
def test_lost_completion_is_repeated_in_the_background(network: Open, onceward: Onceward, is_async: bool) -> None:
    faulty = network(lambda path, number: "drop" if path == "/claim/complete" else "pass")
    client, claim = Onceward(faulty.url, API_KEY), named(lease=0.5)

    async def arun() -> None:
        async with client.claim(**claim) as claimed:
            await claimed.acomplete(Reply.json("done"))

    if is_async:
        asyncio.run(arun())
    else:
        with client.claim(**claim) as claimed:
            claimed.complete(Reply.json("done"))
    end = time.monotonic() + 0.8
    while time.monotonic() < end:
        assert code_of(onceward, claim) == "in_progress", "renewed for longer than its lease"
        time.sleep(0.03)
    faulty.plan = lambda path, number: "pass"
    until("the reply is stored", lambda: code_of(onceward, claim) == "replayed")


@pytest.mark.parametrize("is_async", [False, True])
def test_result_whose_answer_is_lost_is_repeated_at_once(network: Open, is_async: bool) -> None:
    lossy = network(lambda path, number: "lose" if (path, number) == ("/claim/complete", 1) else "pass")
    client = Onceward(lossy.url, API_KEY)

    async def arun() -> Settled:
        async with client.claim(**named()) as claimed:
            return await claimed.acomplete()

    if is_async:
        assert asyncio.run(arun()) is Settled.RECORDED
    else:
        with client.claim(**named()) as claimed:
            assert claimed.complete() is Settled.RECORDED
    assert len(lossy.bodies("/claim/complete")) == 2


def test_reply_that_is_not_accepted_is_left_out(network: Open, onceward: Onceward) -> None:
    claim, large = named(), named()
    with onceward.claim(**claim) as claimed:
        claimed.complete(Reply(201, (("bad header", "\n"),), b""))
    assert code_of(onceward, claim) in ("reply_not_kept", "replayed")
    with onceward.claim(**large) as claimed:
        claimed.complete(Reply(201, (), b"." * (1024 * 1024 + 1)))
    assert code_of(onceward, large) == "reply_not_kept"


#: Answers that are not the service's, although some look like a verdict.
GATEWAY = [302, (404, b"<html>"), 409, (429, b'{"code":429,"retry":1}'), (200, b"<html>"), (200, b'{"status":"ok"}'), 201, (403, b"")]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("result", ["complete", "release"])
def test_answers_of_a_gateway_are_not_the_verdict(network: Open, onceward: Onceward, result: str, is_async: bool) -> None:
    # A release is not renewed, so it is repeated for one lease only.
    answers = GATEWAY if result == "complete" else GATEWAY[:4]
    faulty = network(lambda path, number: answers[number - 1] if path.endswith(result) and number <= len(answers) else "pass")
    client, claim = Onceward(faulty.url, API_KEY), named(lease=1.2, at_most_once=False)

    async def arun() -> Settled:
        async with client.claim(**claim) as claimed:
            return await (claimed.acomplete(Reply.json(1)) if result == "complete" else claimed.arelease())

    if is_async:
        settled = asyncio.run(arun())
    else:
        with client.claim(**claim) as claimed:
            settled = claimed.complete(Reply.json(1)) if result == "complete" else claimed.release()
    assert settled is Settled.PENDING
    until("the result is recorded", lambda: len(faulty.bodies(f"/claim/{result}")) > len(answers))
    until("the key is settled", lambda: code_of(onceward, claim) != "in_progress", 0.5)
    assert code_of(onceward, claim) == ("replayed" if result == "complete" else "reply_not_kept")


def test_renewal_that_a_gateway_rejects_loses_no_claim(network: Open, onceward: Onceward) -> None:
    faulty = network(lambda path, number: (409, b"<html>") if path == "/claim/renew" and number <= 3 else "pass")
    claim = named(lease=1.2, at_most_once=False)
    with Onceward(faulty.url, API_KEY).claim(**claim) as claimed:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            assert code_of(onceward, claim) == "in_progress"
            time.sleep(0.03)
        assert claimed.complete() is Settled.RECORDED and len(faulty.bodies("/claim/renew")) > 3


@pytest.mark.parametrize("call", ["/claim/renew", "/claim/complete"])
def test_claim_that_the_service_calls_lost_is_given_up(network: Open, call: str) -> None:
    lost = (409, b'{"code":"claim_lost","retry":"no"}')
    faulty = network(lambda path, number: lost if path == call else "pass")
    with Onceward(faulty.url, API_KEY).claim(**named(lease=0.6)) as claimed:
        time.sleep(0.5)
        assert claimed.complete() is (Settled.LOST if call == "/claim/complete" else Settled.RECORDED)
    assert len(faulty.bodies(call)) == 1, "it is not repeated"


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        ([413], "reply_not_kept"),
        (["drop", (413, b'{"code":"body_too_large","retry":"no"}')], "reply_not_kept"),
        (["drop", "drop", 413], "reply_not_kept"),
        ([(400, b'{"code":"bad_request","retry":"no"}')], "reply_not_kept"),
        # A gateway that rejects another part of the request.
        ([400], "replayed"),
    ],
)
def test_reply_is_left_out_if_it_is_refused(network: Open, onceward: Onceward, faults: list[Any], code: str) -> None:
    faulty = network(lambda path, number: faults[number - 1] if path == "/claim/complete" and number <= len(faults) else "pass")
    claim = named(lease=0.9, at_most_once=False)
    with Onceward(faulty.url, API_KEY).claim(**claim) as claimed:
        assert claimed.complete(Reply.json(1)) is not Settled.LOST
    until("the completion is recorded", lambda: code_of(onceward, claim) != "in_progress")
    assert code_of(onceward, claim) == code


def test_stuck_renewal_loses_no_claim(network: Open, onceward: Onceward) -> None:
    faulty = network(lambda path, number: 3.0 if (path, number) == ("/claim/renew", 1) else "pass")
    claim = named(lease=0.9, at_most_once=False)
    with Onceward(faulty.url, API_KEY).claim(**claim):
        end = time.monotonic() + 2
        while time.monotonic() < end:
            assert code_of(onceward, claim) == "in_progress"
            time.sleep(0.03)
    assert code_of(onceward, claim) == "reply_not_kept"

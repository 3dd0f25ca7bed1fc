"""Tokens that the client redeems."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from harness.claims import Open
from harness.process import API_KEY

from onceward import Onceward, Rejected


def test_token_is_redeemed_once_and_can_be_released(network: Open) -> None:
    lossy = network(lambda path, number: "lose" if number == 1 and path.startswith("/token/") else "pass")
    client = Onceward(lossy.url, API_KEY)
    token = client.issue(action="order", subject="alice", ttl=60).token
    with pytest.raises(Rejected, match="token_invalid"):
        client.redeem(token, action="order", subject="bob")
    redeemed = client.redeem(token, action="order", subject="alice")
    with pytest.raises(Rejected, match="token_used"):
        client.redeem(token, action="order", subject="alice")
    assert redeemed.release()
    assert asyncio.run(client.aredeem(token, action="order", subject="alice")).run_id != redeemed.run_id
    assert token not in repr(redeemed) + repr(client.issue())


#: The answers to the two tries of a redemption, and what the application receives.
REDEMPTIONS: list[tuple[list[Any], str]] = [
    (["lose", "lose"], "redeem_unknown"),
    (["drop", "drop"], "redeem_unknown"),
    (["lose", 401], "redeem_unknown"),
    ([(502, b"<html>"), (502, b"<html>")], "redeem_unknown"),
    ([(200, b'{"status":"ok"}')], "redeem_unknown"),
    ([(503, b'{"code":"redeem_unknown","retry":"new_token"}')] * 2, "redeem_unknown"),
    (["lose", (503, b'{"code":"store_unavailable","retry":"same"}')], "redeem_unknown"),
    (["lose", (429, b'{"code":"rate_limited","retry":"same"}')], "redeem_unknown"),
    # The service says that it has not executed the call.
    ([(503, b'{"code":"store_unavailable","retry":"same"}')] * 2, "store_unavailable"),
    ([401, 401], "store_unavailable"),
    (["lose", (409, b'{"code":"token_used","retry":"no"}')], "token_used"),
]


@pytest.mark.parametrize(("faults", "code"), REDEMPTIONS)
@pytest.mark.parametrize("is_async", [False, True])
def test_redemption_without_answer_is_unknown(
    network: Open, onceward: Onceward, faults: list[Any], code: str, is_async: bool
) -> None:
    faulty = network(lambda path, number: faults[number - 1] if path == "/token/redeem" and number <= len(faults) else "pass")
    client, token = Onceward(faulty.url, API_KEY), onceward.issue().token
    with pytest.raises(Rejected) as rejected:
        asyncio.run(client.aredeem(token, subject="alice")) if is_async else client.redeem(token, subject="alice")
    assert rejected.value.code == code
    if code == "redeem_unknown":
        assert (rejected.value.problem.status, rejected.value.problem.retry) == (503, "new_token")
    assert len(faulty.bodies("/token/redeem")) == len(faults)


def test_redemption_on_an_idle_connection_may_have_used_the_token(network: Open) -> None:
    def lose_and_close(path: str, _number: int) -> str:
        if path == "/token/redeem":
            faulty.close()
        return "lose" if path == "/token/redeem" else "pass"

    faulty = network(lose_and_close)
    client = Onceward(faulty.url, API_KEY)
    token = client.issue().token
    with pytest.raises(Rejected, match="redeem_unknown"):
        client.redeem(token, subject="alice")


def test_redemption_at_an_unreachable_service_may_be_repeated(refusing: str, onceward: Onceward) -> None:
    with pytest.raises(Rejected) as rejected:
        Onceward(refusing, API_KEY).redeem(onceward.issue().token, subject="alice")
    assert (rejected.value.code, rejected.value.problem.retry) == ("store_unavailable", "same")


def test_redemption_without_subject_says_what_to_pass(onceward: Onceward) -> None:
    redeem: Any = onceward.redeem
    token = onceward.issue(subject="7").token
    with pytest.raises(TypeError, match="subject"):
        redeem(token)
    with pytest.raises(ValueError, match="subject is required: pass the id of the client"):
        redeem(token, subject="")
    with pytest.raises(TypeError, match="subject has to be a str, an int or a UUID"):
        asyncio.run(onceward.aredeem(token, subject=None))  # type: ignore[arg-type]
    assert redeem(token, subject=7).run_id

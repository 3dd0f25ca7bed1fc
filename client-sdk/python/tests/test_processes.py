"""Forks, the end of the interpreter, cancelled requests, and the package as a wheel."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.network import Network
from harness.process import API_KEY, PACKAGE, Program, until
from harness.service import Service, binary

from onceward import Onceward, Rejected
from onceward.asgi import Once
from onceward.keeper import keeper

Open = Callable[..., Network]


def claim_of(key: str, **more: Any) -> dict[str, Any]:
    return {"key": key, "action": "order", "subject": "alice"} | more


def run_in_fork(work: Callable[[], None]) -> int:
    """Runs a function in a forked process. Returns its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    end = time.monotonic() + 15
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return -9


def test_forked_process_has_its_own_connections_and_threads(network: Open) -> None:
    through = network()
    onceward, in_parent, in_child = Onceward(through.url, API_KEY), uuid.uuid4().hex, uuid.uuid4().hex

    def work() -> None:
        with onceward.claim(**claim_of(in_child, lease=0.6, at_most_once=False)):
            time.sleep(1.5)

    with onceward.claim(**claim_of(in_parent, lease=0.6, at_most_once=False)):
        time.sleep(0.3)  # The parent's threads run.
        # A fork while another thread holds the lock of the keeper.
        with keeper.get()._changed:
            status = run_in_fork(work)
        assert status == 0, "the child runs, and its claim outlives its lease"
        with pytest.raises(Rejected, match="in_progress"), onceward.claim(**claim_of(in_parent)):
            pytest.fail("the claim of the parent is lost")
    for key in (in_parent, in_child):
        with pytest.raises(Rejected, match="reply_not_kept"), onceward.claim(**claim_of(key)):
            pytest.fail("it ran twice")


def test_parent_and_child_use_no_connection_together(onceward: Onceward) -> None:
    token = [onceward.issue().token for _ in range(3)]
    sockets = {id(each) for each in onceward._transport._idle.get()}

    def work() -> None:
        assert not sockets & {id(each) for each in onceward._transport._idle.get()}
        for _ in range(20):
            onceward.issue()

    assert run_in_fork(work) == 0
    for each in token:
        onceward.redeem(each, subject="alice")


ENDINGS = {
    "return": "claim.__enter__()",
    "exit": "claim.__enter__(); raise SystemExit",
    "exception": "claim.__enter__(); raise RuntimeError",
    "in a block": "with claim: raise SystemExit",
    "pending result": "claim.__enter__(); network_fails(); claim.complete()",
    "async": "asyncio.run(claim.__aenter__())",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_interpreter_does_not_wait_for_a_held_claim(ending: str, network: Open, tmp_path: Path) -> None:
    # A renewal takes 30 seconds, and a completion gets no answer in time.
    slow = network(lambda path, number: 30.0 if path == "/claim/renew" else 30.0 if path == "/claim/complete" else "pass")
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, time\nfrom onceward import Onceward\n"
        "def network_fails(): pass\n"
        f"claim = Onceward({slow.url!r}, {API_KEY!r}).claim(key={uuid.uuid4().hex!r}, action='a', subject='s', lease=0.6)\n"
        "def main():\n"
        f"    {ENDINGS[ending]}\n"
        "try:\n    main()\nfinally:\n"
        "    time.sleep(0.2)\n    print(time.time(), flush=True)\n"
    )
    environment = {"PYTHONPATH": str(PACKAGE)}
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=20)
    assert time.time() - float(done.stdout.split()[-1]) < 1.0, done.stderr
    assert "Fatal" not in done.stderr


#: A program that SIGTERM ends with a `SystemExit`, as gunicorn's workers end, and that prints when it does.
INTERRUPTED = """
import asyncio, signal, sys, time
from onceward import Onceward

def end(*_):
    print(time.time(), flush=True)
    sys.exit(3)

signal.signal(signal.SIGTERM, end)
claim = Onceward({url!r}, {api_key!r}, timeout=1.0).claim(key={key!r}, action="order", subject="alice", lease=30.0)

async def aclaim():
    async with claim:
        print("claimed", flush=True)

def block():
    with claim:
        print("claimed", flush=True)

print("begins", flush=True)
{call}
"""


@pytest.mark.parametrize("call", ["block()", "asyncio.run(aclaim())"])
@pytest.mark.parametrize("is_silent", [False, True])
def test_process_that_ends_during_a_claim_releases_it(
    network: Open, onceward: Onceward, tmp_path: Path, call: str, is_silent: bool
) -> None:
    slow = network(lambda path, number: 30.0 if is_silent else 0.6 if (path, number) == ("/claim", 1) else "pass")
    key, program = uuid.uuid4().hex, tmp_path / "program.py"
    program.write_text(INTERRUPTED.format(url=slow.url, api_key=API_KEY, key=key, call=call))
    running = Program([sys.executable, str(program)])
    try:
        until("the claim is in flight", lambda: bool(slow.bodies("/claim")))
        time.sleep(0.2)
        running.process.terminate()
        running.process.wait(10)
        until("its output is read", lambda: len(running.lines) >= 2)
        took = time.time() - float(running.lines[1])
    finally:
        running.kill()
    assert (running.process.returncode, "claimed" in running.lines, took < 2.0) == (3, False, True), running.log()
    if not is_silent:
        with onceward.claim(**claim_of(key)) as claim:
            assert claim.release().value == "recorded", "the key is free long before its lease ends"


def test_cancelled_request_of_an_asgi_server_runs_to_its_end(onceward: Onceward) -> None:
    key, finished, seen = uuid.uuid4().hex, [], []

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["body"] == b"tea"
        await asyncio.sleep(0.2)
        finished.append(1)
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"made"})

    async def main() -> None:
        begun = asyncio.Event()

        async def receive() -> Any:
            begun.set()
            return {"type": "http.request", "body": b"tea", "more_body": False}

        async def send(_message: Any) -> None:
            raise OSError("the client has left")

        async def note(message: Any) -> None:
            seen.append(message)

        headers = [(b"idempotency-key", key.encode())]
        scope = {"type": "http", "method": "POST", "path": "/orders", "query_string": b"", "headers": headers}
        once = Once(app, onceward, subject="alice")
        request = asyncio.create_task(once(scope, receive, send))
        await begun.wait()
        await asyncio.sleep(0.05)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        while once._running:
            await asyncio.sleep(0.01)
        await once(scope, receive, note)

    asyncio.run(main())
    assert (finished, seen[0]["status"], seen[1]["body"]) == ([1], 201, b"made")
    assert (b"idempotent-replayed", b"true") in seen[0]["headers"]


def test_wheel_is_built_from_a_clean_clone(tmp_path: Path) -> None:
    root = PACKAGE.parents[1]
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{root}", str(clone)], check=True, capture_output=True)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=clone / "client-sdk" / "python", check=True, capture_output=True)
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    assert {"onceward/py.typed", "onceward/__init__.py", "onceward/asgi.py"} <= set(names)
    assert not [name for name in names if "tests" in name]


def test_service_that_restarts_loses_no_running_order(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path}/store.sqlite3"
    subprocess.run([binary(), "migrate", "--store", store], check=True, capture_output=True)
    first = Service("--store", store)
    port = int(first.url.rpartition(":")[2])
    onceward, key = Onceward(first.url, API_KEY), uuid.uuid4().hex
    try:
        with onceward.claim(**claim_of(key, lease=6.0)) as claim:
            first.kill()
            settled = claim.complete()
            assert settled.value == "pending"
            first = Service("--store", store, port=port)
            until("the result is recorded", claim._finished.is_set)
        with pytest.raises(Rejected, match="reply_not_kept"), onceward.claim(**claim_of(key)):
            pytest.fail("it ran twice")
    finally:
        first.kill()

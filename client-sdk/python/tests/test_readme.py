"""Runs the README's own snippets, with and without their marked lines."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from harness.process import PACKAGE, Shop
from harness.service import Service

README = (PACKAGE / "README.md").read_text()
MARK = "  # new"
SHOP = """
import os

def place_order():
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write("order\\n")
    with open(os.environ["LEDGER"]) as ledger:
        return len(ledger.readlines())
"""
SERVE_ASGI = """
import socket, uvicorn
from snippet import app
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
print("http://127.0.0.1:%d" % listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listener])
"""
SERVE_WSGI = """
from werkzeug.serving import make_server
server = make_server("127.0.0.1", 0, app, threaded=True)
print("http://127.0.0.1:%d" % server.server_port, flush=True)
server.serve_forever()
"""
SERVE_DJANGO = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "project"
from django.core.wsgi import get_wsgi_application
app = get_wsgi_application()
"""
PROJECT = """
from snippet import *
SECRET_KEY, ROOT_URLCONF, ALLOWED_HOSTS = "a-key-of-the-tests", "urls", ["*"]
"""
URLS = """
from django.http import JsonResponse
from django.urls import path
from shop import place_order
urlpatterns = [path("orders", lambda request: JsonResponse({"order": place_order()}, status=201))]
"""
SERVERS = {"FastAPI": SERVE_ASGI, "Flask": "from snippet import app\n" + SERVE_WSGI, "Django": SERVE_DJANGO + SERVE_WSGI}


def snippet(heading: str) -> str:
    """Returns the first block of code below a heading."""
    found = re.search(rf"### {heading}\n\n```python\n(.*?)```", README, re.DOTALL)
    assert found, heading
    return found[1]


def without_marked_lines(code: str) -> str:
    return "".join(line for line in code.splitlines(keepends=True) if not line.rstrip().endswith(MARK))


@pytest.fixture(params=SERVERS)
def stack(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def orders(stack: str, service: Service, tmp_path: Path, ledger: Path) -> Iterator[object]:
    """Returns a function that starts a server with a snippet, sends the same order twice, and returns what came of it."""
    started: list[Shop] = []

    def run(code: str) -> tuple[list[httpx.Response], int]:
        files = {"snippet": code, "shop": SHOP, "serve": SERVERS[stack], "project": PROJECT, "urls": URLS}
        for name, content in files.items():
            (tmp_path / f"{name}.py").write_text(content)
        path = f"{tmp_path}:{PACKAGE}"
        started.append(Shop(tmp_path / "serve.py", service.url, ledger, PYTHONPATH=path))
        headers = {"x-user": "alice", "idempotency-key": uuid.uuid4().hex}
        with httpx.Client(verify=False, trust_env=False, timeout=30) as client:
            responses = [client.post(started[-1].url + "/orders", headers=headers) for _ in range(2)]
        return responses, len(ledger.read_text().splitlines())

    yield run
    for each in started:
        each.terminate()


def test_snippet_protects_a_route_with_two_lines(stack: str, orders) -> None:  # type: ignore[no-untyped-def]
    code = snippet(stack)
    assert sum(line.rstrip().endswith(MARK) for line in code.splitlines()) == 2
    responses, placed = orders(code)
    assert [response.status_code for response in responses] == [201, 201]
    assert responses[1].headers["idempotent-replayed"] == "true" and responses[0].content == responses[1].content
    assert placed == 1


def test_snippet_without_the_two_lines_orders_twice(stack: str, orders) -> None:  # type: ignore[no-untyped-def]
    responses, placed = orders(without_marked_lines(snippet(stack)))
    assert [response.status_code for response in responses] == [201, 201]
    assert placed == 2


def test_example_without_framework_runs_once(service: Service, ledger: Path, tmp_path: Path) -> None:
    code = next(block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "@once" in block)
    code = code.replace("http://127.0.0.1:8080", service.url).replace("order-4711", uuid.uuid4().hex)
    message = f"message = {{'id': '{uuid.uuid4().hex}'}}\nprint(consume(message), consume(message))\n"
    program = tmp_path / "program.py"
    program.write_text(SHOP + code + message)
    environment = {"PYTHONPATH": str(PACKAGE), "LEDGER": str(ledger), "ONCEWARD_API_KEY": "an-api-key-of-the-tests"}
    for _ in range(2):
        done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["{'order': 1}", "2 2"]
    assert len(ledger.read_text().splitlines()) == 2

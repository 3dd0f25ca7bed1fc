"""Fixtures: a service for all tests, and a ledger for each."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.network import Network, Plan, smooth
from harness.process import API_KEY, PACKAGE, Program, Shop
from harness.service import Service

from onceward import Onceward

SHOPS = PACKAGE / "tests" / "shop"


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.kill()


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.txt"
    path.touch()
    return path


@pytest.fixture
def onceward(service: Service) -> Onceward:
    return Onceward(service.url, API_KEY)


@pytest.fixture
def network(service: Service) -> Iterator[Callable[..., Network]]:
    opened: list[Network] = []

    def open_network(plan: Plan = smooth) -> Network:
        opened.append(Network(service.url, plan))
        return opened[-1]

    yield open_network
    for each in opened:
        each.close()


@pytest.fixture
def refusing() -> Iterator[str]:
    """A URL that refuses connections. No other program can receive its port meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def start() -> Iterator[Callable[..., Shop]]:
    """Starts shops, which are ended after the test."""
    started: list[Program] = []

    def start_shop(name: str, url: str, ledger: Path, **environment: str) -> Shop:
        shop = Shop(SHOPS / f"{name}.py", url, ledger, **environment)
        started.append(shop)
        return shop

    yield start_shop
    for each in started:
        each.terminate()

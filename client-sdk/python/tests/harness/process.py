"""Programs in processes of their own, ended by their process ids."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]


def until(what: str, holds: Callable[[], bool], limit: float = 10.0) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < end, f"still not: {what}"
        time.sleep(0.01)


class Program:
    """A running program. Its output is read in a thread."""

    def __init__(self, arguments: list[str], **environment: str) -> None:
        self._log = tempfile.NamedTemporaryFile()  # noqa: SIM115
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            arguments,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def log(self) -> str:
        """Returns the standard error so far."""
        return Path(self._log.name).read_text()

    def kill(self) -> None:
        """Kills the process."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def terminate(self) -> None:
        """Asks the process to end, and kills it after a while."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(8)
            except subprocess.TimeoutExpired:
                self.kill()


class Shop(Program):
    """A server in Python, which prints its URL as its first line."""

    def __init__(self, script: Path | str, service_url: str, ledger: Path, **environment: str) -> None:
        environment = {
            "ONCEWARD_URL": service_url,
            "ONCEWARD_API_KEY": API_KEY,
            "LEDGER": str(ledger),
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        }
        super().__init__([sys.executable, str(script)], **environment)
        until("the shop prints its URL: " + self.log(), lambda: bool(self.lines) or self.process.poll() is not None, 20)
        assert self.lines, self.log()
        self.url = self.lines[0]


API_KEY = "an-api-key-of-the-tests"

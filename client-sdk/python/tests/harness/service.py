"""The real service, with its memory store."""

from __future__ import annotations

import json
import os
import shutil

from .process import API_KEY, PACKAGE, Program, until


def binary() -> str:
    """Returns the path of the service's program."""
    built = PACKAGE.parents[1] / "target" / "debug" / "onceward"
    found = os.environ.get("ONCEWARD_BIN") or (str(built) if built.exists() else shutil.which("onceward"))
    assert found, "the service is not built: run `cargo build -p onceward-server --locked`, or set ONCEWARD_BIN"
    return found


class Service(Program):
    """A running service on a free port, or on the given one."""

    def __init__(self, *arguments: str, port: int = 0) -> None:
        always = ["--listen", f"127.0.0.1:{port}", "--log", "json", "--api-key", API_KEY]
        super().__init__([binary(), *always, *arguments])
        self.url = ""
        until("the service listens", self._is_up, 20)

    def _is_up(self) -> bool:
        for line in [*self.lines, *self.log().splitlines()]:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if entry.get("message") == "listening":
                self.url = f"http://{entry['address']}"
        assert self.process.poll() is None, self.log()
        return bool(self.url)

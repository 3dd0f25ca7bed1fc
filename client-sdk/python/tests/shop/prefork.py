"""Serves a WSGI application with gunicorn: several processes that are forked after the application was loaded, with threads each."""

from __future__ import annotations

from typing import Any

import rules
from gunicorn.app.base import BaseApplication


class Prefork(BaseApplication):
    """gunicorn with two workers of 16 threads each, which prints its URL."""

    def __init__(self, app: Any) -> None:
        self.app = app
        super().__init__()

    def load_config(self) -> None:
        settings = {
            "bind": f"127.0.0.1:{rules.port()}",
            "workers": 2,
            "threads": 16,
            "worker_class": "gthread",
            "preload_app": True,
            "graceful_timeout": 5,
            "loglevel": "warning",
            "control_socket_disable": True,
            "when_ready": print_url,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        return self.app


def print_url(server: Any) -> None:
    """Prints the URL as the first line of the output."""
    print(f"http://127.0.0.1:{server.LISTENERS[0].sock.getsockname()[1]}", flush=True)

"""The rules of the shop's routes, from the environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PACKAGE)]

#: What all routes have in common.
COMMON: dict[str, Any] = {"wait": int(os.environ.get("WAIT", 0)) / 1000}
if lease := os.environ.get("LEASE"):
    COMMON["lease"] = int(lease) / 1000

#: False runs the shop without the middleware.
IS_PROTECTED = os.environ.get("PROTECTION") != "off"


def user(request: Any) -> str:
    """Returns the subject of a request."""
    name: str = request.headers.get("x-user", "anonymous")
    return name


def port() -> int:
    """Returns the port to listen on; 0 is a free one."""
    return int(os.environ.get("PORT") or 0)

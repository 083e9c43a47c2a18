"""Logs for tests, as their lines."""

from __future__ import annotations

import io
from typing import Any

from orchestrator.diagnosis.explain import LogSource


def log(*lines: str, name: str = "log", **more: Any) -> LogSource:
    """Return a log of these lines."""
    return LogSource(name, io.BytesIO("".join(f"{line}\n" for line in lines).encode()), **more)

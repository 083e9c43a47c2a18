"""What is measured, as JSON lines always, and as TensorBoard events where the package is there."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = 1


class Metrics:
    """Writes rank 0's measurements; on other ranks it writes nothing."""

    def __init__(self, folder: Path, *, enabled: bool) -> None:
        self._stream = None
        self._board: Any = None
        if not enabled:
            return
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "metrics.jsonl"
        self._stream = self._path.open("a")
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        self._board = SummaryWriter(str(folder / "tensorboard"))

    def go_back_to(self, step: int) -> None:
        """Drop what was measured after a step: the training goes on from there, and measures it again."""
        if self._stream is None:
            return
        lines = [line for line in self._path.read_text().splitlines(keepends=True) if _step_of(line) <= step]
        new = self._path.with_name(f".{self._path.name}.new")
        new.write_text("".join(lines))
        self._stream.close()
        new.replace(self._path)
        self._stream = self._path.open("a")

    def add(self, step: int, **values: float) -> None:
        """Write measurements of a step (counted over all epochs)."""
        if self._stream is None:
            return
        self._stream.write(json.dumps({"schema": SCHEMA, "time": time.time(), "step": step, **values}) + "\n")
        self._stream.flush()
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """Finish the files."""
        for open_one in (self._stream, self._board):
            if open_one is not None:
                open_one.close()


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")  # a line that a power cut left half

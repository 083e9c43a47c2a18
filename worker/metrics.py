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
        self._stream = (folder / "metrics.jsonl").open("a")
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        self._board = SummaryWriter(str(folder / "tensorboard"))

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

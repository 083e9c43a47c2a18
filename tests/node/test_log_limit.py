from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from orchestrator.model.run_policy import RunPolicy
from orchestrator.node.log_limit import BLOCK_BYTES, bound
from orchestrator.transport.node_program import Conversation
from supervised_run import Run, finished, start_together

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIMIT = 4 * BLOCK_BYTES


def disk_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_a_file_within_its_limit_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "rank0.out"
    path.write_bytes(b"x" * (LIMIT + BLOCK_BYTES))
    assert bound(str(path), LIMIT) == 0
    assert path.read_bytes() == b"x" * (LIMIT + BLOCK_BYTES)


def test_of_a_longer_file_the_newest_bytes_stay_in_their_places(tmp_path: Path) -> None:
    path = tmp_path / "rank0.out"
    lines = b"".join(b"line %07d\n" % number for number in range(100_000))
    path.write_bytes(lines)
    end = bound(str(path), LIMIT)
    assert LIMIT <= len(lines) - end <= LIMIT + BLOCK_BYTES
    assert path.stat().st_size == len(lines)
    assert path.read_bytes()[end:] == lines[end:]
    assert disk_bytes(path) <= LIMIT + 2 * BLOCK_BYTES
    with path.open("ab") as stream:  # the rank goes on
        stream.write(b"y" * LIMIT)
    assert bound(str(path), LIMIT) > end


def test_a_run_keeps_its_logs_small_and_a_reader_is_told_what_is_gone(make_run: Callable[[], Run]) -> None:
    run = make_run()
    script = """
import time
for number in range(400_000):
    print("line %07d" % number)
    if number % 40_000 == 0:
        time.sleep(0.4)
"""
    start_together([run], [script], RunPolicy(log_limit_bytes=LIMIT))
    finished(run, limit_s=60)
    path = run.run_dir / "logs" / "rank0.out"
    assert path.stat().st_size == 400_000 * 13
    assert disk_bytes(path) < 400_000 * 13 / 2
    with Conversation(run.link, "run_reader") as talk:
        talk.send({"run_dir": str(run.run_dir), "ranks": [0], "agent": False, "offsets": {}, "follow": False})
        pieces = []
        while (message := talk.receive(10)) is not None:
            if message.body.get("file") == "rank0.out":
                pieces.append((int(message.body["offset"]), message.payload))
    assert pieces[0][0] > 0
    assert all(first + len(piece) == second for (first, piece), (second, _) in itertools.pairwise(pieces))
    assert b"".join(piece for _, piece in pieces).endswith(b"line 0399999\n")
    assert path.stat().st_size == pieces[-1][0] + len(pieces[-1][1])

"""Made-up digits in idx files, and the worker started as its users start it."""

from __future__ import annotations

import os
import random
import re
import socket
import struct
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TINY = Path(__file__).with_name("tiny_run.py")


def write_idx(folder: Path, train: int, test: int) -> Path:
    """Write a data set of images whose class shows in where they are bright."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    noise = random.Random(0)
    for stem, count in (("train", train), ("t10k", test)):
        labels = bytes(number % 10 for number in range(count))
        images = b"".join(
            bytes(noise.randrange(60) + (180 if row // 3 == label else 0) for row in range(28) for _ in range(28))
            for label in labels
        )
        (raw / f"{stem}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, count, 28, 28) + images)
        (raw / f"{stem}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, count) + labels)
    return folder


def start(script: Path, *words: str, cwd: Path, processes: int, **env: str) -> subprocess.Popen[str]:
    """Start a script alone (`processes=0`) or under torchrun."""
    argv = [sys.executable, str(script)]
    if processes:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        torchrun = ["-m", "torch.distributed.run", f"--nproc_per_node={processes}", "--nnodes=1", "--node_rank=0"]
        argv = [sys.executable, *torchrun, "--master_addr=127.0.0.1", f"--master_port={port}", str(script)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", **env}
    return subprocess.Popen(
        [*argv, *words], cwd=cwd, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def run(script: Path, *words: str, cwd: Path, processes: int, code: int = 0, **env: str) -> str:
    """Run a script to its end and return what it printed."""
    process = start(script, *words, cwd=cwd, processes=processes, **env)
    out, _ = process.communicate(timeout=180)
    assert process.returncode == code, out
    return out


def wait_for_line(process: subprocess.Popen[str], pattern: str) -> None:
    """Read what a script prints until a line has the pattern."""
    assert process.stdout is not None
    for line in process.stdout:
        if re.search(pattern, line):
            return
    raise AssertionError(f"it ended with {process.wait()} before {pattern}")


def children(pid: int) -> list[int]:
    """Return the pids of a process's children."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

"""A small training that goes through every moment of a run, says so, and commits the fault that it is told to.

    fault_subject.py --moment MOMENT --victim RANK [--fault FAULT] [--habit HABIT ...]

The moments, in order: before (the rendezvous), init, collective, outside (a collective), checkpoint, end. In `init` and
`collective` all ranks but the victim are inside the call, and the victim has not entered it: that holds the others. At
the end the others have ended. At the chosen moment the victim commits its fault; without one, who is there waits until
a file `go` appears in the working directory. A thread writes numbered lines all the time, so that lost and doubled ones
can be counted.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

MOMENTS = ("before", "init", "collective", "outside", "checkpoint", "end")
HELD_BY_VICTIM = ("init", "collective", "end")  # the others are inside the call, or have ended
RANK = int(os.environ.get("RANK", "0"))
LINE_EVERY_S = 0.05
SETTLE_S = 0.4  # for the others to be inside the call that the victim holds up
HOLD_S = 200.0  # longer than any fault's limit, and an end if nobody says go
FLOOD_LINES = 1_000_000
ENDLESS_BYTES = 8 << 20
CHUNK_BYTES = 64 << 10
PIECE_BYTES, MOST_PIECES = 16 << 20, 256  # 4 GiB: where nothing limits them, an end all the same
PR_SET_NAME = 15  # <linux/prctl.h>

_lock = threading.Lock()
_lines = 0
_closing = threading.Event()


def say(text: str) -> None:
    """Write one line at once, whole."""
    write_all(f"{text}\n".encode())


def write_all(data: bytes) -> None:
    """Write all of it; the disk may be full."""
    with _lock:
        while data:
            data = data[os.write(1, data) :]


def say_numbered(count: int = 1) -> None:
    """Write the next numbered lines, in one piece."""
    global _lines
    with _lock:
        first, _lines = _lines + 1, _lines + count
        data = "".join(f"line {number:07} of rank {RANK}\n" for number in range(first, first + count)).encode()
        while data:
            data = data[os.write(1, data) :]


def number_lines() -> None:
    """Write numbered lines until the end; a disk without room is the main thread's to notice."""
    while not _closing.wait(LINE_EVERY_S):
        with contextlib.suppress(OSError):
            say_numbered()


# --- faults ---


def fill_memory() -> None:
    """Take memory until the kernel objects."""
    taken: list[bytearray] = []
    while len(taken) < MOST_PIECES:
        taken.append(bytearray(b"x" * PIECE_BYTES))


def commit(fault: str) -> None:
    """Do to this rank what it was told to."""
    say(f"fault: {fault} at {time.time():.3f}")
    if fault == "raise":
        raise ValueError("on purpose")
    if fault.startswith("exit"):
        sys.exit(int(fault.removeprefix("exit")))
    elif fault == "segfault":
        ctypes.string_at(0)
    elif fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "memory":
        fill_memory()


# --- habits ---


def start_daemon(how: str) -> None:
    """Start a process that leaves this one's session and parent: with an empty environment, or under another title."""
    title = f"import ctypes; ctypes.CDLL(None).prctl({PR_SET_NAME}, b'cron', 0, 0, 0);"
    # It forks once more, so that its parent is gone; what it has open is its own.
    code = "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\n" + title * (how == "titled") + "time.sleep(600)"
    argv = ["cron", "-f"] if how == "titled" else [sys.executable]
    environ = {} if how == "bare" else dict(os.environ)
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # python takes "-c" after any argv[0]; "cron -f" is what ps then shows first.
    subprocess.Popen([argv[0], "-c", code], executable=sys.executable, env=environ, **quiet).wait()  # type: ignore[call-overload]


def take_up(habit: str) -> None:
    """Do what makes a script hard to end or to read."""
    if habit == "ignores-term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif habit.startswith("daemon"):
        start_daemon(habit.removeprefix("daemon").removeprefix("-"))
    elif habit == "flood":
        for _ in range(FLOOD_LINES // 100):
            say_numbered(100)
    elif habit == "endless-line":
        write_all(b"x" * ENDLESS_BYTES)
        say("")
    elif habit == "bytes":
        write_all(bytes(range(256)).replace(b"\n", b"") + b"\xff\xfe\x80 caf\xe9 \xe2\x82\n")


# --- the moments ---


class Moments:
    """Announces the moments, and holds or breaks the run at the chosen one."""

    def __init__(self, chosen: str, victim: int, fault: str, habits: list[str]) -> None:
        self._chosen, self._victim, self._fault, self._habits = chosen, victim, fault, habits

    def reach(self, moment: str) -> None:
        """Say that this rank is there; at the chosen moment the victim goes no further unharmed."""
        say(f"moment: {moment}")
        with open(f"at-{moment}-{RANK}", "w"):  # noqa: PTH123 - for launchers that keep a rank's output to themselves
            pass
        if moment == self._chosen and self._fault == "stopped":
            _closing.set()  # a run that writes is not taken for hung
        if moment == self._chosen and (moment not in HELD_BY_VICTIM or self._victim == RANK):
            self.hold()

    def hold(self) -> None:
        """Wait here: the victim for its fault, the others (and all, where the fault comes from outside) for `go`."""
        if self._victim == RANK and self._fault:
            time.sleep(SETTLE_S)
            commit(self._fault)
        end = time.monotonic() + HOLD_S
        while time.monotonic() < end and not os.path.exists("go"):  # noqa: PTH110 - the rank's own folder
            time.sleep(0.05)

    def take_habits(self) -> None:
        """Take up the victim's habits; all ranks ignore TERM where one does."""
        for habit in self._habits:
            if self._victim == RANK or habit == "ignores-term":
                take_up(habit)


def write_checkpoint(moments: Moments) -> None:
    """Write a checkpoint so that a reader sees the old one or the whole new one; the moment is in its middle."""
    folder = os.environ.get("DDP_ORCH_CHECKPOINTS", "checkpoints")
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    path = os.path.join(folder, f"rank{RANK}.bin")  # noqa: PTH118
    with open(f"{path}.new", "wb", buffering=0) as stream:  # noqa: PTH123
        stream.write(bytes(CHUNK_BYTES))
        moments.reach("checkpoint")
        stream.write(bytes(CHUNK_BYTES))
        os.fsync(stream.fileno())
    os.replace(f"{path}.new", path)  # noqa: PTH105


def main() -> None:
    """Go through the moments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--moment", choices=MOMENTS, default="end")
    parser.add_argument("--victim", type=int, default=0)
    parser.add_argument("--fault", default="")
    parser.add_argument("--habit", action="append", default=[])
    options = parser.parse_args()
    moments = Moments(options.moment, options.victim, options.fault, options.habit)
    threading.Thread(target=number_lines, daemon=True).start()
    if "ignores-term" in options.habit:
        take_up("ignores-term")
    moments.reach("before")

    import torch
    import torch.distributed as dist

    moments.reach("init")
    dist.init_process_group(os.environ.get("DDP_ORCH_BACKEND", "gloo"))
    moments.take_habits()
    total = torch.ones(1)
    dist.all_reduce(total)
    moments.reach("collective")
    dist.all_reduce(total)
    moments.reach("outside")
    dist.all_reduce(total)
    write_checkpoint(moments)
    dist.barrier()
    dist.destroy_process_group()
    moments.reach("end")
    _closing.set()
    say(f"done: {_lines} lines")


if __name__ == "__main__":
    main()

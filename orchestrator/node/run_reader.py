"""Reads one run of a host: how it stands, and its logs as one stream that can be taken up again.

Sent as a node program it takes one message:
    {"run_dir": D, "ranks": [N, ...] or null, "agent": bool, "offsets": {NAME: OFFSET}, "follow": bool}
        answers {"file": NAME, "offset": N, "payload": SIZE} and SIZE bytes, for each piece of a file under D/logs, of
        those ranks (null: of all) and of torchrun; an offset beyond the last piece's end means that the bytes between
        are no longer kept;
        {"state": {...}, "alive": bool} first and whenever it changes; {"beat": seconds} when nothing else was sent for
        a while; it ends when the run has ended and all is read, or at once where `follow` is false.
Nothing is changed on the host, but for the time of D/watched, by which the supervisor knows that somebody follows.
Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
import time

from orchestrator.node.run_processes import is_same
from orchestrator.node.whole_files import read_json

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

FINAL = ("succeeded", "failed", "stopped")
PIECE_BYTES = 256 * 1024
POLL_S = 0.1  # how late a line may be; a look at a file costs microseconds
ROUNDS = 16
FRESH_NS = 2_000_000_000
LOG_NAME = re.compile(r"(?:rank(\d+)(?:\.(\d+))?|agent)\.(?:out|err)$")
BEAT_S = 5.0  # the other side takes three missed beats for a dead connection


def send(body: Dict[str, Any], payload: bytes = b"") -> None:
    """Send one message."""
    if payload:
        body = dict(body, payload=len(payload))
    sys.stdout.buffer.write(json.dumps(body).encode() + b"\n" + payload)
    sys.stdout.buffer.flush()


def supervisor_lives(state: Dict[str, Any]) -> bool:
    """Tell whether the supervisor that wrote this state still runs, or its guard, which writes the last one then."""
    return any(is_same(int(state.get(who, 0)), int(state.get(who + "_start", 0))) for who in ("pid", "guard"))


def standing(run_dir: str) -> Dict[str, Any]:
    """Return the state of a run, and whether its supervisor lives."""
    path = os.path.join(run_dir, "state.json")
    state = read_json(path)
    alive = supervisor_lives(state)
    if not alive and state.get("state") not in FINAL:
        state = read_json(path)  # it may have ended between the two looks
    return {"state": state, "alive": alive}


class Logs:
    """The log files of a run that are wanted, as they appear and grow."""

    def __init__(self, run_dir: str, ranks: Optional[List[int]], *, agent: bool, offsets: Dict[str, int]) -> None:
        """Begin where the other side is.

        Args:
            run_dir: the run's folder.
            ranks: whose files; None means all.
            agent: torchrun's own words too.
            offsets: file name -> bytes that the other side has.
        """
        self._folder = os.path.join(run_dir, "logs")
        self._ranks = None if ranks is None else set(ranks)
        self._agent = agent
        self._offsets = dict(offsets)
        self._names: List[str] = []
        self._listed_at = -1

    def send_new(self) -> bool:
        """Send one piece of each file that has grown; tell whether there was any."""
        grown = False
        for name in self._wanted():
            try:
                with open(os.path.join(self._folder, name), "rb") as stream:
                    offset = past_hole(stream.fileno(), self._offsets.get(name, 0))
                    stream.seek(offset)
                    piece = stream.read(PIECE_BYTES)
                    if piece and past_hole(stream.fileno(), offset) != offset:
                        continue  # given up while we read it: the next round begins after it
            except OSError:
                continue  # not there any more
            if piece:
                send({"file": name, "offset": offset}, piece)
                self._offsets[name] = offset + len(piece)
                grown = True
        return grown

    def _wanted(self) -> List[str]:
        """Return the names of the files, attempt by attempt; the folder is listed only when it has changed."""
        try:
            changed_at = os.stat(self._folder).st_mtime_ns
            # A clock tick may hold two changes: what has just changed is listed once more.
            if changed_at != self._listed_at or time.time_ns() - changed_at < FRESH_NS:
                self._names = sorted(filter(self._is_wanted, os.listdir(self._folder)), key=in_order)
                self._listed_at = changed_at
        except OSError:
            pass  # not there yet
        return self._names

    def _is_wanted(self, name: str) -> bool:
        match = LOG_NAME.match(name)
        if match is None:
            return False
        return self._agent if match.group(1) is None else self._ranks is None or int(match.group(1)) in self._ranks


def in_order(name: str) -> Tuple[int, int, str]:
    """Sort log files by attempt and rank."""
    match = LOG_NAME.match(name)
    rank, attempt = (match.group(1), match.group(2)) if match else (None, None)
    return int(attempt or 0), int(rank or -1), name


def past_hole(descriptor: int, offset: int) -> int:
    """Return where there are bytes from `offset` on: the head of a long log may have been given up (log_limit.py)."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError:
        return offset  # nothing after it, or a file system that knows no holes


def asker_is_gone() -> bool:
    """Tell whether the other side has closed our input; it sends nothing after the first message."""
    ready, _, _ = select.select([sys.stdin.buffer], [], [], 0)
    return bool(ready) and not os.read(0, 1)


def follow(run_dir: str, logs: Logs, *, keep_on: bool) -> None:
    """Send the files and the state until the run has ended, or the other side is gone."""
    last: Dict[str, Any] = {}
    sent_at = touched_at = time.monotonic() - BEAT_S
    while not asker_is_gone():
        if keep_on and time.monotonic() - touched_at >= BEAT_S:
            touch(os.path.join(run_dir, "watched"))
            touched_at = time.monotonic()
        # The state first: what a rank wrote before its end is on the disk once the end is.
        now = standing(run_dir)
        over = not keep_on or not now["alive"]
        rounds = 0
        # Bounded while the run lives: a log that grows faster than the line carries must not hide the state.
        while logs.send_new() and (over or rounds < ROUNDS):
            rounds += 1
            sent_at = time.monotonic()
            if asker_is_gone():
                return
        if now != last:
            send(now)
            last, sent_at = now, time.monotonic()
        if over:
            return
        if time.monotonic() - sent_at > BEAT_S:
            send({"beat": BEAT_S})
            sent_at = time.monotonic()
        time.sleep(POLL_S)


def touch(path: str) -> None:
    """Tell the supervisor that a controller watches."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        os.utime(path)
    except OSError:
        pass  # a full disk, say


def main() -> None:
    """Answer the one question asked."""
    order = json.loads(sys.stdin.buffer.readline())
    try:
        run_dir = os.path.expanduser(order["run_dir"])
        logs = Logs(run_dir, order["ranks"], agent=bool(order["agent"]), offsets=order["offsets"])
        follow(run_dir, logs, keep_on=bool(order["follow"]))
    except BrokenPipeError:
        # The other side is gone; without this, Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    main()

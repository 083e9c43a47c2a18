"""Reads the runs of one host: which there are, how they stand, and their logs as one stream that can be taken up again.

Sent as a node program it takes one message:
    {"do": "list", "workdir": W}
        answers {"runs": [{"run_dir", "record", "state", "alive"}, ...]}, newest first
    {"do": "follow", "run_dir": D, "files": {NAME: OFFSET, ...}, "follow": bool}
        answers {"file": NAME, "offset": N, "payload": SIZE} and SIZE bytes, for each piece of a file under D/logs;
        {"state": {...}, "alive": bool} first and whenever it changes; {"beat": seconds} when nothing else was sent for
        a while; it ends when the run has ended and all is read, or at once where `follow` is false.
Nothing is changed on the host.
Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import glob
import json
import os
import select
import sys
import time
from typing import Any

from orchestrator.node.run_processes import is_same

FINAL = ("succeeded", "failed", "stopped")
PIECE_BYTES = 256 * 1024
POLL_S = 0.1  # how late a line may be; a look at a file costs microseconds
ROUNDS = 16
BEAT_S = 5.0  # the other side takes three missed beats for a dead connection


def send(body: dict[str, Any], payload: bytes = b"") -> None:
    """Send one message."""
    if payload:
        body = dict(body, payload=len(payload))
    sys.stdout.buffer.write(json.dumps(body).encode() + b"\n" + payload)
    sys.stdout.buffer.flush()


def read_json(path: str) -> dict[str, Any]:
    """Read a JSON file; an empty object where there is none, or none that is whole."""
    try:
        with open(path) as stream:
            value = json.load(stream)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def supervisor_lives(state: dict[str, Any]) -> bool:
    """Tell whether the supervisor that wrote this state still runs, or its guard, which writes the last one then."""
    return any(is_same(int(state.get(who, 0)), int(state.get(who + "_start", 0))) for who in ("pid", "guard"))


def standing(run_dir: str) -> dict[str, Any]:
    """Return the state of a run, and whether its supervisor lives."""
    path = os.path.join(run_dir, "state.json")
    state = read_json(path)
    alive = supervisor_lives(state)
    if not alive and state.get("state") not in FINAL:
        state = read_json(path)  # it may have ended between the two looks
    return {"state": state, "alive": alive}


def list_runs(workdir: str) -> None:
    """Answer with every run of this account under the workdir.

    A run's folder holds one folder for each host that shares this file system: several local hosts, or a home on NFS.
    """
    runs = os.path.join(os.path.expanduser(workdir), "runs")
    found = []
    for path in sorted(glob.glob(os.path.join(glob.escape(runs), "*", "*", "record.json")), reverse=True):
        record = read_json(path)
        if record:
            record.pop("marker", None)
            run_dir = os.path.dirname(path)
            found.append(dict(standing(run_dir), run_dir=run_dir, record=record))
    send({"runs": found})


def send_new(run_dir: str, offsets: dict[str, int]) -> bool:
    """Send one piece of each file that has grown, moving its offset on; tell whether there was any."""
    grown = False
    for name, offset in offsets.items():
        try:
            with open(os.path.join(run_dir, "logs", os.path.basename(name)), "rb") as stream:
                stream.seek(offset)
                piece = stream.read(PIECE_BYTES)
        except OSError:
            continue  # not there yet
        if piece:
            send({"file": name, "offset": offset}, piece)
            offsets[name] = offset + len(piece)
            grown = True
    return grown


def asker_is_gone() -> bool:
    """Tell whether the other side has closed our input; it sends nothing after the first message."""
    ready, _, _ = select.select([sys.stdin.buffer], [], [], 0)
    return bool(ready) and not os.read(0, 1)


def follow(run_dir: str, offsets: dict[str, int], *, keep_on: bool) -> None:
    """Send the files and the state until the run has ended, or the other side is gone."""
    last: dict[str, Any] = {}
    sent_at = time.monotonic()
    while not asker_is_gone():
        # The state first: what a rank wrote before its end is on the disk once the end is.
        now = standing(run_dir)
        over = not keep_on or not now["alive"]
        rounds = 0
        # Bounded while the run lives: a log that grows faster than the line carries must not hide the state.
        while send_new(run_dir, offsets) and (over or rounds < ROUNDS):
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


def main() -> None:
    """Answer the one question asked."""
    order = json.loads(sys.stdin.buffer.readline())
    try:
        if order["do"] == "list":
            list_runs(order["workdir"])
        else:
            follow(os.path.expanduser(order["run_dir"]), dict(order["files"]), keep_on=bool(order["follow"]))
    except BrokenPipeError:
        # The other side is gone; without this, Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    main()

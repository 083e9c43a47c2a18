"""Starts and ends one host's part in a run.

A node program that takes one message:

    {"do": "start", ...}   make the run's files, start the supervisor in its own session, answer
                           {"started": {"pid", "beat_port"}}; then {"peers": {HOST: [ADDRESS, BEAT_PORT]}} is passed on.
                           With "again", the run is there already and its supervisor is gone: start another one.
    {"do": "stop", ...}    end the run, answer {"state": its final state}
    {"do": "vouch", ...}   write down that the controller does not reach some hosts either; answer {"done": true}

Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

from orchestrator.node.agreement import FINAL
from orchestrator.node.run_processes import KILL_ROUNDS, is_same, kill_all, send_signal
from orchestrator.node.whole_files import read_json, write_whole

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any, Dict

SCHEMA = 1


def answer(name: str, value: Any) -> None:
    """Send one message to whoever asked."""
    try:
        os.write(1, (json.dumps({name: value}) + "\n").encode())
    except OSError:
        pass  # the one who asked is gone; the run goes on


def start(order: Dict[str, Any]) -> None:
    """Make the run's files and start the supervisor, detached from this login."""
    run_dir = order["run_dir"]
    again = order.setdefault("again", False)
    if again:
        state = read_json(os.path.join(run_dir, "state.json"))
        if state.get("state") in FINAL or lives(state):
            answer("failed", "its part has ended, or is under way")
            return
        kill_all(order["marker"], 0)
    else:
        make_files(run_dir, order)
    for name in ("programs", "script_argv", "record", "manifest"):
        order.pop(name, None)
    if os.path.exists(os.path.join(run_dir, "stop.json")):
        answer("failed", "it was stopped before it began")
        return
    env = dict(os.environ, DDP_ORCH_MARKER=order["marker"], DDP_ORCH_RUN=order["env"]["DDP_ORCH_RUN"])
    with open(os.path.join(run_dir, "supervisor.log"), "ab") as log:
        child = subprocess.Popen(
            [sys.executable, os.path.join(run_dir, "supervisor.py"), run_dir],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=run_dir,
            env=env,
            start_new_session=True,  # the terminal may close; torchrun would die of its SIGHUP
        )
        if child.stdin is None or child.stdout is None:
            raise AssertionError
        # The environment may hold secrets: never a file, never argv.
        child.stdin.write(json.dumps(order).encode() + b"\n")
        child.stdin.flush()
        said = child.stdout.readline()  # one line, or nothing where it could not start
    if said:
        os.write(1, said)
        child.stdin.write(sys.stdin.buffer.readline())  # where the others listen; nothing where the asker has gone
        child.stdin.close()
    else:
        state = read_json(os.path.join(run_dir, "state.json"))
        answer("failed", state.get("cause") or tail_of(os.path.join(run_dir, "supervisor.log")))


def make_files(run_dir: str, order: Dict[str, Any]) -> None:
    """Write all that lies in a run's folder before it starts."""
    for folder in ("logs", "ranks", "hooks", "flight"):
        os.makedirs(os.path.join(run_dir, folder), mode=0o700)
    for name, content in order["programs"].items():
        with open(os.path.join(run_dir, name), "x") as stream:
            stream.write(content)
    write_whole(os.path.join(run_dir, "entry.json"), {"argv": order["script_argv"]})
    if "manifest" in order:
        write_whole(os.path.join(run_dir, "manifest.json"), order["manifest"])
    # The record first, then the look for a stop; `stop` does it the other way around, so one of the two sees the other.
    write_whole(os.path.join(run_dir, "record.json"), dict(order["record"], marker=order["marker"]))


def tail_of(path: str) -> str:
    """Return the last line of a file that may not be there."""
    try:
        with open(path, errors="replace") as stream:
            return (stream.read().strip().splitlines() or ["it left no word"])[-1]
    except OSError as error:
        return str(error)


def lives(state: Dict[str, Any]) -> bool:
    """Tell whether the supervisor or its guard is there."""
    return is_same(state.get("pid", 0), state.get("pid_start", 0)) or is_same(
        state.get("guard", 0), state.get("guard_start", 0)
    )


def stop(order: Dict[str, Any]) -> None:
    """End a run, whether or not its supervisor lives, and answer with its final state."""
    run_dir = order["run_dir"]
    path = os.path.join(run_dir, "state.json")
    if not os.path.isdir(run_dir):
        answer("error", "there is no such run on this host")
        return
    state = read_json(path)
    if state.get("state") not in FINAL:
        write_stop(os.path.join(run_dir, "stop.json"), dict(order["stop"], kind=order["stop"].get("kind", "user")))
    record = read_json(os.path.join(run_dir, "record.json"))
    if not record.get("marker"):
        answer("state", {"schema": SCHEMA, "state": "stopped", "left_over": 0})  # it had not begun, and will not
        return
    deadline = time.monotonic() + float(order["stop"]["grace_s"]) + KILL_ROUNDS * 0.05 + 5
    if lives(state):
        send_signal([int(state["pid"])], signal.SIGTERM)
        while lives(state) and time.monotonic() < deadline:
            time.sleep(0.05)
    # A second look, by this other process; it also ends a supervisor that does not answer, guard and all.
    left = kill_all(record["marker"], 0)
    state = read_json(path)
    if state.get("state") not in FINAL:
        state = dict(state, schema=SCHEMA, state="stopped", stop=order["stop"], ended_at=time.time())
    if state.get("left_over") != left:
        state["left_over"] = left
        write_stop(path, state)
    answer("state", state)


def write_stop(path: str, value: Dict[str, Any]) -> None:
    """Write what a stop has to say; on a full disk it works without."""
    try:
        write_whole(path, value)
    except OSError:
        pass  # the supervisor ends on the signal alone, with its usual grace


def vouch(order: Dict[str, Any]) -> None:
    """Write down which hosts the controller does not reach."""
    write_stop(os.path.join(order["run_dir"], "vouched.json"), {"gone": order["gone"]})
    answer("done", value=True)


def main() -> None:
    """Do the one thing asked."""
    os.umask(0o077)
    order = json.loads(sys.stdin.buffer.readline())
    {"start": start, "stop": stop, "vouch": vouch}[order["do"]](order)


if __name__ == "__main__":
    main()

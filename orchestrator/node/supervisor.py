"""Owns one run on one host: starts torchrun, watches it, and leaves no process of the run behind.

`python supervisor.py RUN_DIR`, told of the run on standard input (see run_control.py). It becomes two processes. The
first, the guard, does nothing until the second, the supervisor proper (see host_part.py), is killed: then it ends what
that one leaves, and tells the other hosts. Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time

from orchestrator.node.agreement import FINAL
from orchestrator.node.evidence import Evidence
from orchestrator.node.heartbeat import Heartbeats
from orchestrator.node.host_part import HostPart
from orchestrator.node.reserve import RESERVES, give_room, keep_room
from orchestrator.node.run_processes import exit_code, kill_all
from orchestrator.node.whole_files import read_json, write_whole

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any, Dict

PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 15, 36  # <linux/prctl.h>
LIBC = ctypes.CDLL(None)


def guard(run_dir: str, order: Dict[str, Any]) -> None:
    """Start the supervisor proper; when it is killed, end what it leaves, and start another if restarts are left."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    LIBC.prctl(PR_SET_NAME, b"ddp-orch-guard", 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])  # the other one's
    again = bool(order["again"])
    evidence = Evidence(run_dir)
    beats = Heartbeats(order["env"]["DDP_ORCH_RUN"], order["host"], order["secret"])
    while True:
        pid = os.fork()
        if not pid:
            HostPart(run_dir, order, beats, again=again).see_through()
            sys.stdout.flush()
            os._exit(0)
        status = None
        while status is None:
            ended, found = os.waitpid(-1, 0)
            status = found if ended == pid else None
        if status == 0:
            return
        left = kill_all(order["marker"], os.getpid())
        state = read_json(os.path.join(run_dir, "state.json"))
        if state.get("state") in FINAL:
            return
        code = exit_code(status)
        how = "was ended by %s" % signal.Signals(-code).name if code < 0 else "failed: see supervisor.log"
        # One that failed by itself would fail again; one that is killed each time is not wanted.
        again = code < 0 and int(state.get("life", 0)) < int(order["max_restarts"])
        if not again:
            fail = {"what": "its supervisor %s" % how, "at": time.time()}
            state.update(state="failed", fail=fail, cause="its supervisor %s" % how, left_over=left,
                         evidence=evidence.found(), ended_at=time.time())  # fmt: skip
            give_room(run_dir, *RESERVES)
            try:
                write_whole(os.path.join(run_dir, "state.json"), state)
            except OSError:
                pass  # a full disk: then the run reads as lost
            beats.life = int(state.get("life", 0)) + 1
            beats.meet(read_json(os.path.join(run_dir, "peers.json")))
            beats.last_words({"state": "failed", "attempt": state.get("attempt", 0), "fail": fail})
            return


def main() -> None:
    """Be the guard and the supervisor."""
    os.umask(0o077)
    run_dir, order = sys.argv[1], json.loads(sys.stdin.buffer.readline())
    keep_room(run_dir)
    guard(run_dir, order)


if __name__ == "__main__":
    main()

"""Runs one rank: torchrun starts this file, and this file starts the user's script.

It stands between the two for four reasons. The rank's output goes to files of its own, named by the global rank,
whatever the version of torchrun does with logs. Its exact exit code or signal is written down where it happens. When
torchrun's agent is killed, the rank is killed with it: torchrun gives each worker a session of its own and forgets it.
And the script's arguments come from a file, since torchrun's argument parser eats a leading `--`.

By hand: RANK=0 LOCAL_RANK=0 python rank_entry.py, in a run folder that holds entry.json.
Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; end at once if it has died already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def write_whole(path: str, value: object) -> None:
    """Write JSON so that a reader sees the old file or the whole new one."""
    with open(path + ".new", "w") as stream:
        json.dump(value, stream)
    os.replace(path + ".new", path)


def start(argv: list[str], out: str, err: str) -> int:
    """Start the script in a process group of its own and return its pid."""
    me = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        # torchrun signals this file's group; the script gets each signal once, forwarded.
        os.setpgid(0, 0)
        die_with(me)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        for number, path in ((1, out), (2, err)):
            opened = os.open(path, flags, 0o600)
            os.dup2(opened, number)
            os.close(opened)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execvp(argv[0], argv)  # noqa: S606 - without a shell is the point
    except OSError as error:
        os.write(2, ("cannot start %s: %s\n" % (argv[0], error)).encode())
    finally:
        os._exit(127)


def wait_for(pid: int) -> int:
    """Wait for the script, forwarding signals; return its wait status."""
    while True:
        got = signal.sigwait([*FORWARDED, signal.SIGCHLD])
        if got != signal.SIGCHLD:
            try:
                os.killpg(pid, got)
            except ProcessLookupError:
                pass
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status


def main() -> None:
    """Run the rank and end as it ended."""
    run_dir = os.path.dirname(os.path.abspath(__file__))
    rank = int(os.environ["RANK"])
    agent = os.getppid()
    if agent == int(os.environ.get("DDP_ORCH_SUPERVISOR", "0")):
        sys.exit(1)  # torchrun has been killed already: the supervisor has inherited us
    die_with(agent)
    signal.pthread_sigmask(signal.SIG_BLOCK, [*FORWARDED, signal.SIGCHLD])
    with open(os.path.join(run_dir, "entry.json")) as stream:
        argv = [sys.executable, "-u", *json.load(stream)["argv"]]
    logs = os.path.join(run_dir, "logs", "rank%d" % rank)
    pid = start(argv, logs + ".out", logs + ".err")
    ranks = os.path.join(run_dir, "ranks")
    os.makedirs(ranks, exist_ok=True)
    facts = {"rank": rank, "local_rank": int(os.environ["LOCAL_RANK"]), "pid": pid, "started_at": time.time()}
    write_whole(os.path.join(ranks, "%d.json" % rank), facts)
    status = wait_for(pid)
    by_signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    code = -by_signal if by_signal else os.WEXITSTATUS(status)
    write_whole(os.path.join(ranks, "%d.json" % rank), dict(facts, exit_code=code, ended_at=time.time()))
    if by_signal:
        # End by the same signal, so that torchrun reports it. The script has left its core file, if any.
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if by_signal != signal.SIGKILL:
            signal.signal(by_signal, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.kill(os.getpid(), by_signal)
    sys.exit(code)


if __name__ == "__main__":
    main()

"""Runs one rank: torchrun starts this file, and this file starts the user's script.

It stands between the two for five reasons. The rank's output goes to files of its own, named by the global rank,
whatever the version of torchrun does with logs. Its exact exit code or signal is written down where it happens. When
torchrun's agent is killed, the rank is killed with it: torchrun gives each worker a session of its own and forgets it.
A script is asked to end once: torchrun repeats a TERM when another rank ends, and many scripts take a second one for
impatience. And the script's arguments come from a file, since torchrun's argument parser eats a leading `--`.

By hand: RANK=0 LOCAL_RANK=0 python rank_entry.py, in a run folder that holds entry.json.
Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

from orchestrator.node.run_processes import exit_code, start_of
from orchestrator.node.whole_files import read_json, write_whole

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any, Dict, List

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
NO_ROOM_S = 3.0  # on a full disk: until the supervisor has made room for the last words


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; end at once if it has died already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def log_stem(rank: int, attempt: int) -> str:
    """Return the name of a rank's log files without their ending; each attempt has its own."""
    return "rank%d.%d" % (rank, attempt) if attempt else "rank%d" % rank


def start(argv: List[str], out: str, err: str, hooks: str, words: str) -> int:
    """Start the script in a process group of its own and return its pid.

    Args:
        argv: what to execute.
        out: file for its standard output.
        err: file for its standard error.
        hooks: folder with our sitecustomize.py (see rank_hooks.py), or "".
        words: path that the hooks' files begin with.
    """
    me = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        # torchrun signals this file's group; the script gets each signal forwarded.
        os.setpgid(0, 0)
        die_with(me)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        for number, path in ((1, out), (2, err)):
            opened = os.open(path, flags, 0o600)
            os.dup2(opened, number)
            os.close(opened)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        env = dict(os.environ)
        if hooks:
            env["PYTHONPATH"] = os.pathsep.join(filter(None, [hooks, env.get("PYTHONPATH", "")]))
            env["DDP_ORCH_HOOKS"] = "%d:%s" % (os.getpid(), words)
        os.execvpe(argv[0], argv, env)  # noqa: S606 - without a shell is the point
    except OSError as error:
        os.write(2, ("cannot start %s: %s\n" % (argv[0], error)).encode())
    finally:
        os._exit(127)


def wait_for(pid: int) -> int:
    """Wait for the script, forwarding signals, TERM only once; return its wait status."""
    asked = False
    while True:
        got = signal.sigwait([*FORWARDED, signal.SIGCHLD])
        if got != signal.SIGCHLD and not (got == signal.SIGTERM and asked):
            asked = asked or got == signal.SIGTERM
            try:
                os.killpg(pid, got)
            except ProcessLookupError:
                pass
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status


def write_down(path: str, facts: Dict[str, Any]) -> None:
    """Write what is known of the rank; where there is no room, try again for a while, and do without."""
    end = time.monotonic() + NO_ROOM_S
    while time.monotonic() < end:
        try:
            write_whole(path, facts)
        except OSError:
            time.sleep(0.1)
        else:
            return


def main() -> None:
    """Run the rank and end as it ended."""
    run_dir = os.path.dirname(os.path.abspath(__file__))
    rank, attempt = int(os.environ["RANK"]), int(os.environ.get("DDP_ORCH_ATTEMPT", "0"))
    agent = os.getppid()
    if agent == int(os.environ.get("DDP_ORCH_SUPERVISOR", "0")):
        sys.exit(1)  # torchrun has been killed already: the supervisor has inherited us
    die_with(agent)
    signal.pthread_sigmask(signal.SIG_BLOCK, [*FORWARDED, signal.SIGCHLD])
    argv = [sys.executable, "-u", *read_json(os.path.join(run_dir, "entry.json"))["argv"]]
    ranks, hooks = os.path.join(run_dir, "ranks"), os.path.join(run_dir, "hooks")
    os.makedirs(ranks, exist_ok=True)
    logs = os.path.join(run_dir, "logs", log_stem(rank, attempt))
    pid = start(argv, logs + ".out", logs + ".err", hooks if os.path.isdir(hooks) else "", "%s/%d" % (ranks, rank))
    facts = {
        "rank": rank,
        "local_rank": int(os.environ["LOCAL_RANK"]),
        "pid": pid,
        "pid_start": start_of(pid),
        "entry_pid": os.getpid(),
        "entry_start": start_of(os.getpid()),
        "started_at": time.time(),
    }
    write_down("%s/%d.json" % (ranks, rank), facts)
    status = wait_for(pid)
    write_down("%s/%d.json" % (ranks, rank), dict(facts, exit_code=exit_code(status), ended_at=time.time()))
    if os.WIFSIGNALED(status):
        # End by the same signal, so that torchrun reports it. The script has left its core file, if any.
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if os.WTERMSIG(status) != signal.SIGKILL:
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.kill(os.getpid(), os.WTERMSIG(status))
    sys.exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main()

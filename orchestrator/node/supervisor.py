"""Owns one run on one host: starts torchrun, watches it, and leaves no process of the run behind.

Sent as a node program it takes one message:
    {"do": "start", ...}   make the run's files, start the supervisor in its own session, answer
                           {"started": {"pid", "beat_port"}}; then {"peers": {HOST: [ADDRESS, BEAT_PORT]}} is passed on
    {"do": "stop", ...}    end the run, answer {"state": its final state}
and as a file in the run folder, `python supervisor.py RUN_DIR`, it is the supervisor, told of the run on standard
input.

A process belongs to the run if it descends from the supervisor, which is a child subreaper, or has the run's random
marker in its environment; nothing is found by name. Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, Iterable

SCHEMA = 1
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36  # <linux/prctl.h>
FINAL = ("succeeded", "failed", "stopped")
SETTLE_S = 5.0  # after a good end, for what the script left in the background (an uploader, say) to finish by itself
AFTER_FAILURE_S = 2.0  # after a rank failed, for torchrun to say so and for the others to end by themselves
KILL_ROUNDS = 40  # of 0.05 s: a killed process is gone at once, unless the kernel holds it in a device or a dead NFS
LIBC = ctypes.CDLL(None)


def write_whole(path: str, value: Any) -> None:
    """Write JSON so that a power cut leaves the old file or the new one."""
    with open(path + ".new", "w") as stream:
        json.dump(value, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(path + ".new", path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_json(path: str) -> dict[str, Any]:
    """Read a JSON file; an empty object where there is none, or none that is whole."""
    try:
        with open(path) as stream:
            value = json.load(stream)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


# --- which processes belong to the run ---------------------------------------------------------------------------


def stat_of(pid: int) -> tuple[int, int, str] | None:
    """Return (parent, start time in ticks, state) of a process, or None when it is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[1]), int(fields[19]), fields[0].decode()


def is_same(pid: int, start: int) -> bool:
    """Tell whether a pid still is the process that started then, and is no zombie."""
    stat = stat_of(pid)
    return stat is not None and stat[1] == start and stat[2] != "Z"


def processes_of_run(marker: str, ancestor: int) -> set[int]:
    """Return the pids of the run, zombies and `ancestor` left out.

    Args:
        marker: the run's random marker.
        ancestor: pid whose descendants belong to the run, or 0.
    """
    parents: dict[int, int] = {}
    marked: set[int] = set()
    wanted = ("DDP_ORCH_MARKER=" + marker).encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        pid = int(name)
        stat = stat_of(pid)
        if stat is None or stat[2] == "Z":
            continue
        parents[pid] = stat[0]
        try:
            with open("/proc/%d/environ" % pid, "rb") as stream:
                if wanted in stream.read().split(b"\0"):
                    marked.add(pid)
        except OSError:
            pass  # another user's, or gone
    for pid in parents:
        above, seen = pid, set()
        while ancestor and above in parents and above not in seen:
            seen.add(above)
            above = parents[above]
            if above == ancestor:
                marked.add(pid)
                break
    return marked - {ancestor, os.getpid()}


def send_signal(pids: Iterable[int], number: int) -> None:
    """Signal processes that may be gone already."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def kill_all(marker: str, ancestor: int) -> int:
    """Kill every process of the run, and return how many are left after a second look."""
    for _ in range(KILL_ROUNDS):
        left = processes_of_run(marker, ancestor)
        reap()  # also those that ended by themselves: not every machine's init reaps
        if not left:
            return 0
        send_signal(left, signal.SIGKILL)
        time.sleep(0.05)
    return len(processes_of_run(marker, ancestor))


def reap() -> dict[int, int]:
    """Collect the exit codes of inherited children."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        ended[pid] = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


# --- the supervisor ----------------------------------------------------------------------------------------------


class Supervisor:
    """One run on this host, from the start of torchrun to the proof that nothing is left."""

    def __init__(self, run_dir: str, order: dict[str, Any]) -> None:
        self.run_dir = run_dir
        self.marker = order["marker"]
        self.order = order
        self.failed = False  # a rank of this host has failed, before anything was stopped
        own = stat_of(os.getpid())
        self.state: dict[str, Any] = {
            "schema": SCHEMA,
            "state": "running",
            "pid": os.getpid(),
            "pid_start": own[1] if own else 0,
            "started_at": time.time(),
        }

    def note(self, **changes: Any) -> None:
        """Write a change of state down."""
        self.state.update(changes)
        write_whole(os.path.join(self.run_dir, "state.json"), self.state)

    def environment(self) -> dict[str, str]:
        """Return what torchrun is started with: this login's environment, cleaned, and the run's own."""
        names, prefixes = set(self.order["unset"]), tuple(name for name in self.order["unset"] if name.endswith("_"))
        env = {name: value for name, value in os.environ.items() if name not in names and not name.startswith(prefixes)}
        theirs = os.environ.get("DDP_ORCH_LC_ALL", "")  # the C locale was for our own programs
        env.pop("LC_ALL", None)
        if theirs:
            env["LC_ALL"] = theirs
        env.update(self.order["env"])
        env["DDP_ORCH_MARKER"] = self.marker
        env["DDP_ORCH_SUPERVISOR"] = str(os.getpid())
        env["TORCHELASTIC_ERROR_FILE"] = os.path.join(self.run_dir, "error.json")
        return env

    def start_agent(self) -> subprocess.Popen[bytes]:
        """Start torchrun; it dies when this process dies."""
        me = os.getpid()

        def before_exec() -> None:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            if os.getppid() != me:
                os._exit(1)

        logs = os.path.join(self.run_dir, "logs")
        with open(os.path.join(logs, "agent.out"), "ab") as out, open(os.path.join(logs, "agent.err"), "ab") as err:
            return subprocess.Popen(
                self.order["argv"],
                cwd=self.order["cwd"],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=before_exec,  # noqa: PLW1509 - one thread only; the death signal must be set here
            )

    def watch(self) -> None:
        """See the run through to its end."""
        from heartbeat import Heartbeats  # type: ignore[import-not-found]  # lies beside this file in the run folder

        beats = Heartbeats(self.order["env"]["DDP_ORCH_RUN"], self.order["host"], self.order["secret"])
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        LIBC.prctl(PR_SET_NAME, b"ddp-orch", 0, 0, 0)
        watched = [signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
        signal.pthread_sigmask(signal.SIG_BLOCK, watched)
        try:
            agent = self.start_agent()
        except OSError as error:
            self.note(state="failed", cause="torchrun did not start: %s" % error, ended_at=time.time(), left_over=0)
            return
        self.note(agent_pid=agent.pid)
        answer("started", {"pid": os.getpid(), "beat_port": beats.port})
        code: int | None = None
        stop: dict[str, Any] | None = None
        give_up_at = float("inf")
        while code is None and stop is None and time.monotonic() < give_up_at:
            got = signal.sigtimedwait(watched, 0.5)
            code = reap().get(agent.pid)
            if got is not None and got.si_signo in (signal.SIGTERM, signal.SIGINT):
                stop = read_json(os.path.join(self.run_dir, "stop.json")) or {"why": "a signal", "grace_s": 30}
            if give_up_at == float("inf") and any(rank.get("exit_code") for rank in self.ranks().values()):
                # torchrun gives the other ranks of this host 30 s to end; their state is lost anyway.
                give_up_at = time.monotonic() + AFTER_FAILURE_S
                beats.last_words({"state": "failed"})
                self.failed = True
            if select.select([0], [], [], 0)[0] and (line := sys.stdin.buffer.readline()):
                beats.meet(json.loads(line)["peers"])
            beats.beat(self.state)
            beats.listen()
            if not self.failed:  # the others end because of us, and say so: that is no news
                stop = stop or beats.trouble()
        if stop is not None:
            beats.last_words({"state": "stopping", "stop": stop})
            code = self.stop(agent.pid, stop)
        elif code == 0:
            self.settle(time.monotonic() + SETTLE_S)
        self.finish(code, stop)
        beats.last_words(self.state)

    def ranks(self) -> dict[str, dict[str, Any]]:
        """Return what is known of each rank that has started here, by its number."""
        folder = os.path.join(self.run_dir, "ranks")
        names = [name for name in os.listdir(folder) if name.endswith(".json")]
        return {name[: -len(".json")]: read_json(os.path.join(folder, name)) for name in names}

    def settle(self, deadline: float) -> None:
        """Wait until nothing of the run is left, or the deadline has passed."""
        while processes_of_run(self.marker, os.getpid()) and time.monotonic() < deadline:
            time.sleep(0.05)
            reap()

    def stop(self, agent_pid: int, stop: dict[str, Any]) -> int | None:
        """End torchrun and its workers: TERM, a wait, KILL. Return torchrun's exit code, if it had time to end."""
        self.note(state="stopping", stop=stop)
        deadline = time.monotonic() + float(stop.get("grace_s", 0))
        code: int | None = None
        if stop.get("grace_s", 0) > 0:
            send_signal([agent_pid], signal.SIGTERM)  # torchrun passes it on to its workers
        while time.monotonic() < deadline and processes_of_run(self.marker, os.getpid()):
            got = signal.sigtimedwait([signal.SIGCHLD, signal.SIGTERM, signal.SIGINT], 0.1)
            code = reap().get(agent_pid, code)
            if code is not None:  # torchrun has waited for its workers; what is left was not meant to end
                deadline = min(deadline, time.monotonic() + 0.5)
            if got is not None and got.si_signo != signal.SIGCHLD:
                newer = read_json(os.path.join(self.run_dir, "stop.json"))
                deadline = min(deadline, time.monotonic() + float(newer.get("grace_s", 0)))
        return code

    def finish(self, code: int | None, stop: dict[str, Any] | None) -> None:
        """Kill what is left, look again, and write the final state."""
        left = kill_all(self.marker, os.getpid())
        state = "failed" if self.failed else "stopped" if stop is not None else "succeeded" if code == 0 else "failed"
        shutil.rmtree(os.path.join(self.run_dir, "torchrun"), ignore_errors=True)  # torchrun's own, empty, log folders
        self.note(state=state, agent_exit=code, ranks=self.ranks(), left_over=left, ended_at=time.time())


# --- as a node program -------------------------------------------------------------------------------------------


def answer(name: str, value: Any) -> None:
    """Send one message to whoever asked."""
    line = json.dumps({name: value}) + "\n"
    try:
        os.write(1, line.encode())
    except OSError:
        pass  # the one who asked is gone; the run goes on


def start(order: dict[str, Any], text: bytes) -> None:
    """Make the run's files and start the supervisor, detached from this login."""
    run_dir = order["run_dir"]
    for folder in ("logs", "ranks"):
        os.makedirs(os.path.join(run_dir, folder), mode=0o700)
    programs = dict(order.pop("programs"), supervisor=text.decode())
    for name, content in programs.items():
        with open(os.path.join(run_dir, name + ".py"), "x") as stream:
            stream.write(content)
    write_whole(os.path.join(run_dir, "entry.json"), {"argv": order.pop("script_argv")})
    # The record first, then the look for a stop; `stop` does it the other way around, so one of the two sees the other.
    write_whole(os.path.join(run_dir, "record.json"), dict(order.pop("record"), marker=order["marker"]))
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


def tail_of(path: str) -> str:
    """Return the last line of a file that may not be there."""
    try:
        with open(path, errors="replace") as stream:
            return (stream.read().strip().splitlines() or ["it left no word"])[-1]
    except OSError as error:
        return str(error)


def stop(order: dict[str, Any]) -> None:
    """End a run, whether or not its supervisor lives, and answer with its final state."""
    run_dir = order["run_dir"]
    path = os.path.join(run_dir, "state.json")
    if not os.path.isdir(run_dir):
        answer("error", "there is no such run on this host")
        return
    state = read_json(path)
    if state.get("state") not in FINAL:
        write_whole(os.path.join(run_dir, "stop.json"), order["stop"])
    record = read_json(os.path.join(run_dir, "record.json"))
    if not record.get("marker"):
        answer("state", {"schema": SCHEMA, "state": "stopped", "left_over": 0})  # it had not begun, and will not
        return
    deadline = time.monotonic() + float(order["stop"]["grace_s"]) + KILL_ROUNDS * 0.05 + 5
    pid, start_ticks = state.get("pid", 0), state.get("pid_start", 0)
    if pid and is_same(pid, start_ticks):
        send_signal([pid], signal.SIGTERM)
        while is_same(pid, start_ticks) and time.monotonic() < deadline:
            time.sleep(0.05)
        if is_same(pid, start_ticks):
            send_signal([pid], signal.SIGKILL)  # it does not answer: its death signal ends the others
    # A second look, by this other process; where the supervisor was killed, also the first.
    left = kill_all(record["marker"], 0)
    state = read_json(path)
    if state.get("state") not in FINAL:
        state = dict(state, schema=SCHEMA, state="stopped", stop=order["stop"], ended_at=time.time())
    if state.get("left_over") != left:
        state["left_over"] = left
        write_whole(path, state)
    answer("state", state)


def main() -> None:
    """Be the supervisor, or the node program that starts or stops one."""
    os.umask(0o077)
    if len(sys.argv) == 2 and os.path.isdir(sys.argv[1]):
        order = json.loads(sys.stdin.buffer.readline())
        Supervisor(sys.argv[1], order).watch()
        return
    order = json.loads(sys.stdin.buffer.readline())
    if order["do"] == "start":
        start(order, globals()["program_text"])
    else:
        stop(order)


if __name__ == "__main__":
    main()

"""One attempt of a run on one host: one torchrun and its ranks, from the start to the last process.

Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time

from orchestrator.node import port_holder
from orchestrator.node.run_processes import is_same, kill_all, processes_of_run, reap, send_signal
from orchestrator.node.whole_files import read_json

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
PORT_FREE_S = 5.0  # for the port of the attempt before
NEVER_S = "86400"
LEFT_S = 0.5  # for what is left when a host's ranks have ended
AGENT_IDLE_S = 0.4  # torchrun looks at its ranks ten times a second, and then says what became of them
LIBC = ctypes.CDLL(None)


class Attempt:
    """One torchrun on this host.

    Attributes:
        number: 0 for the first of the run.
        members: names of the hosts that take part, in node_rank order.
        resume: name of the checkpoint to go on from, or "".
        agent_pid: torchrun's, or 0.
        agent_exit: its exit code, negative for a signal; None while it runs.
    """

    def __init__(self, run_dir: str, order: Dict[str, Any], number: int, members: List[str], resume: str) -> None:
        """Prepare an attempt; see launch_run._order for the order."""
        self.run_dir, self.order = run_dir, order
        self.number, self.members, self.resume = number, members, resume
        self.agent_pid = 0
        self.agent_exit: Optional[int] = None
        self._idle_since = 0.0  # no rank of it lives

    @property
    def checkpoints(self) -> str:
        """The folder where the script writes its checkpoints."""
        return os.path.join(self.order["cwd"], "checkpoints")

    def path(self, *names: str) -> str:
        """Return a path in the run's folder."""
        return os.path.join(self.run_dir, *names)

    def environment(self) -> Dict[str, str]:
        """Return what torchrun is started with: this login's environment, cleaned, and the run's own."""
        names, prefixes = set(self.order["unset"]), tuple(name for name in self.order["unset"] if name.endswith("_"))
        env = {name: value for name, value in os.environ.items() if name not in names and not name.startswith(prefixes)}
        theirs = os.environ.get("DDP_ORCH_LC_ALL", "")  # the C locale was for our own programs
        env.pop("LC_ALL", None)
        if theirs:
            env["LC_ALL"] = theirs
        env.update(self.order["env"])
        resume = os.path.join(self.checkpoints, self.resume)
        env["DDP_ORCH_CHECKPOINTS"] = self.checkpoints
        env["DDP_ORCH_RESUME"] = resume if self.resume and os.path.exists(resume) else ""
        env["DDP_ORCH_PROGRESS"] = self.path("progress")
        env["DDP_ORCH_ATTEMPT"] = str(self.number)
        env["DDP_ORCH_MARKER"] = self.order["marker"]
        env["DDP_ORCH_SUPERVISOR"] = str(os.getpid())
        env["TORCHELASTIC_ERROR_FILE"] = self.path("error.json")
        env["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = NEVER_S  # the supervisor decides how long workers have to end
        return env

    def argv(self) -> List[str]:
        """Return torchrun's command: a later attempt has a rendezvous id of its own, and maybe fewer hosts."""
        if not self.number:
            return list(self.order["argv"])
        address = next(host["address"] for host in self.order["hosts"] if host["name"] == self.members[0])
        new = {
            "--nnodes": len(self.members),
            "--node_rank": self.members.index(self.order["host"]),
            "--rdzv_id": "%s.%d" % (self.order["env"]["DDP_ORCH_RUN"], self.number),
            "--master_addr": address,
        }
        split = [(word, word.partition("=")[0]) for word in self.order["argv"]]
        return ["%s=%s" % (name, new[name]) if name in new else word for word, name in split]

    def start(self) -> None:
        """Start torchrun; it dies when this process dies.

        Raises:
            OSError: it cannot be started; the text says why.
        """
        if self.members[0] == self.order["host"]:
            self._await_port()
        me = os.getpid()

        def before_exec() -> None:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            if os.getppid() != me:
                os._exit(1)

        with open(self.path("logs", "agent.out"), "ab") as out, open(self.path("logs", "agent.err"), "ab") as err:
            agent = subprocess.Popen(
                self.argv(),
                cwd=self.order["cwd"],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=before_exec,  # noqa: PLW1509 - one thread only; the death signal must be set here
            )
        self.agent_pid = agent.pid

    def _await_port(self) -> None:
        """See that the rendezvous port is still free; right after an attempt that failed, wait a little for it.

        Raises:
            OSError: somebody has it.
        """
        port = int(self.order["master_port"])
        end = time.monotonic() + (PORT_FREE_S if self.number else 0)
        while port_holder.is_taken(port):
            if time.monotonic() > end:
                who = port_holder.holder_of(port)
                named = "%s (pid %s, %s)" % (who["command"], who["pid"], who["user"]) if "pid" in who else "somebody"
                raise OSError("port %d was taken after the check, by %s" % (port, named))
            time.sleep(0.1)

    def look(self) -> None:
        """See whether torchrun has ended, and reap what this process has inherited."""
        self.agent_exit = reap().get(self.agent_pid, self.agent_exit)

    def ranks(self) -> Dict[str, Dict[str, Any]]:
        """Return what is known of each rank that has started, by its number."""
        found: Dict[str, Dict[str, Any]] = {}
        for name in os.listdir(self.path("ranks")):
            rank, _, kind = name.partition(".")
            if kind in ("json", "error.json"):
                facts = read_json(self.path("ranks", name))
                found.setdefault(rank, {}).update({"error": facts} if kind == "error.json" and facts else facts)
        return {rank: facts for rank, facts in found.items() if "rank" in facts}

    def failure(self, ranks: Dict[str, Dict[str, Any]]) -> Dict[str, Any]:
        """Return what failed first here, for the others: {"what", "at"}, with "rank" where it was one; or {}."""
        ended = [rank for rank in ranks.values() if rank.get("exit_code")]
        if ended:
            first = min(ended, key=lambda rank: float((rank.get("error") or {}).get("at", rank["ended_at"])))
            error = first.get("error") or {}
            what = "%s at %s" % (error["type"], error["where"]) if error else "exit code %d" % first["exit_code"]
            return {"rank": first["rank"], "what": what[:100], "at": error.get("at", first["ended_at"])}
        if self.agent_exit:
            return {"what": "torchrun ended with %d" % self.agent_exit, "at": time.time()}
        return {}

    def processes(self) -> bool:
        """Tell whether anything of the run is left on this host, beside its supervisor."""
        return bool(processes_of_run(self.order["marker"], os.getpid(), [os.getppid()]))

    def end(self, grace_s: float, meanwhile: Callable[[], None]) -> int:
        """End torchrun and its workers: TERM, a wait, KILL. Return how many are left after a second look.

        Args:
            grace_s: for them to end by themselves; 0 kills at once. A TERM or INT that arrives meanwhile, with a newer
                stop.json, shortens it.
            meanwhile: called every tenth of a second.
        """
        deadline = time.monotonic() + grace_s
        if grace_s > 0:
            self._ask_to_end()
        while time.monotonic() < deadline and self.processes():
            if self._agent_is_idle():
                # It may be deep in a wait for the ranks of other hosts, where no signal reaches it.
                send_signal([self.agent_pid], signal.SIGTERM)
                deadline = min(deadline, time.monotonic() + LEFT_S)
            got = signal.sigtimedwait([signal.SIGCHLD, signal.SIGTERM, signal.SIGINT], 0.1)
            self.look()
            meanwhile()
            if self.agent_exit is not None:  # torchrun has waited for its workers; what is left was not meant to end
                deadline = min(deadline, time.monotonic() + LEFT_S)
            if got is not None and got.si_signo != signal.SIGCHLD:
                newer = read_json(self.path("stop.json"))
                deadline = min(deadline, time.monotonic() + float(newer.get("grace_s", 0)))
        left = kill_all(self.order["marker"], os.getpid(), [os.getppid()])
        shutil.rmtree(self.path("torchrun"), ignore_errors=True)  # torchrun's own, empty, log folders
        return left

    def _ask_to_end(self) -> None:
        """Send TERM to every rank, past torchrun, which would kill them after a time of its own."""
        alive = self._alive()
        send_signal([self.agent_pid] if alive is None else alive, signal.SIGTERM)

    def _agent_is_idle(self) -> bool:
        """Tell whether torchrun is still there a moment after its ranks have ended."""
        if self.agent_exit is not None or self._alive() != []:
            return False
        self._idle_since = self._idle_since or time.monotonic()
        return time.monotonic() - self._idle_since > AGENT_IDLE_S

    def _alive(self) -> Optional[List[int]]:
        """Return the pids of the ranks that live; None while torchrun is still on its way to start them."""
        ranks = self.ranks().values()
        nproc = next(int(host["nproc"]) for host in self.order["hosts"] if host["name"] == self.order["host"])
        if len(ranks) != nproc:
            return None
        return [int(rank["entry_pid"]) for rank in ranks if is_same(rank["entry_pid"], rank["entry_start"])]

"""Performs one row of the fault table on virtual hosts, and measures what comes of it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import fault_sight as sight
from fault_injection import ON_HOST
from fault_rows import GONE, START, Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.lab import Lab

ROOT = Path(__file__).resolve().parents[2]
POLL_S = 0.1
REACH_S = 90.0  # until every rank is at the moment; torch alone takes ten seconds on a busy machine
CLEAN_CAP_S = 60.0  # a host that is not clean by then is taken to stay as it is
END_CAP_S = 120.0  # for the controller to end, from the fault on
SETTLE_S = 0.5  # for the ranks to be inside the call that the victim holds up
BETWEEN_INTERRUPTS_S = 1.0
CLOCK_AHEAD_S = 3600
MEMORY = "300m"  # beside what the rank has already
SECOND_PORT = 29600
HOLD_PORT = (
    "import socket, sys; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
    "sys.stdin.readline(); s.bind(('', 29500)); s.listen(); print('up', flush=True); sys.stdin.read()"
)


@dataclass(frozen=True)
class Result:
    """What came of a row.

    Attributes:
        row: its name.
        details: its victim, and the like.
        wrong: what was not as it has to be; empty is well.
        cause: what the controller named last, or "".
        exit_code: the controller's; None where it did not end.
        others_s: until the hosts that were not hit were clean, from when the fault could be seen.
        hit_s: until the host that was hit was clean.
        controller_s: until the controller had ended.
        left: processes of runs on the hosts at the end.
        written: numbered lines of all ranks.
        lost: of these, not seen here.
        doubled: of these, seen here twice.
        wall_s: the whole trial.
    """

    row: str
    details: str
    wrong: tuple[str, ...]
    cause: str
    exit_code: int | None
    others_s: float | None
    hit_s: float | None
    controller_s: float | None
    left: tuple[str, ...]
    written: int
    lost: int
    doubled: int
    wall_s: float

    def to_json(self) -> str:
        """Return it as one line."""
        return json.dumps({"schema": 1, **asdict(self)})


def mend(lab: Lab) -> None:
    """Make both hosts as new: power, cable, clock, room, and not one process or run of before."""
    for name in lab.hosts:
        lab.heal(name)
        lab.kill(name)
        lab.clear(name)
        home = lab.folder / name / "disk" / "root-home"
        shutil.rmtree(home / "ddp-orch", ignore_errors=True)
        shutil.rmtree(home / "by-hand", ignore_errors=True)
    for name in lab.hosts:
        lab.start(name)
        lab.clock(name, 0)


class Trial:
    """One row, once."""

    def __init__(self, lab: Lab, row: Row, folder: Path, *, slack: float = 1.0) -> None:
        """Prepare.

        Args:
            lab: two hosts, which the trial mends first.
            row: what to do.
            folder: an empty one for the trial's own files; what was printed stays there.
            slack: how many times longer the hosts may take than the row says: a machine that others use too is slow.
        """
        self.lab, self.row, self.fault, self.slack = lab, row, row.fault, slack
        self.folder = folder
        self.hosts = list(lab.hosts)
        counts = self.fault.processes
        self.host_of = {rank: self.hosts[0] if rank < counts[0] else self.hosts[1] for rank in range(sum(counts))}
        self.hit = self.host_of[self.fault.victim]
        self.others = [name for name in self.hosts if name != self.hit]
        self._bystanders: set[int] = set()
        self._cleanup = contextlib.ExitStack()
        self._was_there: set[int] = set()

    # --- the controller ---

    def _environ(self) -> dict[str, str]:
        clear = ("DDP_ORCH_", "LC_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(clear)}
        return {
            **kept,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
            "XDG_STATE_HOME": str(self.folder / "state"),
            "DDP_ORCH_INVENTORY": str(self.lab.inventory_path),
            "DDP_ORCH_SSH_CONFIG": str(self.lab.ssh_config_path),
        }

    def _words(self, moment: str, fault: str, habits: tuple[str, ...]) -> list[str]:
        words = ["--moment", moment, "--victim", str(self.fault.victim), "--fault", fault]
        return words + [word for habit in habits for word in ("--habit", habit)]

    def _start(self, name: str, words: list[str], *, inventory: Path, options: tuple[str, ...] = (),
               wrap: tuple[str, ...] = (), terminal: int | None = None) -> subprocess.Popen[bytes]:  # fmt: skip
        """Start `ddp-orch run` in a session of its own; its output goes to files NAME.out and NAME.err."""
        argv = [*wrap, sys.executable, "-m", "orchestrator.cli", "run", "-i", str(inventory), *options]
        argv += ["fault_subject.py", "--", *words]

        def before_exec() -> None:
            # Ignored where this was started in the background, or by nohup.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            if terminal is not None:
                fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

        with (self.folder / f"{name}.out").open("wb") as out, (self.folder / f"{name}.err").open("wb") as err:
            started = subprocess.Popen(
                argv, cwd=self.folder / "project", env=self._environ(), stdout=out, stderr=err, start_new_session=True,
                stdin=subprocess.DEVNULL if terminal is None else terminal, preexec_fn=before_exec,  # noqa: PLW1509
            )  # fmt: skip
        self._cleanup.callback(_end, started)
        return started

    def _ddp(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        argv = [sys.executable, "-m", "orchestrator.cli", *words]
        return subprocess.run(
            argv, cwd=self.folder / "project", env=self._environ(), capture_output=True, check=False, timeout=90
        )

    def _inventory(self, port: int = 29500) -> Path:
        text = self.lab.inventory_path.read_text()
        for name, count in zip(self.hosts, self.fault.processes, strict=True):
            address = f"    address: {self.lab.hosts[name].address}\n"
            text = text.replace(address, f"{address}    processes: {count}\n")
        path = self.folder / f"inventory-{port}.yaml"
        path.write_text(f"rendezvous:\n  port: {port}\n{text}")
        return path

    def printed(self, name: str) -> bytes:
        """Return what a controller has printed."""
        path = self.folder / name
        return path.read_bytes() if path.exists() else b""

    # --- the row ---

    def perform(self) -> Result:
        """Do it all; nothing is left of it on this machine, whatever becomes of it."""
        began = time.monotonic()
        with self._cleanup:
            mend(self.lab)
            (self.folder / "project").mkdir(parents=True)
            shutil.copy(Path(__file__).with_name("fault_subject.py"), self.folder / "project")
            return self._perform(began)

    def _perform(self, began: float) -> Result:
        wrong: list[str] = []
        other_run = self._start_other_run() if self.fault.name == "two-runs" else None
        self._place_bystanders()
        self._prepare_fault()
        controller = self._start_controller()
        if not self._reach(controller):
            wrong.append(f"the moment was not reached: {self._last_words()}")
            seen_at = time.monotonic()
        else:
            seen_at = self._inflict(controller)
            if self.fault.survives:
                self._go()
        clean_at, ended_at, left = self._watch(controller, seen_at)
        if self.fault.exit_code == GONE:
            self._follow_on(wrong)
        if other_run is not None:
            self._finish_other_run(other_run, wrong)
        self._missing_bystanders(wrong)
        # While it still reads, what it has not read yet is not lost.
        lines = sight.LineCount() if controller.poll() is None else self._count_lines(wrong)
        cause = self._cause()
        others = [clean_at.get(name) for name in self.others]
        result = Result(
            row=self.row.name,
            details=self.row.details,
            wrong=(),
            cause=cause,
            exit_code=controller.poll(),
            others_s=None if None in others else round(max(at for at in others if at is not None) - seen_at, 1),
            hit_s=None if clean_at.get(self.hit) is None else round(clean_at[self.hit] - seen_at, 1),
            controller_s=None if ended_at is None else round(ended_at - seen_at, 1),
            left=left,
            written=lines.written,
            lost=lines.lost,
            doubled=lines.doubled,
            wall_s=round(time.monotonic() - began, 1),
        )
        return replace(result, wrong=(*wrong, *self._judge(result)))

    def _start_controller(self) -> subprocess.Popen[bytes]:
        wrap: tuple[str, ...] = ()
        terminal = None
        if self.fault.name == "disk-controller":
            (self.folder / "state").mkdir()
            mount = f'mount -t tmpfs -o size=1m tmpfs "{self.folder / "state"}" && exec "$@"'
            wrap = ("unshare", "--mount", "sh", "-c", mount, "sh")  # the mount goes with the controller
        if self.fault.name == "terminal-closed":
            self._terminal, terminal = pty.openpty()
        words = self._words("outside" if self.row.moment == START else self.row.moment, self.fault.itself,
                            self.fault.habits)  # fmt: skip
        started = self._start("run", words, inventory=self._inventory(), options=self.fault.options, wrap=wrap,
                              terminal=terminal)  # fmt: skip
        if terminal is not None:
            os.close(terminal)
        return started

    def _place_bystanders(self) -> None:
        """Start a process of the same user on each host that no run may touch, and note all that is there."""
        self._waiting: dict[str, int] = {}
        sleep = ("sleep", str(86400 + os.getpid()))
        self._cleanup.callback(self._end_bystanders, sleep)
        for name in self.hosts:
            self._cleanup.callback(_end, subprocess.Popen(self.lab.exec(name, sleep)))
            _until(partial(self._find, name, sleep), 10)
            self._waiting[name] = self._find(name, sleep)
        self._bystanders |= set(self._waiting.values())
        for processes in sight.all_processes(self.lab).values():
            self._bystanders |= set(sight.of_runs(processes))

    def _end_bystanders(self, args: tuple[str, ...]) -> None:
        for name in self.hosts:
            if pid := self._find(name, args):
                os.kill(pid, signal.SIGKILL)

    def _find(self, host: str, args: tuple[str, ...]) -> int:
        return next((pid for pid, one in sight.all_processes(self.lab)[host].items() if one.args == args), 0)

    def _missing_bystanders(self, wrong: list[str]) -> None:
        power_cut = {self.hit} if self.fault.name.startswith("power") else set()
        there = sight.all_processes(self.lab)
        wrong += [
            f"a process that was none of the run's is gone from {name}"
            for name, pid in self._waiting.items()
            if name not in power_cut and pid not in there[name]
        ]

    def _prepare_fault(self) -> None:
        if self.fault.name.startswith("clock"):
            self.lab.clock(self.hit, CLOCK_AHEAD_S)
        if self.fault.name == "port-taken":
            argv = self.lab.exec(self.hosts[0], ["python3", "-c", HOLD_PORT])
            self._port_holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._cleanup.callback(_end, self._port_holder)
            wanted = ("python3", "-c", HOLD_PORT)
            _until(lambda: self._find(self.hosts[0], wanted), 10)
            self._bystanders.add(self._find(self.hosts[0], wanted))

    def _reach(self, controller: subprocess.Popen[bytes]) -> bool:
        """Wait until every rank is at the moment."""
        if self.row.moment == START:
            return _until(lambda: b"\nsending " in self.printed("run.err") or controller.poll() is not None, REACH_S)

        def there() -> bool:
            folders = self._folders()
            return len(folders) == len(self.hosts) and all(
                sight.announced(folders[host], rank, self.row.moment) for rank, host in self.host_of.items()
            )

        reached = _until(lambda: there() or controller.poll() is not None, REACH_S) and there()
        if reached and not self.fault.itself:
            time.sleep(SETTLE_S + self.row.delay_s)
        return reached

    def _folders(self) -> dict[str, Path]:
        """Return each host's folder of this run, and not of the other one."""
        named = re.search(rb"starting run (\S+):", self.printed("run.err"))
        return sight.run_folders(self.lab, named[1].decode()) if named else {}

    def _go(self) -> None:
        """Let ranks go on that wait."""
        for folder in self._folders().values():
            with contextlib.suppress(OSError):
                (folder / "work" / "go").touch()

    # --- faults ---

    def _inflict(self, controller: subprocess.Popen[bytes]) -> float:
        """Do it, and return when it could be seen: where a process ends, its end."""
        if self.fault.itself:
            return self._wait_for_own_fault()
        if hit := ON_HOST.get(self.fault.name):
            hit(self.lab, self.hit, self._mine(sight.all_processes(self.lab)[self.hit]))
            if self.fault.name == "disk-host":
                self._go()
                _until(lambda: not self._victim_lives(), CLEAN_CAP_S, every_s=0.05)  # its next word finds no room
        else:
            self._hit_controller(self.fault.name, controller)
        return time.monotonic()

    def _hit_controller(self, name: str, controller: subprocess.Popen[bytes]) -> None:
        if name.startswith("ctrl-c"):
            os.killpg(controller.pid, signal.SIGINT)
            if name == "ctrl-c-twice":
                time.sleep(BETWEEN_INTERRUPTS_S)
                os.killpg(controller.pid, signal.SIGINT)
        elif name == "controller-killed":
            os.killpg(controller.pid, signal.SIGKILL)
        elif name == "terminal-closed":
            os.close(self._terminal)
        elif name == "disk-controller":
            self._fill_controllers_disk(controller.pid)
        elif name == "port-taken":
            if self._port_holder.stdin is None or self._port_holder.stdout is None:
                raise AssertionError
            self._port_holder.stdin.write(b"\n")
            self._port_holder.stdin.flush()
            self._port_holder.stdout.readline()

    def _mine(self, processes: dict[int, sight.Process]) -> dict[int, sight.Process]:
        return {pid: one for pid, one in processes.items() if pid not in self._bystanders}

    def _wait_for_own_fault(self) -> float:
        if self.fault.itself == "memory":
            self.lab.memory(self.hit, MEMORY)
            self._go()
        log = self._folders()[self.hit]
        _until(lambda: b"\nfault: " in b"\n" + sight.log_of(log, self.fault.victim), REACH_S)
        if self.fault.itself == "exit0":
            self._go()  # the others have to miss it
        if self.fault.itself != "stopped":
            _until(lambda: not self._victim_lives(), CLEAN_CAP_S, every_s=0.05)
        return time.monotonic()

    def _victim_lives(self) -> bool:
        mine = self._mine(sight.all_processes(self.lab)[self.hit])
        return sight.rank_process(mine, self.fault.victim) is not None

    def _fill_controllers_disk(self, pid: int) -> None:
        filler = Path(f"/proc/{pid}/root{self.folder / 'state'}/filler")
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as stream:
            while True:
                stream.write(bytes(4096))

    def _start_other_run(self) -> subprocess.Popen[bytes]:
        other = self._start("other", self._words("outside", "", ()), inventory=self._inventory(SECOND_PORT))

        def waits() -> bool:
            folders = sight.run_folders(self.lab)
            return len(folders) == 2 and all(
                sight.announced(folders[host], rank, "outside") for rank, host in self.host_of.items()
            )

        _until(lambda: waits() or other.poll() is not None, REACH_S)
        self._other_folders = sight.run_folders(self.lab)
        return other

    def _finish_other_run(self, other: subprocess.Popen[bytes], wrong: list[str]) -> None:
        for folder in self._other_folders.values():
            (folder / "work" / "go").touch()
        if not _until(lambda: other.poll() is not None, CLEAN_CAP_S) or other.returncode != 0:
            last = self.printed("other.err").decode(errors="replace").splitlines()[-1:]
            wrong.append(f"the other run ended with {other.poll()}: {last}")

    # --- what came of it ---

    def _watch(
        self, controller: subprocess.Popen[bytes], seen_at: float
    ) -> tuple[dict[str, float], float | None, tuple[str, ...]]:
        """Look at the hosts until all are clean and the controller has ended; return when, and what is left."""
        clean_at: dict[str, float] = {}
        ended_at: float | None = None
        cap_s = CLEAN_CAP_S + (30.0 if self.fault.habits == ("flood",) else 0.0)
        while True:
            now = time.monotonic()
            if ended_at is None and controller.poll() is not None:
                ended_at = now
            left = []
            for name, processes in sight.all_processes(self.lab).items():
                mine = sight.of_runs(processes, self._bystanders)
                left += [f"{name}: {process}" for process in mine.values()]
                if mine:
                    clean_at.pop(name, None)
                else:
                    clean_at.setdefault(name, now)
            hosts_done = len(clean_at) == len(self.hosts) or now - seen_at > cap_s
            if hosts_done and (ended_at is not None or now - seen_at > END_CAP_S):
                return clean_at, ended_at, tuple(left)
            time.sleep(POLL_S)

    def _follow_on(self, wrong: list[str]) -> None:
        """Read the run from a new controller, whose own record of it is another."""
        logs = self._ddp("logs", "--follow")
        (self.folder / "logs.out").write_bytes(logs.stdout)
        run = json.loads(self._ddp("ps", "--all", "--json").stdout or b'{"runs": []}')["runs"]
        if not run or run[0]["state"] != "succeeded":
            wrong.append(f"ps calls the run {run[0]['state'] if run else 'unknown'}")

    def _count_lines(self, wrong: list[str]) -> sight.LineCount:
        """Compare what each rank wrote with what was shown here, and with the copy that is kept here."""
        total = sight.LineCount()
        screen = self.printed("logs.out" if self.fault.exit_code == GONE else "run.out")
        run = next(iter(self._folders().values()), Path("-")).parent.name
        copies = self.folder / "state" / "ddp-orch" / "runs" / run / "logs"
        keeps_copies = self.fault.exit_code != GONE and self.fault.name != "disk-controller"
        for rank, host in self.host_of.items():
            if (folder := self._folders().get(host)) is None:
                continue
            written = sight.log_of(folder, rank)
            shown = sight.compare_lines(written, screen, rank)
            copied = sight.compare_lines(written, _copy(copies, rank), rank) if keeps_copies else shown
            worst = max(shown, copied, key=lambda count: count.lost)
            if host == self.hit and self.fault.silent:
                worst = sight.LineCount(worst.written, 0, worst.doubled)
            doubled = max(shown.doubled, copied.doubled)
            wrong += [f"rank {rank}: {what}" for what in worst.examples]
            if keeps_copies and not (host == self.hit and self.fault.silent) and _copy(copies, rank) != written:
                wrong.append(f"rank {rank}: the copy here is not what the host has")
            total = sight.LineCount(total.written + worst.written, total.lost + worst.lost, total.doubled + doubled)
        return total

    def _cause(self) -> str:
        lines = self.printed("run.err").decode(errors="replace").splitlines()
        said = [re.match(r"(?:cause|error): (.*)", line) for line in reversed(lines)]  # an error where it never started
        return next((line[1] for line in said if line), "")

    def _last_words(self) -> str:
        return " / ".join(self.printed("run.err").decode(errors="replace").splitlines()[-2:])

    def _judge(self, result: Result) -> list[str]:
        wrong = []
        fault = self.fault
        wanted = fault.cause.format(rank=fault.victim, host=self.hit, first=self.hosts[0])
        if fault.cause and not re.match(wanted, result.cause):
            wrong.append(f"the cause is not: {wanted}")
        if not fault.cause and result.cause:
            wrong.append("there is no cause to name")
        codes = (GONE, -signal.SIGHUP, 129) if fault.exit_code == GONE else (fault.exit_code,)
        if result.exit_code is None:
            wrong.append(f"the controller had not ended after {END_CAP_S:.0f} s")
        elif result.exit_code not in codes:
            wrong.append(f"the exit code is {result.exit_code}, not {fault.exit_code}")
        if result.left:
            wrong.append(f"{len(result.left)} processes are left: {'; '.join(result.left)[:300]}")
        if result.lost or result.doubled:
            wrong.append(f"{result.lost} lines are lost and {result.doubled} doubled")
        if self.row.moment != START and result.exit_code is not None and not result.written:
            wrong.append("no line was written, so that none could be lost")
        limit_s = self.row.others_within_s * self.slack + 2 * POLL_S  # what the looks themselves may add
        timed = {"the others were": result.others_s}
        if fault.silent:  # the cut-off host has to end its own part
            timed[f"{self.hit} itself was"] = result.hit_s
        wrong += [
            f"{who} clean after {seconds} s, not {self.row.others_within_s:.0f} s"
            for who, seconds in timed.items()
            if not fault.survives and seconds is not None and seconds > limit_s
        ]
        return wrong


def _copy(folder: Path, rank: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob(f"rank{rank}.*out")))


def _until(condition: Callable[[], object], limit_s: float, *, every_s: float = POLL_S) -> bool:
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(every_s)
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process that this trial started; inside a host its child goes with the mending."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()

"""The main faults on the same script and hosts, started in other ways: what a person gets who does without ddp-orch.

"by hand" is one ssh client a host with torchrun's command behind it, as in PyTorch's own documentation. The others
are launchers, each in a virtual environment of its own, which is made by hand (see docs/faults.md).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fault_sight as sight
from fault_injection import ON_HOST
from fault_trial import POLL_S, SETTLE_S, mend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.lab import Lab

CAP_S = 90.0
REACH_S = 90.0
PORT = 29500
# Where a virtual environment with the other launchers is, if there is one; hosts see it as this machine does.
OTHERS = Path(os.environ.get("DDP_ORCH_OTHER_LAUNCHERS", "/opt/other-launchers"))

AGENTS = {"torchrun", "torchrunx", "deepspeed.launcher.launch"}


@dataclass(frozen=True)
class Case:
    """A fault that everyone can be asked to survive.

    Attributes:
        fault: the row's in fault_rows.
        moment: when.
        itself: what the victim, rank 1, does by itself; "" for a fault from outside.
    """

    fault: str
    moment: str
    itself: str = ""


CASES: Mapping[str, Case] = {
    case.fault: case
    for case in (
        Case("raise", "outside", "raise"),
        Case("killed", "collective", "killed"),
        Case("exit0", "outside", "exit0"),
        Case("stopped", "collective", "stopped"),
        Case("agent-killed", "collective"),
        Case("power-other", "outside"),
        Case("cable", "outside"),
        Case("ctrl-c", "outside"),
    )
}


def by_hand(lab: Lab, folder: Path, words: list[str]) -> list[subprocess.Popen[bytes]]:
    """Start torchrun on both hosts, each in an ssh client of its own, without a terminal."""
    first = next(iter(lab.hosts.values()))
    clients = []
    for number, name in enumerate(lab.hosts):
        command = [
            "cd by-hand && exec env OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=eth0 PYTHONUNBUFFERED=1",
            f"{sys.prefix}/bin/torchrun --nnodes=2 --nproc_per_node=1 --node_rank={number}",
            f"--master_addr={first.address} --master_port={PORT} fault_subject.py",
            *words,
        ]
        clients.append(_client(["ssh", "-F", str(lab.ssh_config_path), name, " ".join(command)], folder / name))
    return clients


def torchrunx(lab: Lab, folder: Path, words: list[str]) -> list[subprocess.Popen[bytes]]:
    """Start torchrunx's launcher on the first host; it logs in to both."""
    return [
        _launcher(lab, folder, f"{OTHERS}/bin/python start_torchrunx.py {' '.join(lab.hosts)} -- {' '.join(words)}")
    ]


def deepspeed(lab: Lab, folder: Path, words: list[str]) -> list[subprocess.Popen[bytes]]:
    """Start DeepSpeed's launcher on the first host, with its own default way to reach the others: pdsh."""
    first = next(iter(lab.hosts.values()))
    command = (
        f"{OTHERS}/bin/deepspeed --hostfile hostfile --master_addr {first.address} --master_port {PORT} "
        f"--no_local_rank fault_subject.py {' '.join(words)}"
    )
    return [_launcher(lab, folder, command)]


WAYS: Mapping[str, Callable[[Lab, Path, list[str]], list[subprocess.Popen[bytes]]]] = {
    "by hand": by_hand,
    "torchrunx": torchrunx,
    "DeepSpeed": deepspeed,
}


def perform(lab: Lab, way: str, case: Case) -> dict[str, Any]:
    """Do it, and return {"clean_s": seconds until no host had a process of it, None within CAP_S, "left": [...]}."""
    mend(lab)
    for name in lab.hosts:
        place = lab.folder / name / "disk" / "root-home" / "by-hand"
        place.mkdir()
        for file in ("fault_subject.py", "start_torchrunx.py"):
            shutil.copy(Path(__file__).with_name(file), place)
        (place / "hostfile").write_text("".join(f"{host} slots=1\n" for host in lab.hosts))
        (place / ".deepspeed_env").write_text("OMP_NUM_THREADS=1\nGLOO_SOCKET_IFNAME=eth0\n")
        _let_in(lab, place.parent)
    folder = lab.folder / "by-hand"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    words = ["--moment", case.moment, "--victim", "1", *(["--fault", case.itself] if case.itself else [])]
    clients = WAYS[way](lab, folder, words)
    try:
        return {"case": case.fault, "way": way, "cap_s": CAP_S, **_measure(lab, folder, case, clients)}
    finally:
        for client in clients:
            if client.poll() is None:
                client.kill()
            client.wait()
        mend(lab)


def _measure(lab: Lab, folder: Path, case: Case, clients: list[subprocess.Popen[bytes]]) -> dict[str, Any]:
    def printed() -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(folder.iterdir()))

    def there() -> list[Path]:
        return list(lab.folder.glob(f"*/disk/root-home/by-hand/at-{case.moment}-*"))

    end = time.monotonic() + REACH_S
    while len(there()) < len(lab.hosts):
        if time.monotonic() > end or all(client.poll() is not None for client in clients):
            return {"clean_s": None, "left": [], "wrong": [f"it did not get there: {printed()[-500:]}"]}
        time.sleep(POLL_S)
    time.sleep(SETTLE_S)
    _inflict(lab, case, clients)
    began = time.monotonic()
    clean: dict[str, float] = {}
    while True:
        ours = _ours(lab)
        left = [f"{name}: {_short(one)}" for name, those in ours.items() for one in those]
        passed_s = round(time.monotonic() - began, 1)
        for name, those in ours.items():
            if those:
                clean.pop(name, None)
            else:
                clean.setdefault(name, passed_s)
        if passed_s > CAP_S or (not left and passed_s > max(clean.values()) + 2):  # a launcher may start anew
            return {"clean_s": None if left else max(clean.values()), "hosts_s": clean, "left": left, "wrong": []}
        time.sleep(POLL_S)


def _inflict(lab: Lab, case: Case, clients: list[subprocess.Popen[bytes]]) -> None:
    """Do it; where the victim does it by itself, wait for its end."""
    hit = list(lab.hosts)[1]
    if case.fault == "ctrl-c":
        for client in clients:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(client.pid, signal.SIGINT)
    elif case.itself:
        while case.itself != "stopped" and sight.rank_process(sight.all_processes(lab)[hit], 1):
            time.sleep(POLL_S)
    elif case.fault == "agent-killed":
        os.kill(_agent(sight.all_processes(lab)[hit]).pid, signal.SIGKILL)
    else:
        ON_HOST[case.fault](lab, hit, sight.all_processes(lab)[hit])


def _agent(processes: Mapping[int, sight.Process]) -> sight.Process:
    """Return the process above the ranks of a host, whatever launched it: the outermost Python that names one."""
    named = {
        one.pid: one
        for one in processes.values()
        if one.program.startswith("python") and AGENTS.intersection(Path(word).name for word in one.args)
    }
    return next(one for one in named.values() if one.parent not in named)


def _ours(lab: Lab) -> dict[str, list[sight.Process]]:
    """Return what is no part of a host at rest: all but the first process, its `sleep`, and sshd."""
    there = sight.all_processes(lab)
    return {name: [one for one in there[name].values() if _is_ours(one, there[name])] for name in there}


def _short(process: sight.Process) -> str:
    """Return a command line without the folders of this machine."""
    return " ".join(Path(word).name if word.startswith("/") else word for word in process.args)[:80]


def _is_ours(process: sight.Process, processes: dict[int, sight.Process]) -> bool:
    at_rest = process.parent not in processes and "lab_sshd" in " ".join(process.args)
    at_rest = at_rest or process.args == ("sleep", "0.2") or process.program.startswith("sshd")
    return process.state != "Z" and not at_rest


def _client(argv: list[str], output: Path) -> subprocess.Popen[bytes]:
    def before_exec() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored where this was started in the background

    with output.open("wb") as stream:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True,
            preexec_fn=before_exec,  # noqa: PLW1509
        )  # fmt: skip


def _launcher(lab: Lab, folder: Path, command: str) -> subprocess.Popen[bytes]:
    first = next(iter(lab.hosts))
    environ = f"OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=eth0 PYTHONUNBUFFERED=1 PATH={OTHERS}/bin:$PATH"
    shell = f"cd by-hand && exec env {environ} {command}"
    return _client(["ssh", "-F", str(lab.ssh_config_path), first, shell], folder / "launcher")


def _let_in(lab: Lab, home: Path) -> None:
    """Let a host log in to the others, as launchers want it."""
    shutil.copy(lab.key_path, home / ".ssh" / "id_ed25519")
    (home / ".ssh" / "id_ed25519").chmod(0o600)
    keys = lab.known_hosts_path.read_text()
    for name, host in lab.hosts.items():
        keys += "".join(
            line.replace(host.address, name, 1) + "\n"
            for line in keys.splitlines()
            if line.startswith(host.address + " ")
        )
    (home / ".ssh" / "known_hosts").write_text(keys)

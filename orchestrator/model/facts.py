"""What a probe saw on a host, as plain data with one parser.

The texts come from the host as they are: whoever shows them makes them harmless first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.model.untrusted import mapping, mappings, number, text, texts, texts_by_name, whole_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = 1
SLOW_LOOKUP_S = 1.0  # a resolver that answers does so in milliseconds; one that does not costs 10 s a time in glibc


@dataclass(frozen=True)
class Torch:
    """The torch of the interpreter, read from its files.

    Attributes:
        path: folder of the package.
        version: "2.14.1+cu130"; "" where it does not say.
        cuda: CUDA version it was built for, "" for none.
        hip: ROCm version it was built for, "" for none.
        git: commit it was built from.
        has_torchrun: torch.distributed.run is there.
    """

    path: str
    version: str
    cuda: str
    hip: str
    git: str
    has_torchrun: bool


@dataclass(frozen=True)
class Place:
    """A folder and the file system it is on, or would be on.

    Attributes:
        path: absolute.
        nearest: the folder itself where it exists, else the nearest one above it that does.
        exists: the folder exists.
        is_folder: `nearest` is a folder.
        writable: files can be made in `nearest`.
        size_bytes: of the file system.
        free_bytes: for this user.
        free_files: how many more files fit, or None where there is no fixed number.
        noexec: programs in it cannot be started.
    """

    path: str
    nearest: str
    exists: bool
    is_folder: bool
    writable: bool
    size_bytes: int
    free_bytes: int
    free_files: int | None
    noexec: bool


@dataclass(frozen=True)
class Interface:
    """A network interface; `running` means that it has a carrier."""

    name: str
    up: bool
    running: bool
    mtu: int
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Route:
    """How the host would reach a peer.

    Attributes:
        ip: the peer's address, resolved there; "" when its name is not known there.
        interface: the way out, "" when there is none.
        source: the own address that the peer would see.
        problem: why there is no way, or "".
    """

    ip: str
    interface: str
    source: str
    problem: str


@dataclass(frozen=True)
class NvidiaSmi:
    """One call of nvidia-smi: comma-separated rows, or whatever it said instead.

    Attributes:
        found: the program exists.
        code: exit code, or None when it did not end in time.
        stdout: standard output, where errors come too.
        stderr: standard error.
        seconds: how long it took.
    """

    found: bool
    code: int | None
    stdout: str
    stderr: str
    seconds: float


@dataclass(frozen=True)
class RunningProcess:
    """A process of a ddp-orch run."""

    pid: int
    run: str
    command: str


@dataclass(frozen=True)
class Facts:
    """One host at one moment.

    Attributes:
        clock_s: the host's clock when it answered (Unix time).
        python: absolute path of the interpreter that the launch shell finds, as launched.
        python_version: "3.11.7".
        python_kind: what it belongs to: "venv", "conda" or "system".
        packages: installed versions of torch's family and of what it brings along (nvidia-nccl-cu13, ...).
        env: variables of the launch shell that training listens to; none whose name looks secret.
        nccl_conf: path -> lines of NCCL's own configuration files.
        cpu_count: CPUs a process of this login may use, quotas included.
        memory_bytes: memory it may use, quotas included.
        places: "workdir", "tmp" and "shm", as far as they answered.
        routes: by peer address, as the inventory writes it.
        hostname_addresses: what the host's own name resolves to there.
        name_lookup_s: the slowest look-up of a peer's name (seconds), or None when none was made.
        ephemeral_ports: first and last port that the kernel hands out; both backends listen on such ports.
        nvidia_smi: None when it was not asked.
        running: processes of earlier or other runs.
        problems: part of the probe -> why it gave no answer.
    """

    hostname: str
    user: str
    home: str
    kernel: str
    os_name: str
    firewall: str
    clock_s: float
    python: str
    python_version: str
    python_kind: str
    torch: Torch | None
    packages: Mapping[str, str]
    env: Mapping[str, str]
    nccl_conf: Mapping[str, tuple[str, ...]]
    cpu_count: int
    memory_bytes: int
    places: Mapping[str, Place]
    interfaces: tuple[Interface, ...]
    routes: Mapping[str, Route]
    hostname_addresses: tuple[str, ...]
    name_lookup_s: float | None
    ephemeral_ports: tuple[int, int]
    nvidia_smi: NvidiaSmi | None
    has_nvidia_driver: bool
    running: tuple[RunningProcess, ...]
    problems: Mapping[str, str]

    @property
    def peer_interface(self) -> str:
        """The one interface that leads to every peer, or "" when there is none or no single one."""
        ways = {route.interface for route in self.routes.values()}
        return ways.pop() if len(ways) == 1 else ""

    @property
    def workdir(self) -> str:
        """The absolute path of the work folder, or "" when its file system gave no answer."""
        place = self.places.get("workdir")
        return place.path if place else ""

    @property
    def slow_lookups(self) -> bool:
        """Tell a resolver that does not answer; torch asks it several times at each start."""
        return self.name_lookup_s is not None and self.name_lookup_s >= SLOW_LOOKUP_S

    @property
    def nccl_version(self) -> str:
        """The version of the NCCL package that torch brings along, or "" (built in, or a system one)."""
        found = [version for name, version in self.packages.items() if name.startswith("nvidia-nccl")]
        return found[0] if len(found) == 1 else ""


def facts_from_json(body: Mapping[str, Any]) -> Facts:
    """Read what the probe answered. Parts that are missing are empty: `problems` says why.

    Raises:
        ValueError: it is not the answer of this version's probe.
    """
    if body.get("schema") != SCHEMA:
        raise ValueError(f"facts with schema {body.get('schema')!r}, wanted {SCHEMA}")
    python, torch, smi = mapping(body, "python"), body.get("torch"), body.get("nvidia_smi")
    has_lookup, ports = body.get("name_lookup_s") is not None, whole_numbers(body, "ephemeral_ports")
    return Facts(
        hostname=text(body, "hostname"),
        user=text(body, "user"),
        home=text(body, "home"),
        kernel=text(body, "kernel"),
        os_name=text(body, "os"),
        firewall=text(body, "firewall"),
        clock_s=number(body, "clock_s"),
        python=text(python, "executable"),
        python_version=text(python, "version"),
        python_kind=text(python, "kind"),
        torch=_torch(torch) if isinstance(torch, dict) else None,
        packages=texts_by_name(body, "packages"),
        env=texts_by_name(body, "env"),
        nccl_conf={path: texts(mapping(body, "nccl_conf"), path) for path in mapping(body, "nccl_conf")},
        cpu_count=max(1, int(number(body, "cpu_count"))),
        memory_bytes=int(number(body, "memory_bytes")),
        places={name: _place(value) for name, value in mapping(body, "places").items() if isinstance(value, dict)},
        interfaces=tuple(
            Interface(
                name=text(entry, "name"),
                up=entry.get("up") is True,
                running=entry.get("running") is True,
                mtu=int(number(entry, "mtu")),
                addresses=texts(entry, "addresses"),
            )
            for entry in mappings(body, "interfaces")
        ),
        routes={
            peer: Route(text(way, "ip"), text(way, "interface"), text(way, "source"), text(way, "error"))
            for peer, way in mapping(body, "routes").items()
            if isinstance(way, dict)
        },
        hostname_addresses=texts(body, "hostname_addresses"),
        name_lookup_s=float(number(body, "name_lookup_s")) if has_lookup else None,
        ephemeral_ports=(ports[0], ports[1]) if len(ports) == 2 else (32768, 60999),  # the kernel's default
        nvidia_smi=_nvidia_smi(smi) if isinstance(smi, dict) else None,
        has_nvidia_driver=body.get("nvidia_driver") is True,
        running=tuple(
            RunningProcess(int(number(entry, "pid")), text(entry, "run"), text(entry, "command"))
            for entry in mappings(body, "running")
        ),
        problems=texts_by_name(body, "problems"),
    )


def _torch(body: Mapping[str, Any]) -> Torch:
    path, version, cuda, hip, git = (text(body, key) for key in ("path", "version", "cuda", "hip", "git"))
    return Torch(path, version, cuda, hip, git, has_torchrun=body.get("torchrun") is True)


def _place(body: Mapping[str, Any]) -> Place:
    files = body.get("free_files")
    return Place(
        path=text(body, "path"),
        nearest=text(body, "nearest"),
        exists=body.get("exists") is True,
        is_folder=body.get("is_folder") is True,
        writable=body.get("writable") is True,
        size_bytes=int(number(body, "size_bytes")),
        free_bytes=int(number(body, "free_bytes")),
        free_files=int(number(body, "free_files")) if files is not None else None,
        noexec=body.get("noexec") is True,
    )


def _nvidia_smi(body: Mapping[str, Any]) -> NvidiaSmi:
    code = body.get("code")
    return NvidiaSmi(
        found=body.get("found") is True,
        code=code if isinstance(code, int) else None,
        stdout=text(body, "stdout"),
        stderr=text(body, "stderr"),
        seconds=number(body, "seconds"),
    )

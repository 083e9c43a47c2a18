"""What a probe saw on a host, as plain data with one parser.

The texts come from the host as they are: whoever shows them makes them harmless first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.model.gpu_facts import GpuFacts, gpu_facts_from_json
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
    """A network interface.

    Attributes:
        name: "eth0".
        kind: "loopback", "physical", "virtual", "wireless", "bridge", "tunnel", "bond", ... or "" where unknown.
        up: switched on.
        running: it has a carrier.
        mtu: largest packet (bytes).
        speed_mbit: what the link was negotiated at, or None where it does not say.
        networks: its addresses with their prefix lengths ("192.168.20.43/24"), in the order that programs get them.
    """

    name: str
    kind: str
    up: bool
    running: bool
    mtu: int
    speed_mbit: int | None
    networks: tuple[str, ...]

    @property
    def addresses(self) -> tuple[str, ...]:
        """Its addresses, without the prefix lengths."""
        return tuple(network.partition("/")[0] for network in self.networks)


@dataclass(frozen=True)
class Route:
    """How the host would reach a peer.

    Attributes:
        ip: the peer's address, resolved there; "" when its name is not known there.
        interface: the way out, "" when there is none.
        source: the own address that the peer would see.
        gateway: the router on the way, "" when the peer is on the same network.
        problem: why there is no way, or "".
    """

    ip: str
    interface: str
    source: str
    gateway: str
    problem: str


@dataclass(frozen=True)
class RdmaPort:
    """A port of an InfiniBand or RoCE device, which NCCL prefers to any other way where it is active.

    Attributes:
        device: "mlx5_0".
        port: "1".
        state: "ACTIVE", "DOWN", ...
        link_layer: "InfiniBand" or "Ethernet" (RoCE).
        rate: "100 Gb/sec (4X EDR)".
        vendor: PCI number of the maker.
        gid_kinds: of the addresses that are set: "IB/RoCE v1", "RoCE v2", "RoCE v2 with an IPv4 address".
        interfaces: the network interfaces that these belong to.
    """

    device: str
    port: str
    state: str
    link_layer: str
    rate: str
    vendor: str
    gid_kinds: tuple[str, ...]
    interfaces: tuple[str, ...]


@dataclass(frozen=True)
class OtherNccl:
    """A libnccl beside the one of torch's own package; `preferred`: LD_LIBRARY_PATH names its folder."""

    path: str
    version: str
    preferred: bool


@dataclass(frozen=True)
class Torchrun:
    """The torchrun that a person would start: its file, its interpreter, and whether that is the launch shell's."""

    path: str
    interpreter: str
    same: bool


@dataclass(frozen=True)
class DataFolder:
    """A data folder on a host.

    Attributes:
        path: absolute.
        exists: it is there.
        files: how many, hidden ones left out.
        size_bytes: of them together.
        digest: of names, sizes and both ends of each file; equal digests mean equal data, most likely.
        file_system: type of the file system it is on: "ext4", "nfs4", ...
    """

    path: str
    exists: bool
    files: int
    size_bytes: int
    digest: str
    file_system: str


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
    """A process of a training: of a ddp-orch run, or (`run` is "") of another.

    Attributes:
        since_s: when it began (Unix time, the host's clock), or 0 where that is not known.
    """

    pid: int
    run: str
    command: str
    user: str = ""
    since_s: float = 0.0


@dataclass(frozen=True)
class Facts:
    """One host at one moment.

    Attributes:
        machine: equal for two names of one machine (and one network namespace), "" where unknown.
        container: "docker", "WSL", ... or "" for a machine of its own.
        clock_s: the host's clock when it answered (Unix time).
        python: absolute path of the interpreter that the launch shell finds, as launched.
        python_version: "3.11.7".
        python_kind: what it belongs to: "venv", "conda" or "system".
        other_nccl: libraries of NCCL beside that of torch's packages, where the loader may look.
        torchrun: the one on PATH, or None.
        packages: installed versions of torch's family and of what it brings along (nvidia-nccl-cu13, ...).
        env: variables of the launch shell that training listens to; none whose name looks secret.
        nccl_conf: path -> lines of NCCL's own configuration files.
        cpu_count: CPUs a process of this login may use, quotas included.
        memory_bytes: memory it may use, quotas included.
        memory_free_bytes: how much of it can be had now.
        limits: "nofile", "memlock" (bytes) and "nproc" of the launch shell; None means no limit.
        listen_backlog: connections that may wait for a listener (net.core.somaxconn), 0 where unknown.
        ends_at_logout: systemd ends this user's processes when the last login ends.
        places: "workdir", "tmp" and "shm", as far as they answered.
        routes: by peer address, as the inventory writes it.
        default_routes: interface and metric of each IPv4 route to everywhere.
        rdma: ports of InfiniBand and RoCE devices.
        hostname_addresses: what the host's own name resolves to there, in the order that programs get.
        hostname_choice: the first of them that a process can listen on, or "".
        name_servers_answer: at least one name server says anything.
        name_lookup_s: the slowest look-up of a peer's name (seconds), or None when none was made.
        ephemeral_ports: first and last port that the kernel hands out; both backends listen on such ports.
        nvidia_smi: None when it was not asked.
        gpu: more about the GPUs, empty when nothing was asked.
        running: processes of earlier or other runs of ddp-orch.
        trainings: processes of trainings that ddp-orch did not start.
        left_shared: files of shared memory that an earlier training left, and `left_shared_bytes` their size.
        left_folders: run folders whose run never began.
        data: by the name that was asked for.
        missing_modules: of those that the script imports, what the interpreter does not find.
        problems: part of the probe -> why it gave no answer.
    """

    hostname: str
    user: str
    home: str
    kernel: str
    os_name: str
    firewall: str
    machine: str
    container: str
    clock_s: float
    python: str
    python_version: str
    python_kind: str
    torch: Torch | None
    packages: Mapping[str, str]
    other_nccl: tuple[OtherNccl, ...]
    torchrun: Torchrun | None
    env: Mapping[str, str]
    nccl_conf: Mapping[str, tuple[str, ...]]
    cpu_count: int
    memory_bytes: int
    memory_free_bytes: int
    limits: Mapping[str, int | None]
    listen_backlog: int
    ends_at_logout: bool
    places: Mapping[str, Place]
    interfaces: tuple[Interface, ...]
    routes: Mapping[str, Route]
    default_routes: tuple[tuple[str, int], ...]
    rdma: tuple[RdmaPort, ...]
    hostname_addresses: tuple[str, ...]
    hostname_choice: str
    name_lookup_s: float | None
    name_servers_answer: bool
    ephemeral_ports: tuple[int, int]
    nvidia_smi: NvidiaSmi | None
    gpu: GpuFacts
    has_nvidia_driver: bool
    running: tuple[RunningProcess, ...]
    trainings: tuple[RunningProcess, ...]
    left_shared: tuple[str, ...]
    left_shared_bytes: int
    left_folders: tuple[str, ...]
    data: Mapping[str, DataFolder]
    missing_modules: tuple[str, ...]
    problems: Mapping[str, str]

    @property
    def peer_interface(self) -> str:
        """The one interface that leads to every peer, or "" when there is none or no single one."""
        ways = {route.interface for route in self.routes.values()}
        return ways.pop() if len(ways) == 1 else ""

    @property
    def peer_source(self) -> str:
        """The own address on that interface which the peers see, or ""."""
        sources = {route.source for route in self.routes.values() if route.interface}
        return sources.pop() if len(sources) == 1 and self.peer_interface else ""

    @property
    def nccl_settings(self) -> Mapping[str, str]:
        """What NCCL's own files set; variables of the environment win over them, and the user's file over /etc."""
        lines = [line for path in sorted(self.nccl_conf) for line in self.nccl_conf[path]]  # "/etc/..." before "~/..."
        pairs = [line.partition("=") for line in lines if not line.lstrip().startswith("#")]
        return {name.strip(): value.strip() for name, given, value in pairs if given}

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
    torchrun = mapping(body, "torchrun")
    has_lookup, ports = body.get("name_lookup_s") is not None, whole_numbers(body, "ephemeral_ports")
    return Facts(
        hostname=text(body, "hostname"),
        user=text(body, "user"),
        home=text(body, "home"),
        kernel=text(body, "kernel"),
        os_name=text(body, "os"),
        firewall=text(body, "firewall"),
        machine=text(body, "machine"),
        container=text(body, "container"),
        clock_s=number(body, "clock_s"),
        python=text(python, "executable"),
        python_version=text(python, "version"),
        python_kind=text(python, "kind"),
        torch=_torch(torch) if isinstance(torch, dict) else None,
        packages=texts_by_name(body, "packages"),
        other_nccl=tuple(
            OtherNccl(text(entry, "path"), text(entry, "version"), preferred=entry.get("preferred") is True)
            for entry in mappings(body, "other_nccl")
        ),
        torchrun=Torchrun(text(torchrun, "path"), text(torchrun, "interpreter"), same=bool(text(torchrun, "same")))
        if torchrun
        else None,
        env=texts_by_name(body, "env"),
        nccl_conf={path: texts(mapping(body, "nccl_conf"), path) for path in mapping(body, "nccl_conf")},
        cpu_count=max(1, int(number(body, "cpu_count"))),
        memory_bytes=int(number(body, "memory_bytes")),
        memory_free_bytes=int(number(body, "memory_free_bytes")),
        limits={
            name: None if value is None else int(number(mapping(body, "limits"), name))
            for name, value in mapping(body, "limits").items()
        },
        listen_backlog=int(number(body, "listen_backlog")),
        ends_at_logout=body.get("ends_at_logout") is True,
        places={name: _place(value) for name, value in mapping(body, "places").items() if isinstance(value, dict)},
        interfaces=tuple(
            Interface(
                name=text(entry, "name"),
                kind=text(entry, "kind"),
                up=entry.get("up") is True,
                running=entry.get("running") is True,
                mtu=int(number(entry, "mtu")),
                speed_mbit=int(number(entry, "speed_mbit")) or None,
                networks=texts(entry, "networks"),
            )
            for entry in mappings(body, "interfaces")
        ),
        routes={
            peer: Route(*(text(way, key) for key in ("ip", "interface", "source", "gateway", "error")))
            for peer, way in mapping(body, "routes").items()
            if isinstance(way, dict)
        },
        default_routes=tuple(
            (text(entry, "interface"), int(number(entry, "metric"))) for entry in mappings(body, "default_routes")
        ),
        rdma=tuple(
            RdmaPort(
                device=text(entry, "device"),
                port=text(entry, "port"),
                state=text(entry, "state"),
                link_layer=text(entry, "link_layer"),
                rate=text(entry, "rate"),
                vendor=text(entry, "vendor"),
                gid_kinds=texts(entry, "gid_kinds"),
                interfaces=texts(entry, "interfaces"),
            )
            for entry in mappings(body, "rdma")
        ),
        hostname_addresses=texts(body, "hostname_addresses"),
        hostname_choice=text(body, "hostname_choice"),
        name_lookup_s=float(number(body, "name_lookup_s")) if has_lookup else None,
        name_servers_answer=body.get("name_servers_answer") is not False,
        ephemeral_ports=(ports[0], ports[1]) if len(ports) == 2 else (32768, 60999),  # the kernel's default
        nvidia_smi=_nvidia_smi(smi) if isinstance(smi, dict) else None,
        gpu=gpu_facts_from_json(body),
        has_nvidia_driver=body.get("nvidia_driver") is True,
        running=_processes(body, "running"),
        trainings=_processes(body, "trainings"),
        left_shared=texts(body, "left_shared"),
        left_shared_bytes=int(number(body, "left_shared_bytes")),
        left_folders=texts(body, "left_folders"),
        data={
            name: DataFolder(
                path=text(entry, "path"),
                exists=entry.get("exists") is True,
                files=int(number(entry, "files")),
                size_bytes=int(number(entry, "bytes")),
                digest=text(entry, "digest"),
                file_system=text(entry, "file_system"),
            )
            for name, entry in mapping(body, "data").items()
            if isinstance(entry, dict)
        },
        missing_modules=texts(body, "missing_modules"),
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


def _processes(body: Mapping[str, Any], key: str) -> tuple[RunningProcess, ...]:
    return tuple(
        RunningProcess(
            pid=int(number(entry, "pid")),
            run=text(entry, "run"),
            command=text(entry, "command"),
            user=text(entry, "user"),
            since_s=number(entry, "since_s"),
        )
        for entry in mappings(body, key)
    )

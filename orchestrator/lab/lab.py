"""A lab: hosts that can be made, broken, mended and taken away.

/run/ddp-orch-lab/NAME/lab.json      what the lab is made of
/run/ddp-orch-lab/NAME/{inventory.yaml,ssh_config,known_hosts,key}
/run/ddp-orch-lab/NAME/HOST/         one host: its disk, its console.log
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import ipaddress
import json
import os
import shutil
import signal
import socket
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import LabError
from orchestrator.lab import network
from orchestrator.lab.boot import boot, first_process, sshd_config
from orchestrator.lab.network import run

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Sequence

STATE = Path("/run/ddp-orch-lab")
TOOLS = ("ip", "tc", "nft", "sshd", "ssh-keygen", "unshare", "nsenter", "mount", "chroot")
BOOT_TIMEOUT_S = 30.0
NAME_LENGTH = 24
TAG_LENGTH = 6


@dataclass(frozen=True)
class LabHost:
    """One virtual host.

    Attributes:
        name: its hostname, `node` and the last number of its address.
        address: its IPv4 address.
        namespace: its network namespace.
        cable: the bridge's end of its link.
    """

    name: str
    address: str
    namespace: str
    cable: str


@dataclass
class Lab:
    """Virtual hosts on one bridge.

    Attributes:
        name: tells labs on one machine apart.
        subnet: of the bridge; this machine is its first address.
        hosts: by name, in address order.
        user: whom the inventory logs in as, "root" or "trainer".
        resolver: "refuses" (name look-ups fail at once) or "silent" (they are never answered).
        sizes: of each host's "disk", "shm" and "tmp", as mount writes them; each host has its own.
        sshd_options: lines for every host's sshd_config.
        limits_before: the kernel's neighbour limits, where the lab raised them.
        rates: links that are shaped.
    """

    name: str
    subnet: str
    hosts: dict[str, LabHost]
    user: str = "root"
    resolver: str = "refuses"
    sizes: dict[str, str] = field(default_factory=lambda: {"disk": "4g", "shm": "512m", "tmp": "512m"})
    sshd_options: tuple[str, ...] = ()
    limits_before: dict[str, int] = field(default_factory=dict)
    rates: dict[str, str] = field(default_factory=dict)

    # --- where things are ---

    @property
    def folder(self) -> Path:
        """The lab's folder."""
        return STATE / self.name

    @property
    def inventory_path(self) -> Path:
        """An inventory of its hosts."""
        return self.folder / "inventory.yaml"

    @property
    def ssh_config_path(self) -> Path:
        """An OpenSSH configuration with its key and its known_hosts."""
        return self.folder / "ssh_config"

    @property
    def known_hosts_path(self) -> Path:
        """Its hosts' keys."""
        return self.folder / "known_hosts"

    @property
    def key_path(self) -> Path:
        """The private key that logs in to every host, as root and as trainer."""
        return self.folder / "key"

    @property
    def bridge(self) -> str:
        """The bridge's name."""
        return f"dl{_tag(self.name)}"

    # --- making and taking away ---

    @classmethod
    def up(
        cls,
        count: int = 2,
        *,
        name: str = "lab",
        subnet: str = "192.168.20.0/24",
        first: int = 43,
        user: str = "root",
        resolver: str = "refuses",
        sshd_options: Sequence[str] = (),
        disk: str = "4g",
    ) -> Lab:
        """Make a lab and wait until every host takes SSH connections.

        Args:
            count: how many hosts.
            name: letters and digits.
            subnet: IPv4, one that this machine does not use.
            first: last number of the first host's address.
            user: "root" or "trainer", for the inventory.
            resolver: "refuses" or "silent".
            sshd_options: further lines for sshd_config; OpenSSH's defaults hold for what is not set.
            disk: size of each host's disk.
        Raises:
            LabError: it cannot be made here; nothing of it is left.
        """
        _refuse_unable()
        if not (name.isascii() and name.isalnum() and len(name) <= NAME_LENGTH):
            raise LabError(f"a lab's name is made of letters and digits, at most {NAME_LENGTH}: {name!r}")
        net = _network(subnet)
        if count < 1 or first < 2 or first + count > net.num_addresses - 1:
            raise LabError(f"{subnet} has no room for {count} hosts from number {first} on")
        lab = cls(name, subnet, _hosts(name, net, first, count), user, resolver, sshd_options=tuple(sshd_options))
        lab.sizes["disk"] = disk
        with _locked():
            if lab.folder.exists():
                raise LabError(f"the lab {name!r} is up already", try_this=f"ddp-orch lab down --name {name}")
            network.refuse_used_subnet(net)
            try:
                lab._make()
            except BaseException:
                lab._take_away()
                raise
        return lab

    @classmethod
    def load(cls, name: str = "lab") -> Lab:
        """Return a lab that is up.

        Raises:
            LabError: there is none of that name.
        """
        try:
            body = json.loads((STATE / name / "lab.json").read_text())
        except (OSError, ValueError) as error:
            raise LabError(f"there is no lab {name!r} here", try_this="ddp-orch lab up") from error
        body["hosts"] = {host: LabHost(**parts) for host, parts in body["hosts"].items()}
        return cls(**{**body, "sshd_options": tuple(body["sshd_options"])})

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all labs on this machine, also of those whose making was cut short."""
        return sorted(path.name for path in STATE.iterdir() if path.is_dir()) if STATE.is_dir() else []

    @classmethod
    def down(cls, name: str = "lab") -> None:
        """Take a lab away, whole or not; doing it twice is fine."""
        _refuse_unable()
        with _locked():
            try:
                lab = cls.load(name)
            except LabError:
                lab = cls(name, "", {})
            lab._take_away()

    def _make(self) -> None:
        self.folder.mkdir(parents=True, mode=0o700)
        net = _network(self.subnet)
        if len(self.hosts) > network.MANY_HOSTS:
            self.limits_before = network.raise_neighbour_limits()
        self._save()  # from here on `down` knows what to look for
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"lab {self.name}", "-f", str(self.key_path))
        network.make_bridge(self.bridge, ipaddress.ip_interface(f"{net[1]}/{net.prefixlen}"))  # type: ignore[arg-type]
        for host in self.hosts.values():
            network.plug_in(
                host.namespace, host.cable, self.bridge, ipaddress.IPv4Interface(f"{host.address}/{net.prefixlen}")
            )
            folder = self.folder / host.name
            (folder / "disk").mkdir(parents=True)
            run("mount", "-t", "tmpfs", "-o", f"size={self.sizes['disk']},mode=755", "tmpfs", str(folder / "disk"))
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", host.name, "-f", str(folder / "host_key"))
            (folder / "sshd_config").write_text(sshd_config(host.address, self.sshd_options))
        self._write_client_files()
        for name in self.hosts:
            self._boot(name)
        for name in self.hosts:
            self._await_sshd(name)

    def _take_away(self) -> None:
        prefix = f"dl{_tag(self.name)}-"
        namespaces = [line.split()[0] for line in run("ip", "netns", "list", check=False).splitlines() if line.strip()]
        for namespace in namespaces:
            if namespace.startswith(prefix):
                _kill_all_in(namespace)
                run("ip", "netns", "del", namespace, check=False)
        network.remove_bridge(self.bridge)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            where = line.split()[1]
            if where.startswith(f"{self.folder}/"):
                run("umount", "-l", where, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.limits_before and not any(Lab.load(name).limits_before for name in self.names()):
            network.set_neighbour_limits(self.limits_before)

    # --- breaking and mending ---

    def exec(self, host: str, argv: Sequence[str], *, user: str = "root") -> list[str]:
        """Return the command that runs `argv` inside a host, for subprocess or exec.

        Raises:
            LabError: the host is not up.
        """
        pid = self._first_process(host)
        if pid is None:
            raise LabError(f"{host} is switched off", try_this=f"ddp-orch lab start {host}")
        inside = ["nsenter", "-t", str(pid), "-m", "-u", "-i", "-n", "-p", "-r", "-w", "--"]
        as_user = [] if user == "root" else ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        return [*inside, *as_user, *argv]

    def run(self, host: str, *argv: str, check: bool = True, user: str = "root") -> str:
        """Run a command inside a host and return what it printed."""
        return run(*self.exec(host, argv, user=user), check=check)

    def kill(self, host: str) -> None:
        """Cut a host's power: silence on the wire first, or the kernel would reset every connection; then all dies."""
        found = self._host(host)
        run("ip", "link", "set", found.cable, "down")
        _kill_all_in(found.namespace)
        self._await_end(host)

    def start(self, host: str) -> None:
        """Switch a host on again; its disk is as it was, /tmp, /run and /dev/shm are empty."""
        if self._first_process(host) is not None:
            raise LabError(f"{host} is on already")
        run("ip", "link", "set", self._host(host).cable, "up")
        self._boot(host)
        self._await_sshd(host)

    def cut(self, host: str) -> None:
        """Pull a host's network cable."""
        run("ip", "link", "set", self._host(host).cable, "down")

    def heal(self, host: str) -> None:
        """Plug it in again."""
        run("ip", "link", "set", self._host(host).cable, "up")

    def rate(self, host: str, rate: str) -> None:
        """Limit a host's link in both directions, `1gbit` say, or lift the limit with "off"."""
        found = self._host(host)
        network.shape(found.namespace, found.cable, rate)
        self.rates.pop(host, None)
        if rate != "off":
            self.rates[host] = rate
        self._save()

    def status(self) -> dict[str, dict[str, object]]:
        """Return of each host: address, power, cable, rate, and how many processes run in it."""
        seen: dict[str, dict[str, object]] = {}
        for host in self.hosts.values():
            flags = int((Path("/sys/class/net") / host.cable / "flags").read_text(), 16)
            seen[host.name] = {
                "address": host.address,
                "power": "on" if self._first_process(host.name) is not None else "off",
                "cable": "plugged" if flags & 1 else "cut",  # IFF_UP of <linux/if.h>
                "rate": self.rates.get(host.name, ""),
                "processes": len(network.processes_in(host.namespace)),
            }
        return seen

    # --- the parts ---

    def _host(self, name: str) -> LabHost:
        if name not in self.hosts:
            raise LabError(f"there is no host {name!r} in this lab", try_this=f"one of {', '.join(self.hosts)}")
        return self.hosts[name]

    def _save(self) -> None:
        path = self.folder / "lab.json"
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(self)))
        new.replace(path)

    def _boot(self, name: str) -> None:
        host = self.hosts[name]
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
        lines += [f"{other.address} {other.name}" for other in self.hosts.values()]
        holder = boot(
            self.folder / name,
            namespace=host.namespace,
            name=name,
            hosts_file="\n".join(lines),
            key=self.key_path,
            sizes=self.sizes,
        )
        (self.folder / name / "holder").write_text(str(holder.pid))
        _holders.append(holder)
        if self.resolver == "silent":
            # Dropped on the way in: dropped on the way out, the sender would be told.
            rules = "table inet lab { chain input { type filter hook input priority 0; "
            rules += 'iifname "lo" udp dport 53 drop; iifname "lo" tcp dport 53 drop; } }\n'
            run(
                "ip",
                "netns",
                "exec",
                host.namespace,
                "nft",
                "-f",
                "-",
                stdin=f"table inet lab\ndelete table inet lab\n{rules}",
            )

    def _first_process(self, name: str) -> int | None:
        self._host(name)
        try:
            return first_process(int((self.folder / name / "holder").read_text()))
        except (OSError, ValueError):
            return None

    def _await_sshd(self, name: str) -> None:
        end = time.monotonic() + BOOT_TIMEOUT_S
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection((self.hosts[name].address, 22), 1) as sock:
                if sock.recv(4) == b"SSH-":
                    return
            time.sleep(0.05)
        words = (self.folder / name / "console.log").read_text(errors="replace").strip().splitlines()
        raise LabError(f"{name} did not come up: {words[-1] if words else 'its console is empty'}")

    def _await_end(self, name: str) -> None:
        end = time.monotonic() + BOOT_TIMEOUT_S
        while network.processes_in(self.hosts[name].namespace) and time.monotonic() < end:
            time.sleep(0.02)

    def _write_client_files(self) -> None:
        lines = [
            f"{host.address} {(self.folder / host.name / 'host_key.pub').read_text()}" for host in self.hosts.values()
        ]
        self.known_hosts_path.write_text("".join(lines))
        self.ssh_config_path.write_text(
            f"# written by ddp-orch lab up; use it with: ssh -F {self.ssh_config_path} {next(iter(self.hosts))}\n"
            + "".join(f"Host {host.name}\n  HostName {host.address}\n" for host in self.hosts.values())
            + f"Host *\n  User {self.user}\n  IdentityFile {self.key_path}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.known_hosts_path}\n  HashKnownHosts no\n"
        )
        threads = max(1, (os.cpu_count() or 1) // len(self.hosts))
        hosts = "".join(f"  - name: {host.name}\n    address: {host.address}\n" for host in self.hosts.values())
        self.inventory_path.write_text(
            "# Virtual hosts on one machine, written by ddp-orch lab up.\n"
            f"defaults:\n  user: {self.user}\n  key: {self.key_path}\n"
            f"  python: {sys.prefix}/bin/python\n  processes: 1\n"
            f"env:\n  OMP_NUM_THREADS: {threads}   # they share this machine's CPUs\n"
            f"hosts:\n{hosts}"
        )


def leftovers() -> list[str]:
    """Return what labs have on this machine at the moment: mounts, links and network namespaces."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    found = [where for where in mounts if where.startswith(f"{STATE}/")]
    found += [f"link {path.name}" for path in sorted(Path("/sys/class/net").glob("dl" + "[0-9a-f]" * TAG_LENGTH + "*"))]
    return found + [
        f"namespace {path.name}" for path in sorted(Path("/run/netns").glob("dl" + "?" * TAG_LENGTH + "-*"))
    ]


_holders: list[subprocess.Popen[bytes]] = []  # kept, so that Python does not complain of children it never waited for


def _tag(name: str) -> str:
    """Return a short name for a lab, for interfaces, whose names have at most 15 characters."""
    return hashlib.sha256(name.encode()).hexdigest()[:TAG_LENGTH]


def _network(subnet: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(subnet)
    except ValueError as error:
        raise LabError(f"{subnet} is no IPv4 network: {error}", try_this="--subnet 10.77.0.0/24") from error


def _hosts(name: str, net: ipaddress.IPv4Network, first: int, count: int) -> dict[str, LabHost]:
    hosts = {}
    for number in range(first, first + count):
        host = f"node{number}"
        hosts[host] = LabHost(host, str(net[number]), f"dl{_tag(name)}-{host}", f"dl{_tag(name)}-{number}")
    return hosts


def _refuse_unable() -> None:
    """Say what is missing for virtual hosts on this machine.

    Raises:
        LabError: they cannot be made here.
    """
    if sys.platform != "linux":
        raise LabError("virtual hosts need Linux", try_this="ddp-orch run -i inventory/local.yaml")
    if os.geteuid() != 0:
        raise LabError(
            "virtual hosts need root: they are made of namespaces and mounts", try_this="sudo ddp-orch lab up"
        )
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [tool for tool in TOOLS if shutil.which(tool, path=path) is None]
    if missing:
        raise LabError(
            f"virtual hosts need {', '.join(missing)}, which this machine lacks",
            try_this="apt-get install openssh-server openssh-client iproute2 nftables util-linux",
        )


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Let one lab be made or taken away at a time."""
    STATE.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (STATE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _kill_all_in(namespace: str) -> None:
    """Kill every process of a host. Its first process takes the others of its pid namespace along."""
    for _ in range(100):
        pids = network.processes_in(namespace)
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for holder in _holders:
            holder.poll()
        time.sleep(0.02)

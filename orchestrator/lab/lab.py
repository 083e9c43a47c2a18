"""A lab: hosts that can be made, broken, mended and taken away.

/run/ddp-orch-lab/NAME/lab.json      what the lab is made of
/run/ddp-orch-lab/NAME/{inventory.yaml,ssh_config,known_hosts,key}
/run/ddp-orch-lab/NAME/HOST/         one host: its disk, its console.log, what is done to its cable (unplugged, rate)
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import shutil
import socket
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import LabError
from orchestrator.lab import client_files, clock, memory, network
from orchestrator.lab.boot import HOST_PATH, SSHD_PID, boot, sshd_config
from orchestrator.lab.network import run
from orchestrator.lab.places import (
    STATE,
    LabHost,
    bridge_of,
    hosts_of,
    leftovers,
    locked,
    mounts_under,
    names,
    network_of,
    refuse_name,
    refuse_used,
)
from orchestrator.lab.processes import NAMESPACES, first_process, kill_all_in, processes_in
from orchestrator.lab.requirements import refuse_unable

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

BOOT_TIMEOUT_S = 30.0


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
        limits_before: the kernel's neighbour limits before any lab raised them, where this one needs them raised.
        trusted_in: the known_hosts file of the user that holds the hosts' keys, or "".
    """

    name: str
    subnet: str
    hosts: dict[str, LabHost]
    user: str = "root"
    resolver: str = "refuses"
    sizes: dict[str, str] = field(default_factory=lambda: {"disk": "4g", "shm": "512m", "tmp": "512m"})
    sshd_options: tuple[str, ...] = ()
    limits_before: dict[str, int] = field(default_factory=dict)
    trusted_in: str = ""

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
        return bridge_of(self.name)

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
        trust: bool = False,
    ) -> Lab:
        """Make a lab and wait until every host takes SSH connections.

        Args:
            count: how many hosts.
            name: letters and digits.
            subnet: IPv4, one that this machine does not use.
            first: last number of the first host's address.
            user: "root" or "trainer", for the inventory.
            resolver: "refuses" or "silent".
            sshd_options: lines for sshd_config, in place of ours; OpenSSH's defaults hold for what is not set.
            disk: size of each host's disk, in memory.
            trust: add the hosts' keys to the caller's own known_hosts until `down`.
        Raises:
            LabError: it cannot be made here; nothing of it is left.
        """
        refuse_unable()
        refuse_name(name)
        net = network_of(subnet)
        if count < 1 or first < 2 or first + count > net.num_addresses - 1:  # number 1 is this machine
            raise LabError(f"{subnet} has no room for {count} hosts from number {first} on")
        lab = cls(name, subnet, hosts_of(name, net, first, count), user, resolver, sshd_options=tuple(sshd_options))
        lab.sizes["disk"] = disk
        lab.trusted_in = str(client_files.users_known_hosts()) if trust else ""
        with locked():
            if lab.folder.exists():
                raise LabError(f"the lab {name!r} is up already", try_this=f"ddp-orch lab down --name {name}")
            refuse_used(net)
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
        refuse_unable()
        refuse_name(name)
        try:
            body = json.loads((STATE / name / "lab.json").read_text())
        except (OSError, ValueError) as error:
            if (STATE / name).exists():
                mend = f"ddp-orch lab down --name {name}"
                raise LabError(f"the making of the lab {name!r} was cut short", try_this=mend) from error
            raise LabError(f"there is no lab {name!r} here", try_this="ddp-orch lab up") from error
        body["hosts"] = {host: LabHost(**parts) for host, parts in body["hosts"].items()}
        return cls(**{**body, "sshd_options": tuple(body["sshd_options"])})

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all labs on this machine, also of those whose making was cut short."""
        return names()

    @classmethod
    def down(cls, name: str = "lab") -> bool:
        """Take a lab away, whole or not; doing it twice is fine.

        Returns:
            Whether there was anything of it.
        Raises:
            LabError: something of it is left.
        """
        refuse_unable()
        refuse_name(name)
        with locked():
            there = (STATE / name).exists() or bool(leftovers(name))
            try:
                lab = cls.load(name)
            except LabError:
                lab = cls(name, "", {})
            lab._take_away()
            if left := leftovers(name):
                raise LabError(f"the lab {name!r} cannot be taken away whole: {', '.join(left)} is left")
        return there

    def _make(self) -> None:
        self.folder.mkdir(parents=True, mode=0o700)
        net = network_of(self.subnet)
        many = len(self.hosts) > network.MANY_HOSTS
        if many:
            self.limits_before = _limits_before_other_labs() or network.neighbour_limits()
        self._save()  # from here on `down` knows what to look for
        if many:
            network.raise_neighbour_limits()
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"lab {self.name}", "-f", str(self.key_path))
        network.make_bridge(self.bridge, ipaddress.IPv4Interface(f"{net[1]}/{net.prefixlen}"))
        for host in self.hosts.values():
            folder = self.folder / host.name
            (folder / "disk").mkdir(parents=True)
            run("mount", "-t", "tmpfs", "-o", f"size={self.sizes['disk']},mode=755", "tmpfs", str(folder / "disk"))
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", host.name, "-f", str(folder / "host_key"))
            (folder / "sshd_config").write_text(sshd_config(host.address, self.sshd_options))
        client_files.write_client_files(
            self.folder, {host.name: host.address for host in self.hosts.values()}, self.user
        )
        for name in self.hosts:
            self._boot(name)
        for name in self.hosts:
            self._await_sshd(name)
        if self.trusted_in:
            client_files.trust(Path(self.trusted_in), self.name, self.known_hosts_path.read_text())

    def _take_away(self) -> None:
        for path in NAMESPACES.glob(f"{self.bridge}-*"):
            _end(path.name)
            run("ip", "netns", "del", path.name, check=False)
        for group in memory.groups_of(self.bridge):
            memory.lift(group)
        network.remove_bridge(self.bridge)
        for where in reversed(mounts_under(self.folder)):
            run("umount", "-l", where, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.trusted_in:
            client_files.forget(Path(self.trusted_in), self.name)
        if self.limits_before and not _limits_before_other_labs():
            network.set_neighbour_limits(self.limits_before)

    # --- breaking and mending ---

    def exec(self, host: str, argv: Sequence[str], *, user: str = "root") -> list[str]:
        """Return the command that runs `argv` inside a host, for subprocess or exec.

        Raises:
            LabError: the host is not up.
        """
        pid = first_process(self._host(host).namespace)
        if pid is None:
            raise LabError(f"{host} is switched off", try_this=f"ddp-orch lab start {host}{self._option}")
        inside = ["nsenter", "-t", str(pid), "-m", "-u", "-i", "-n", "-p", "-r", "-w", "--"]
        # A fresh environment: the caller's own (HOME, PYTHONPATH, VIRTUAL_ENV, tokens) is not the host's.
        as_user = ["setpriv", "--reset-env", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        return [*inside, *as_user, "env", f"PATH={HOST_PATH}", *argv]

    def run(self, host: str, *argv: str, check: bool = True, user: str = "root") -> str:
        """Run a command inside a host and return what it printed."""
        return run(*self.exec(host, argv, user=user), check=check)

    def kill(self, host: str) -> None:
        """Cut a host's power: silence on the wire first, or the kernel would reset every connection; then all dies."""
        found = self._host(host)
        with locked():
            network.set_cable(found.cable, plugged=False)
            _end(found.namespace)
            memory.lift(found.cable)
            network.tear_out(found.namespace, found.cable)

    def start(self, host: str) -> None:
        """Switch a host on again; its disk is as it was, /tmp, /run and /dev/shm are empty.

        Raises:
            LabError: it is on already, or does not come up.
        """
        found = self._host(host)
        with locked():
            if first_process(found.namespace) is not None:
                raise LabError(f"{host} is on already")
            network.tear_out(found.namespace, found.cable)  # it may have died in another way than by `kill`
            self._boot(host)
            self._await_sshd(host)

    def cut(self, host: str) -> None:
        """Pull a host's network cable; it stays out when the host is switched off and on."""
        cable = self._host(host).cable
        self._mark(host, "unplugged").touch()
        network.set_cable(cable, plugged=False)

    def heal(self, host: str) -> None:
        """Plug it in again."""
        cable = self._host(host).cable
        self._mark(host, "unplugged").unlink(missing_ok=True)
        network.set_cable(cable, plugged=True)

    def rate(self, host: str, rate: str) -> None:
        """Limit a host's link in both directions, `1gbit` say, or lift the limit with "off".

        Raises:
            LabError: tc does not know that rate; the link is as before.
        """
        found = self._host(host)
        if first_process(found.namespace) is None:
            raise LabError(f"{host} is switched off", try_this=f"ddp-orch lab start {host}{self._option}")
        network.shape(found.namespace, found.cable, rate)
        self._mark(host, "rate").write_text("" if rate == "off" else rate)

    def configure_sshd(self, host: str, *options: str) -> None:
        """Give one host's sshd other options from now on, in place of those of `up`; it reads them at once.

        Raises:
            LabError: the host is off, or sshd does not take them (it goes on as before).
        """
        config = sshd_config(self._host(host).address, options)
        write = "cat > /run/new && /usr/sbin/sshd -t -f /run/new && mv /run/new /etc/ssh/lab_sshd_config"
        # It takes its pid file away and writes it anew once it listens again; in between, logins are refused.
        begun = f"until [ -s {SSHD_PID} ]; do sleep 0.01; done"
        anew = f'pid=$(cat {SSHD_PID}) && rm {SSHD_PID} && kill -HUP "$pid" && {begun}'
        run("timeout", str(BOOT_TIMEOUT_S), *self.exec(host, ["sh", "-c", f"{write} && {anew}"]), stdin=config)
        (self.folder / host / "sshd_config").write_text(config)

    def fill(self, host: str) -> None:
        """Leave no room on a host's disk: not a byte can be written until `clear`."""
        self._resize_disk(host, str(self._disk_used_bytes(host)))

    def clear(self, host: str) -> None:
        """Give a host's disk its room back."""
        self._resize_disk(host, self.sizes["disk"])

    def memory(self, host: str, limit: str) -> None:
        """Limit what a host's processes may take together from now on, `256m` say, or lift the limit with "off".

        At the limit the kernel kills the largest of them. The limit ends with the host's power.

        Raises:
            LabError: the host is off, that is no size, or this machine's kernel cannot limit memory.
        """
        found = self._host(host)
        pids = [pid for pid, inside in processes_in(found.namespace).items() if inside is not None]
        if not pids:
            raise LabError(f"{host} is switched off", try_this=f"ddp-orch lab start {host}{self._option}")
        if limit == "off":
            memory.lift(found.cable)
        else:
            memory.limit(found.cable, pids, memory.bytes_of(limit))

    def clock(self, host: str, ahead_s: int) -> None:
        """Set a host's clock off for all that logs in from now on; 0 puts it right.

        What is measured (CLOCK_MONOTONIC) and the times of files go on as before.

        Raises:
            LabError: the host is off, or this machine has no compiler.
        """
        if ahead_s == 0:
            self.configure_sshd(host, *self.sshd_options)
            return
        library = f"/var/lib/clock{ahead_s:+d}.so"
        clock.make_library(self.folder / self._host(host).name / "clock.so", ahead_s)
        content = (self.folder / host / "clock.so").read_bytes().hex()
        write = "import sys; open(sys.argv[1], 'wb').write(bytes.fromhex(sys.stdin.read()))"
        run(*self.exec(host, ["python3", "-c", write, library]), stdin=content)
        self.configure_sshd(host, *self.sshd_options, f"SetEnv PATH={HOST_PATH} LD_PRELOAD={library}")

    def status(self) -> dict[str, dict[str, object]]:
        """Return of each host: address, power, cable, rate, and how many processes run in it."""
        seen: dict[str, dict[str, object]] = {}
        for host in self.hosts.values():
            inside = [pid for pid in processes_in(host.namespace).values() if pid is not None]
            rate = self._mark(host.name, "rate")
            seen[host.name] = {
                "address": host.address,
                "power": "on" if 1 in inside else "off",
                "cable": "cut" if self._mark(host.name, "unplugged").exists() else "plugged",
                "rate": rate.read_text() if rate.exists() else "",
                "processes": len(inside),
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

    def _mark(self, host: str, what: str) -> Path:
        """Return a file beside a host's disk: what is done to it from outside is kept there, for every command."""
        return self.folder / host / what

    @property
    def _option(self) -> str:
        """What a command needs to mean this lab."""
        return "" if self.name == "lab" else f" --name {self.name}"

    def _disk_used_bytes(self, host: str) -> int:
        disk = os.statvfs(self.folder / self._host(host).name / "disk")
        return (disk.f_blocks - disk.f_bfree) * disk.f_frsize

    def _resize_disk(self, host: str, size: str) -> None:
        run("mount", "-o", f"remount,size={size}", str(self.folder / self._host(host).name / "disk"))

    def _boot(self, name: str) -> None:
        """Give a host a network of its own and start its first process."""
        host = self.hosts[name]
        address = ipaddress.IPv4Interface(f"{host.address}/{network_of(self.subnet).prefixlen}")
        network.plug_in(host.namespace, host.cable, self.bridge, address)
        if self._mark(name, "rate").exists() and (rate := self._mark(name, "rate").read_text()):
            network.shape(host.namespace, host.cable, rate)
        if self.resolver == "silent":
            # Dropped on the way in: dropped on the way out, the sender would be told.
            drops = [f'add rule inet lab input iifname "lo" {kind} dport 53 drop' for kind in ("udp", "tcp")]
            chain = "add chain inet lab input { type filter hook input priority 0; }"
            network.load_rules("add table inet lab", chain, *drops, namespace=host.namespace)
        network.set_cable(host.cable, plugged=not self._mark(name, "unplugged").exists())
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
        lines += [f"{other.address} {other.name}" for other in self.hosts.values()]
        _holders[host.namespace] = boot(
            self.folder / name,
            namespace=host.namespace,
            name=name,
            hosts_file="\n".join(lines),
            key=self.key_path,
            sizes=self.sizes,
        )

    def _await_sshd(self, name: str) -> None:
        """Wait until a host that was just started takes SSH connections; behind a cut cable, until it would."""
        host = self.hosts[name]
        unplugged = self._mark(name, "unplugged").exists()
        end = time.monotonic() + BOOT_TIMEOUT_S
        while time.monotonic() < end and _holders[host.namespace].poll() is None:
            if unplugged:
                if _listens(host.namespace):
                    return
            else:
                with contextlib.suppress(OSError), socket.create_connection((host.address, 22), 1) as sock:
                    if sock.recv(4) == b"SSH-":
                        return
            time.sleep(0.02)
        console = (self.folder / name / "console.log").read_text(errors="replace").splitlines()
        words = [line.strip() for line in console if line.strip() and "dmesg(1)" not in line]
        raise LabError(f"{name} did not come up: {words[-1] if words else 'its console is empty'}")


# The children that hold hosts which this process started, by network namespace.
_holders: dict[str, subprocess.Popen[bytes]] = {}


def _end(namespace: str) -> None:
    """Kill everything in a host at once."""
    kill_all_in(namespace)
    if holder := _holders.pop(namespace, None):
        holder.wait(BOOT_TIMEOUT_S)


def _listens(namespace: str) -> bool:
    """Return whether something listens on port 22 inside a host, as its kernel tells."""
    return "LISTEN" in run("ip", "netns", "exec", namespace, "ss", "-Hltn", "sport = :22", check=False)


def _limits_before_other_labs() -> dict[str, int]:
    """Return the neighbour limits from before the labs that now stand raised them; nothing where none did."""
    for name in names():
        with contextlib.suppress(LabError):
            if limits := Lab.load(name).limits_before:
                return limits
    return {}

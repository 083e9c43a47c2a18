"""What OpenSSH's configuration says about a host.

`ssh -G` answers with Include, Match and token expansion done by OpenSSH itself. Fabric's own reader ignores Include,
reverses the order of several ProxyJump hops and dials a host called "none" for `ProxyJump none`; it is the fallback
where there is no ssh binary.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import HostUnreachable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.model.host import Host, Inventory

SSH_G_TIMEOUT_S = 10.0  # `Match exec` runs commands of the user's
DEFAULT_CONNECT_TIMEOUT_S = 8.0
DEFAULT_KEEPALIVE_S = 15
DEFAULT_IDENTITIES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")


@dataclass(frozen=True)
class SshTarget:
    """Where and how to dial, with every default filled in.

    Attributes:
        hostname: address or name to dial.
        port: TCP port.
        user: login name.
        identity_files: private keys to offer, in order (existing files only).
        identities_only: offer no key of the agent that is not among `identity_files`.
        agent_socket: path of the agent's socket, or "" for none.
        known_hosts: files to read host keys from; new keys go into the first.
        hash_known_hosts: write new keys with the host's name hashed.
        host_key_name: name under which known_hosts holds the host (HostKeyAlias, or what is dialled).
        jumps: hosts to go through, nearest to the controller first, each as `[user@]host[:port]`.
        proxy_command: command whose standard streams are the connection, or "".
        connect_timeout_s: for TCP and for the banner.
        keepalive_s: seconds between keepalive messages.
    """

    hostname: str
    port: int
    user: str
    identity_files: tuple[Path, ...]
    identities_only: bool
    agent_socket: str
    known_hosts: tuple[Path, ...]
    hash_known_hosts: bool
    host_key_name: str
    jumps: tuple[str, ...]
    proxy_command: str
    connect_timeout_s: float
    keepalive_s: int


def resolve(
    destination: str,
    *,
    user: str | None = None,
    port: int | None = None,
    key: str | None = None,
    host: str = "",
    environ: Mapping[str, str],
) -> SshTarget:
    """Ask OpenSSH how it would reach a destination.

    Args:
        destination: alias, name or address.
        user: login name that overrides the configuration's, if any.
        port: port that overrides the configuration's, if any.
        key: private key that is offered first, if any.
        host: inventory name, for errors.
        environ: the caller's environment (SSH_AUTH_SOCK, DDP_ORCH_SSH_CONFIG: a file instead of OpenSSH's own).

    Raises:
        HostUnreachable: OpenSSH refuses its own configuration.
    """
    config_file = environ.get("DDP_ORCH_SSH_CONFIG", "")
    options: dict[str, list[str]]
    if shutil.which("ssh"):
        argv = ["ssh", "-G"]
        argv += ["-F", config_file] if config_file else []
        argv += ["-l", user] if user else []
        argv += ["-p", str(port)] if port else []
        options = _parsed(_ssh_g([*argv, "--", destination], host or destination))
    else:
        options = _fabric_reader(destination, Path(config_file or "~/.ssh/config").expanduser(), user, port)
    return _target(destination, options, key, environ)


def resolve_host(host: Host, environ: Mapping[str, str]) -> SshTarget:
    """Resolve an inventory host; see `resolve`."""
    return resolve(host.ssh, user=host.user, port=host.port, key=host.key, host=host.name, environ=environ)


def with_addresses(inventory: Inventory, environ: Mapping[str, str]) -> Inventory:
    """Fill in the addresses of hosts that the inventory gives as an SSH alias alone: what OpenSSH would dial.

    Raises:
        HostUnreachable: OpenSSH refuses its own configuration.
    """
    hosts = [
        host if host.address else replace(host, address=resolve_host(host, environ).hostname)
        for host in inventory.hosts
    ]
    return replace(inventory, hosts=tuple(hosts))


def parse_jump(jump: str) -> tuple[str, str | None, int | None]:
    """Split `[ssh://][user@]host[:port]` (brackets around IPv6) into host, user and port."""
    rest = jump.removeprefix("ssh://")
    user, at, rest = rest.rpartition("@")
    if rest.startswith("["):
        name, _, tail = rest[1:].partition("]")
        port = tail.removeprefix(":")
    elif rest.count(":") == 1:
        name, _, port = rest.partition(":")
    else:
        name, port = rest, ""
    return name, (user if at else None), (int(port) if port.isdigit() else None)


def _ssh_g(argv: Sequence[str], host: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=SSH_G_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise HostUnreachable(
            f"OpenSSH's configuration took more than {SSH_G_TIMEOUT_S:.0f} s to read",
            host=host,
            reason="ssh_config",
            try_this=f"ssh -G {host}; a 'Match exec' command in ~/.ssh/config may hang",
        ) from error
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()
        raise HostUnreachable(
            f"OpenSSH refuses its configuration: {words[-1] if words else f'exit code {done.returncode}'}",
            host=host,
            reason="ssh_config",
            try_this=f"ssh -G {host}",
        )
    return done.stdout


def _parsed(text: str) -> dict[str, list[str]]:
    options: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        options.setdefault(name.lower(), []).append(value)
    return options


def _fabric_reader(destination: str, path: Path, user: str | None, port: int | None) -> dict[str, list[str]]:
    from paramiko import SSHConfig

    found: Mapping[str, Any] = SSHConfig.from_path(str(path)).lookup(destination) if path.is_file() else {}
    options = {name: value if isinstance(value, list) else [str(value)] for name, value in found.items()}
    if user:
        options["user"] = [user]
    if port:
        options["port"] = [str(port)]
    return options


def _target(
    destination: str, options: Mapping[str, list[str]], key: str | None, environ: Mapping[str, str]
) -> SshTarget:
    import getpass

    def one(name: str, default: str) -> str:
        value = options.get(name, [default])[0]
        return default if value.lower() == "none" else value

    hostname, port = one("hostname", destination), int(one("port", "22"))
    named = ([key] if key else []) + list(options.get("identityfile", DEFAULT_IDENTITIES))
    files = tuple(dict.fromkeys(path for name in named if (path := Path(name).expanduser()).is_file()))
    user_known = one("userknownhostsfile", "~/.ssh/known_hosts").split()
    global_known = one("globalknownhostsfile", "/etc/ssh/ssh_known_hosts").split()
    dialled = hostname if port == 22 else f"[{hostname}]:{port}"
    jumps = [jump.strip() for value in options.get("proxyjump", []) for jump in value.split(",")]
    agent = one("identityagent", "SSH_AUTH_SOCK") if options.get("identityagent", [""])[0].lower() != "none" else ""
    return SshTarget(
        hostname=hostname,
        port=port,
        user=one("user", getpass.getuser()),
        identity_files=files,
        identities_only=one("identitiesonly", "no") == "yes",
        agent_socket=environ.get("SSH_AUTH_SOCK", "") if agent == "SSH_AUTH_SOCK" else agent,
        known_hosts=tuple(Path(name).expanduser() for name in [*user_known, *global_known]),
        hash_known_hosts=one("hashknownhosts", "no") == "yes",
        host_key_name=one("hostkeyalias", dialled),
        jumps=tuple(jump for jump in jumps if jump and jump.lower() != "none"),
        proxy_command=one("proxycommand", ""),
        connect_timeout_s=float(one("connecttimeout", str(DEFAULT_CONNECT_TIMEOUT_S)) or DEFAULT_CONNECT_TIMEOUT_S),
        keepalive_s=int(one("serveraliveinterval", "0")) or DEFAULT_KEEPALIVE_S,
    )

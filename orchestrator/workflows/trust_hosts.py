"""Ask hosts for their keys without logging in, and write down those that the user accepts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.transport.fan_out import on_all_hosts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import paramiko

    from orchestrator.errors import DdpOrchError
    from orchestrator.model.host import Host, Inventory
    from orchestrator.transport.ssh_config import SshTarget
    from orchestrator.transport.ssh_link import SshConnector


@dataclass(frozen=True)
class ShownKey:
    """The key a host shows.

    Attributes:
        host: inventory name.
        address: as known_hosts names it.
        kind: type of the key.
        fingerprint: `SHA256:...`.
        standing: "known", "new", or "CHANGED" with what was expected.
    """

    host: str
    address: str
    kind: str
    fingerprint: str
    standing: str
    target: SshTarget
    key: paramiko.PKey


def show_keys(
    inventory: Inventory, *, environ: Mapping[str, str], deadline_s: float = 15.0
) -> dict[str, ShownKey | DdpOrchError]:
    """Ask every host that is reached by SSH for its key.

    Args:
        inventory: the hosts.
        environ: the caller's environment.
        deadline_s: seconds for all of them together.
    """
    from orchestrator.transport.ssh_link import SshConnector

    connector = SshConnector(environ=environ)
    hosts = [host for host in inventory.hosts if host.connection == "ssh"]
    work = {host.name: partial(_shown, connector, host) for host in hosts}
    try:
        return on_all_hosts(work, deadline_s=deadline_s)
    finally:
        connector.close()


def _shown(connector: SshConnector, host: Host) -> ShownKey:
    from orchestrator.transport.host_keys import fingerprint

    target, check, key = connector.host_key(host)
    if any(known == key for known in check.known.keys):
        standing = "known"
    elif check.known.keys:
        wanted = ", ".join(fingerprint(known) for known in check.known.keys)
        standing = f"CHANGED, known_hosts has {wanted}; if that is right: ssh-keygen -R '{target.host_key_name}'"
    else:
        standing = "new"
    return ShownKey(host.name, target.host_key_name, key.get_name(), fingerprint(key), standing, target, key)


def remember_key(shown: ShownKey) -> Path:
    """Write a key to known_hosts and return that file's path.

    Raises:
        HostUnreachable: the file cannot be written.
    """
    from orchestrator.transport.host_keys import remember

    return remember(shown.target, shown.key)

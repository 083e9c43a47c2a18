"""What makes SSH and ddp-orch find a lab's hosts: an inventory, an SSH configuration, and known_hosts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Mapping


def write_client_files(folder: Path, addresses: Mapping[str, str], user: str) -> None:
    """Write known_hosts, ssh_config and inventory.yaml into a lab's folder.

    Args:
        folder: the lab's, with `key` and each host's `NAME/host_key.pub` in it.
        addresses: host name -> IPv4 address.
        user: whom the inventory logs in as.
    """
    key, known_hosts, ssh_config = folder / "key", folder / "known_hosts", folder / "ssh_config"
    public = {name: (folder / name / "host_key.pub").read_text() for name in addresses}
    known_hosts.write_text("".join(f"{address} {public[name]}" for name, address in addresses.items()))
    ssh_config.write_text(
        f"# written by ddp-orch lab up; use it with: ssh -F {ssh_config} {next(iter(addresses))}\n"
        + "".join(f"Host {name}\n  HostName {address}\n" for name, address in addresses.items())
        + f"Host *\n  User {user}\n  IdentityFile {key}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {known_hosts}\n  HashKnownHosts no\n"
    )
    threads = max(1, (os.cpu_count() or 1) // len(addresses))
    hosts = "".join(f"  - name: {name}\n    address: {address}\n" for name, address in addresses.items())
    (folder / "inventory.yaml").write_text(
        "# Virtual hosts on one machine, written by ddp-orch lab up.\n"
        f"defaults:\n  user: {user}\n  key: {key}\n"
        f"  python: {sys.prefix}/bin/python\n  processes: 1\n"
        f"env:\n  OMP_NUM_THREADS: {threads}   # they share this machine's CPUs\n"
        f"hosts:\n{hosts}"
    )


def users_known_hosts() -> Path:
    """Return the caller's own known_hosts file."""
    return Path("~/.ssh/known_hosts").expanduser()


def trust(known_hosts: Path, lab: str, lines: str) -> None:
    """Add a lab's host keys to a known_hosts file, between marks that `forget` finds again.

    Raises:
        LabError: the file cannot be written.
    """
    begin, end = _marks(lab)
    try:
        known_hosts.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        before = known_hosts.read_text(errors="surrogateescape") if known_hosts.exists() else ""
        gap = "" if before.endswith("\n") or not before else "\n"
        with known_hosts.open("a", errors="surrogateescape") as file:
            file.write(f"{gap}{begin}\n{lines}{end}\n")
    except OSError as error:
        raise LabError(f"{known_hosts} cannot be written: {error.strerror}") from error


def forget(known_hosts: Path, lab: str) -> None:
    """Take the lines between a lab's marks out of a known_hosts file, and no other; none there is fine."""
    begin, end = _marks(lab)
    try:
        lines = known_hosts.read_text(errors="surrogateescape").splitlines(keepends=True)
    except OSError:
        return
    bare = [line.rstrip("\n") for line in lines]
    if begin in bare and end in bare[bare.index(begin) :]:
        start = bare.index(begin)
        kept = lines[:start] + lines[bare.index(end, start) + 1 :]
        # Written in place: a new file in its stead would belong to root, and would break a link.
        known_hosts.write_text("".join(kept), errors="surrogateescape")


def _marks(lab: str) -> tuple[str, str]:
    return f"# ddp-orch lab {lab}: begin", f"# ddp-orch lab {lab}: end"

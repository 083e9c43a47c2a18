"""Host keys: read from known_hosts, verified before anything is sent, written when the user says so.

Fabric and Paramiko accept any key unless told otherwise, and Paramiko keeps one key of a type for a host where
OpenSSH accepts several (a host between two keys). So the check is ours, in the one place that Paramiko asks when it
knows nothing.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
from typing import TYPE_CHECKING

import paramiko

from orchestrator.errors import HostUnreachable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from orchestrator.transport.ssh_config import SshTarget


def fingerprint(key: paramiko.PKey) -> str:
    """Return a key's fingerprint as `ssh-keygen -l` prints it: `SHA256:...`."""
    digest = hashlib.sha256(key.asbytes()).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


class KnownHosts:
    """The keys that known_hosts files hold for one host.

    Attributes:
        keys: keys of the host, any of which it may show.
        revoked: key blobs that no host may show.
    """

    def __init__(self, files: Sequence[Path], name: str) -> None:
        """Read the files; a missing or unreadable one holds nothing.

        Args:
            files: known_hosts files in OpenSSH's format; hashed names are understood, `@cert-authority` is not.
            name: the host as these files name it: `address`, or `[address]:port` for a port other than 22.
        """
        self.keys: list[paramiko.PKey] = []
        self.revoked: set[bytes] = set()
        for file in files:
            try:
                lines = file.read_text(errors="replace").splitlines()
            except OSError:
                continue
            for line in lines:
                self._add(line.strip(), name)

    def _add(self, line: str, name: str) -> None:
        if line.startswith("@revoked"):
            fields = line.split()
            if len(fields) >= 4 and (entry := _entry(" ".join(fields[1:]))) is not None and entry.key is not None:
                self.revoked.add(entry.key.asbytes())
        elif (entry := _entry(line)) is not None and entry.key is not None and _names(entry, name):
            self.keys.append(entry.key)


def _entry(line: str) -> paramiko.hostkeys.HostKeyEntry | None:
    if not line or line.startswith(("#", "@")):
        return None
    try:
        return paramiko.hostkeys.HostKeyEntry.from_line(line)
    except paramiko.SSHException:
        return None  # a line that OpenSSH would skip as well


def _names(entry: paramiko.hostkeys.HostKeyEntry, name: str) -> bool:
    from fnmatch import fnmatchcase

    listed = entry.hostnames or []
    if any(pattern.startswith("!") and fnmatchcase(name, pattern[1:].replace("[", "[[]")) for pattern in listed):
        return False
    for pattern in listed:
        if pattern.startswith("|1|"):
            if paramiko.HostKeys.hash_host(name, pattern) == pattern:
                return True
        elif fnmatchcase(name, pattern.replace("[", "[[]")):  # only * and ? are wild in known_hosts
            return True
    return False


class HostKeyCheck(paramiko.MissingHostKeyPolicy):
    """Verifies a host's key. Paramiko asks it for every host, since it is given no known keys itself."""

    def __init__(self, host: str, target: SshTarget, *, accept_new: bool) -> None:
        """Read what is known of the host.

        Args:
            host: inventory name, for errors.
            target: where the key is expected.
            accept_new: write an unknown key to known_hosts and go on; a changed key is refused all the same.
        """
        self._host = host
        self._target = target
        self._accept_new = accept_new
        self.known = KnownHosts(target.known_hosts, target.host_key_name)

    def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
        """Return when `key` is the host's.

        Raises:
            HostUnreachable: it is unknown, has changed, or was revoked.
        """
        del client, hostname  # Paramiko's names of what the target says better
        name = self._target.host_key_name
        shown = f"{key.get_name()} {fingerprint(key)}"
        if key.asbytes() in self.known.revoked:
            raise HostUnreachable(
                f"its host key ({shown}) is marked as revoked", host=self._host, reason="host_key_revoked",
                try_this="do not log in there; ask whoever runs the host for its new key",
            )  # fmt: skip
        if any(known == key for known in self.known.keys):
            return
        if self.known.keys:
            wanted = ", ".join(f"{known.get_name()} {fingerprint(known)}" for known in self.known.keys)
            files = [file for file in self._target.known_hosts if KnownHosts([file], name).keys]
            raise HostUnreachable(
                f"the host key has changed: it shows {shown}, known_hosts has {wanted}",
                host=self._host,
                reason="host_key_changed",
                try_this=f"if the host was installed anew: ssh-keygen -R '{name}' -f {files[0]} && ddp-orch trust; "
                "if not, someone may stand in between",
            )
        if not self._accept_new:
            raise HostUnreachable(
                f"the host key is not known ({shown})",
                host=self._host,
                reason="host_key_unknown",
                try_this="ddp-orch trust (shows the keys and asks), or --accept-new-host-keys",
            )
        remember(self._target, key)

    def wanted_types(self) -> list[str]:
        """Return the key types that known_hosts has for the host, to be asked for first."""
        return list(dict.fromkeys(key.get_name() for key in self.known.keys))


def remember(target: SshTarget, key: paramiko.PKey) -> Path:
    """Append a host's key to the first known_hosts file and return that file's path.

    Raises:
        HostUnreachable: the file cannot be written.
    """
    file = target.known_hosts[0]
    name = paramiko.HostKeys.hash_host(target.host_key_name) if target.hash_known_hosts else target.host_key_name
    line = f"{name} {key.get_name()} {key.get_base64()}\n"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)  # all hosts are met at once
            stream.seek(0)
            whole = stream.read()
            stream.write((b"\n" if whole and not whole.endswith(b"\n") else b"") + line.encode())
    except OSError as error:
        raise HostUnreachable(
            f"its key cannot be written to {file}: {error.strerror}", host=target.hostname, reason="known_hosts"
        ) from error
    return file


def prefer_types(transport: paramiko.Transport, types: Sequence[str]) -> None:
    """Ask for host keys of these types first, so that a host with several shows the one that is known."""
    options = transport.get_security_options()
    offered = tuple(options.key_types)
    # An RSA key is signed with SHA-2 under another algorithm name.
    first = [name for kind in types for name in (("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,))]
    options.key_types = tuple(
        [name for name in first if name in offered] + [name for name in offered if name not in first]
    )

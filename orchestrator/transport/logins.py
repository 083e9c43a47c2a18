"""The keys and passwords that are offered to a host, in OpenSSH's order, and what became of each."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.agent import AgentSSH
from paramiko.auth_strategy import AuthStrategy, InMemoryPrivateKey, Password

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from paramiko.auth_strategy import AuthSource

    from orchestrator.transport.ssh_config import SshTarget

# OpenSSH's server ends the connection after 6 refused keys (MaxAuthTries); one is left for a password.
MAX_KEYS_OFFERED = 5


class _Agent(AgentSSH):
    """An ssh-agent behind a given socket (Paramiko's own class knows SSH_AUTH_SOCK only)."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path)
            self._connect(self._socket)  # type: ignore[attr-defined]  # as Paramiko's Agent does; no public way
        except (OSError, paramiko.SSHException):
            self._socket.close()  # no agent there: it offers no keys

    def close(self) -> None:
        self._socket.close()


class Logins(AuthStrategy):
    """Paramiko's way to be told what to try: named keys first, then the agent's, then a password.

    Attributes:
        offered: what was offered so far, for the message when all is refused.
        locked: key files that need a passphrase and were not offered.
        unreadable: key files that could not be read, each with the reason.
    """

    def __init__(self, target: SshTarget, password: Callable[[], str] | None) -> None:
        """Prepare for one connection.

        Args:
            target: whose keys and agent.
            password: asks for the password, which also unlocks key files; None where nobody may be asked.
        """
        super().__init__(ssh_config=paramiko.SSHConfig())
        self._target = target
        self._password = password
        self.offered: list[str] = []
        self.locked: list[Path] = []
        self.unreadable: list[str] = []

    def get_sources(self) -> Iterator[AuthSource]:
        """Yield what to try, in order."""
        user = self._target.user
        wanted = self._public_blobs()
        with contextlib.closing(_Agent(self._target.agent_socket)) as agent:
            held = list(agent.get_keys()) if self._target.agent_socket else []
            if self._target.identities_only:
                held = [key for key in held if key.asbytes() in wanted]
            named = [(str(file), key) for file in self._target.identity_files if (key := self._load(file)) is not None]
            # A named key that the agent holds needs no passphrase: those come before the agent's other keys.
            held.sort(key=lambda key: key.asbytes() not in wanted)
            for label, key in [*named, *((f"agent: {key.comment or key.get_name()}", key) for key in held)]:
                if len(self.offered) < MAX_KEYS_OFFERED:
                    self.offered.append(label)
                    yield InMemoryPrivateKey(user, key)
        if self._password is not None:
            self.offered.append("password")
            yield Password(user, self._password)

    def _load(self, file: Path) -> paramiko.PKey | None:
        try:
            return paramiko.PKey.from_path(file)
        except (TypeError, paramiko.PasswordRequiredException):
            return self._unlock(file)
        except (
            OSError,
            ValueError,
            UnsupportedAlgorithm,
            paramiko.SSHException,
            paramiko.pkey.UnknownKeyType,
        ) as error:
            self.unreadable.append(f"{file}: {error}")
            return None

    def _unlock(self, file: Path) -> paramiko.PKey | None:
        if self._password is not None:
            with contextlib.suppress(ValueError, TypeError, paramiko.SSHException):
                return paramiko.PKey.from_path(file, self._password().encode())  # type: ignore[arg-type]  # it wants bytes
        self.locked.append(file)
        return None

    def _public_blobs(self) -> set[bytes]:
        blobs = set()
        for file in self._target.identity_files:
            with contextlib.suppress(OSError, ValueError, IndexError):
                import base64

                blobs.add(base64.b64decode(file.with_name(file.name + ".pub").read_text().split()[1]))
        return blobs

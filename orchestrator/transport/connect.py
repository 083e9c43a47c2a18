"""Open a way to a host, over SSH or to this machine."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from orchestrator.transport.local_link import LocalLink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.model.host import Host
    from orchestrator.transport.link import Link
    from orchestrator.transport.ssh_link import SshConnector


class Connector:
    """Opens links; `close` it when all is done."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        accept_new_host_keys: bool = False,
        password: Callable[[], str] | None = None,
    ) -> None:
        """See `ssh_link.SshConnector`; it is made only when a host needs SSH, since it takes Fabric a while to load."""
        self._environ = environ
        self._accept_new_host_keys = accept_new_host_keys
        self._password = password
        self._ssh: SshConnector | None = None

        self._lock = threading.Lock()

    @property
    def ssh(self) -> SshConnector:
        """The connector for hosts behind SSH."""
        with self._lock:  # several hosts are reached at once
            if self._ssh is None:
                from orchestrator.transport.ssh_link import SshConnector

                self._ssh = SshConnector(
                    environ=self._environ, accept_new_host_keys=self._accept_new_host_keys, password=self._password
                )
            return self._ssh

    def connect(self, host: Host) -> Link:
        """Open a link to one host.

        Raises:
            HostUnreachable: with the reason and what to do about it.
        """
        return LocalLink(host) if host.connection == "local" else self.ssh.connect(host)

    def close(self) -> None:
        """Close what the links shared."""
        if self._ssh is not None:
            self._ssh.close()

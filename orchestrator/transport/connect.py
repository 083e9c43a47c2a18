"""Open ways to all hosts of an inventory at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.transport.fan_out import on_all_hosts
from orchestrator.transport.local_link import LocalLink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.errors import DdpOrchError
    from orchestrator.model.host import Host
    from orchestrator.transport.link import Link
    from orchestrator.transport.ssh_link import SshConnector


class Connector:
    """Opens links, over SSH or to this machine. A context manager is not needed: `close` when all is done."""

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

    @property
    def ssh(self) -> SshConnector:
        """The connector for hosts behind SSH."""
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

    def connect_all(
        self,
        hosts: Sequence[Host],
        *,
        deadline_s: float = 15.0,
        on_done: Callable[[str, Link | DdpOrchError], None] = lambda _host, _link: None,
    ) -> dict[str, Link | DdpOrchError]:
        """Open links to all hosts at once.

        Args:
            hosts: whom to reach.
            deadline_s: seconds for all of them together; one that takes longer gets an error as its result.
            on_done: called as each host answers or fails.
        """
        if any(host.connection == "ssh" for host in hosts):
            _ = self.ssh  # once, before the threads
        work = {host.name: (lambda host=host: self.connect(host)) for host in hosts}
        return on_all_hosts(work, deadline_s=deadline_s, on_done=on_done, discard=lambda link: link.close())

    def close(self) -> None:
        """Close what the links shared."""
        if self._ssh is not None:
            self._ssh.close()

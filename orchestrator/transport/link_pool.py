"""The links that one command has open, one per host, reopened where a connection was lost."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.transport.fan_out import on_all_hosts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.errors import DdpOrchError
    from orchestrator.model.host import Host
    from orchestrator.transport.connect import Connector
    from orchestrator.transport.link import Link


class LinkPool:
    """One connection per host, shared by all that a command does there. Threads may use different hosts at once."""

    def __init__(self, connector: Connector, hosts: Sequence[Host]) -> None:
        self._connector = connector
        self._hosts = {host.name: host for host in hosts}
        self._locks = {host.name: threading.Lock() for host in hosts}
        self._links: dict[str, Link] = {}

    @property
    def hosts(self) -> Mapping[str, Host]:
        """The inventory's entries, by name."""
        return self._hosts

    def open_all(self, *, deadline_s: float = 15.0) -> dict[str, Link | DdpOrchError]:
        """Connect to every host at once.

        Returns:
            host name -> its link, or why there is none.
        """
        work = {name: partial(self.link, name) for name in self._hosts}
        return on_all_hosts(work, deadline_s=deadline_s)

    def link(self, name: str) -> Link:
        """Return the link to a host, connecting where none is open.

        Raises:
            HostUnreachable: with the reason and what to do about it.
            UsageError: the inventory, as it was narrowed, does not have the host; a run may name others.
        """
        if name not in self._hosts:
            raise UsageError(
                f"the run also used {name!r}, which is not among the hosts of this command",
                try_this="the inventory that the run was started with, without --hosts and --exclude",
            )
        with self._locks[name]:
            if name not in self._links:
                self._links[name] = self._connector.connect(self._hosts[name])
            return self._links[name]

    def drop(self, name: str, link: Link) -> None:
        """Close a link that does not answer, so that the next use connects anew."""
        with self._locks[name]:
            if self._links.get(name) is link:
                del self._links[name]
        link.close()

    def close(self) -> None:
        """Close everything."""
        for link in list(self._links.values()):
            link.close()
        self._links.clear()
        self._connector.close()

"""End a run on all its hosts at once, or all runs."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from orchestrator.errors import DdpOrchError
from orchestrator.transport.fan_out import on_all_hosts, successes
from orchestrator.workflows.find_run import list_runs
from orchestrator.workflows.follow_run import STOP_ANSWER_S, stop_on_host

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.model.run_record import HostState, RunRecord
    from orchestrator.transport.link_pool import LinkPool

AT_ONCE = 6  # sshd lets a connection have ten sessions (MaxSessions)


@dataclass(frozen=True)
class Stopped:
    """What became of a run that was stopped.

    Attributes:
        run: its name.
        hosts: host -> how it stands there after a second scan, or why that is not known.
    """

    run: str
    hosts: Mapping[str, HostState | DdpOrchError]

    @property
    def clean(self) -> int:
        """On how many hosts nothing of it is left."""
        return sum(not isinstance(state, DdpOrchError) and state.left_over == 0 for state in self.hosts.values())

    @property
    def exit_code(self) -> int:
        """What this amounts to: 0 where nothing is left anywhere."""
        failed = [state for state in self.hosts.values() if isinstance(state, DdpOrchError)]
        return failed[0].exit_code if failed else int(self.clean < len(self.hosts))


def stop_run(pool: LinkPool, record: RunRecord, *, grace_s: float) -> Stopped:
    """Ask every host to end its part.

    Args:
        pool: links to the hosts.
        record: the run.
        grace_s: seconds for the workers to end by themselves before they are killed.
    """
    why = f"stopped by {getpass.getuser()}"
    work = {part.name: partial(stop_on_host, pool, part, why, grace_s=grace_s) for part in record.hosts}
    return Stopped(record.run, on_all_hosts(work, deadline_s=_deadline_s(grace_s)))


def stop_all_runs(pool: LinkPool, *, grace_s: float) -> tuple[list[Stopped], Mapping[str, DdpOrchError]]:
    """End every run of this account that lives on the hosts, whoever started it.

    Args:
        pool: links to the hosts.
        grace_s: as for `stop_run`.
    Returns:
        what became of each, newest first, and the hosts that could not be asked which runs they have.
    """
    listing = list_runs(pool)
    live = iter([run.record for run in listing.runs if run.is_live])
    stopped: list[Stopped] = []
    while batch := list(islice(live, AT_ONCE)):
        work = {record.run: partial(stop_run, pool, record, grace_s=grace_s) for record in batch}
        stopped += successes(on_all_hosts(work, deadline_s=_deadline_s(grace_s) + STOP_ANSWER_S)).values()
    return stopped, listing.missing


def _deadline_s(grace_s: float) -> float:
    return grace_s + 2 * STOP_ANSWER_S

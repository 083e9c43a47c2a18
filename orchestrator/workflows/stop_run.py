"""End a run on all its hosts at once."""

from __future__ import annotations

import getpass
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.transport.fan_out import on_all_hosts
from orchestrator.workflows.follow_run import STOP_ANSWER_S, stop_on_host

if TYPE_CHECKING:
    from orchestrator.errors import DdpOrchError
    from orchestrator.model.run_record import HostState, RunRecord
    from orchestrator.transport.link_pool import LinkPool


def stop_run(pool: LinkPool, record: RunRecord, *, grace_s: float) -> dict[str, HostState | DdpOrchError]:
    """Ask every host to end its part, and return how it stands there after a second scan, or why that is not known.

    Args:
        pool: links to the hosts.
        record: the run.
        grace_s: seconds for the workers to end by themselves before they are killed.
    """
    why = f"stopped by {getpass.getuser()}"
    work = {part.name: partial(stop_on_host, pool, part, why, grace_s=grace_s) for part in record.hosts}
    return on_all_hosts(work, deadline_s=grace_s + 2 * STOP_ANSWER_S)

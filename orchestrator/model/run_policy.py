"""How a run is to be kept going, and when it is to end."""

from __future__ import annotations

from dataclasses import dataclass

WORKER_HANG_AFTER_S = 900.0  # the bundled worker prints every few steps; a test over all images on a slow CPU is silent
WAIT_FOR_ALL_S = 600.0  # a machine that was switched on again needs minutes
WAIT_FOR_MORE_S = 60.0


@dataclass(frozen=True)
class RunPolicy:
    """What the supervisors of a run do when something goes wrong, or takes too long.

    Attributes:
        max_restarts: attempts that may follow the first one.
        min_hosts: as many have to take part in a later attempt; None means all.
        wait_for_hosts_s: how long a host may stay away before the others go on without it, or give up; None means
            a minute where fewer hosts may go on, else ten.
        hang_after_s: without progress on any rank for so long, the attempt has failed; 0 never, None by the script.
        timeout_s: for the whole run; 0 means none.
        log_limit_bytes: kept on the host of each of a rank's log files, the newest; 0 means all.
    """

    max_restarts: int = 0
    min_hosts: int | None = None
    wait_for_hosts_s: float | None = None
    hang_after_s: float | None = None
    timeout_s: float = 0.0
    log_limit_bytes: int = 0

    def order(self, hosts: int, *, bundled: bool) -> dict[str, float]:
        """Return what a supervisor is told.

        Args:
            hosts: how many take part at first.
            bundled: the script is the worker that comes with ddp-orch.
        """
        min_hosts = min(self.min_hosts or hosts, hosts)
        wait_s = WAIT_FOR_MORE_S if min_hosts < hosts else WAIT_FOR_ALL_S
        hang_after_s = WORKER_HANG_AFTER_S if bundled else 0.0
        return {
            "max_restarts": self.max_restarts,
            "min_hosts": min_hosts,
            "wait_for_hosts_s": wait_s if self.wait_for_hosts_s is None else self.wait_for_hosts_s,
            "hang_after_s": hang_after_s if self.hang_after_s is None else self.hang_after_s,
            "timeout_s": self.timeout_s,
            "log_limit": self.log_limit_bytes,
            "grace_s": 30.0,
        }

"""What is written down of a run, the same on every host and on the controller."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = 1
FINAL_STATES = ("succeeded", "failed", "stopped")


@dataclass(frozen=True)
class HostPart:
    """One host's part in a run.

    Attributes:
        name: inventory name at the time of the run.
        address: what the other hosts used.
        first_rank: global rank of its local rank 0.
        nproc: worker processes.
        run_dir: absolute path of the run's folder there.
    """

    name: str
    address: str
    first_rank: int
    nproc: int
    run_dir: str

    @property
    def ranks(self) -> range:
        """The global ranks that ran there."""
        return range(self.first_rank, self.first_rank + self.nproc)


@dataclass(frozen=True)
class RunRecord:
    """A run as it was started.

    Attributes:
        run: its name; sorts by start time.
        started_at: seconds since the epoch, by the controller's clock.
        started_by: user@machine of the controller.
        inventory: the inventory file as the user named it.
        script: the script (or `-m` and a module) and its arguments.
        backend: what the workers were told to use.
        master: `address:port` of the rendezvous.
        snapshot: id of the synced code.
        hosts: in node_rank order.
        max_restarts: attempts that may follow the first one.
    """

    run: str
    started_at: float
    started_by: str
    inventory: str
    script: tuple[str, ...]
    backend: str
    master: str
    snapshot: str
    hosts: tuple[HostPart, ...]
    max_restarts: int = 0

    @property
    def world_size(self) -> int:
        """Number of worker processes over all hosts."""
        return sum(host.nproc for host in self.hosts)

    def host_of(self, rank: int) -> HostPart | None:
        """Return the host that runs a rank, or None where there is no such rank."""
        return next((host for host in self.hosts if rank in host.ranks), None)

    def to_json(self) -> dict[str, Any]:
        """Return the record as a JSON document."""
        return {"schema": SCHEMA, **asdict(self)}


def record_from_json(body: Any) -> RunRecord:
    """Read a record that any version of ddp-orch with this schema wrote.

    Raises:
        ValueError: it is no such record.
    """
    if not isinstance(body, dict) or body.get("schema") != SCHEMA:
        raise ValueError(f"this is no run record of schema {SCHEMA}")
    try:
        hosts = tuple(
            HostPart(str(part["name"]), str(part["address"]), int(part["first_rank"]), int(part["nproc"]),
                     str(part["run_dir"]))
            for part in body["hosts"]
        )  # fmt: skip
        return RunRecord(
            run=str(body["run"]),
            started_at=float(body["started_at"]),
            started_by=str(body["started_by"]),
            inventory=str(body["inventory"]),
            script=tuple(map(str, body["script"])),
            backend=str(body["backend"]),
            master=str(body["master"]),
            snapshot=str(body["snapshot"]),
            hosts=hosts,
            max_restarts=int(body.get("max_restarts", 0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"a damaged run record: {error!r}") from error


@dataclass(frozen=True)
class RankEnd:
    """How one rank ended.

    Attributes:
        rank: global number.
        host: inventory name.
        exit_code: the script's own, negative for a signal.
        ended_at: seconds since the epoch, by the host's clock.
    """

    rank: int
    host: str
    exit_code: int
    ended_at: float


@dataclass(frozen=True)
class HostState:
    """How a run stands on one host.

    Attributes:
        host: inventory name.
        state: "starting", "running", "stopping", one of FINAL_STATES, "lost" (its supervisor is gone without a word)
            or "unreachable".
        ends: the ranks that have ended there.
        left_over: processes of the run that were still there at the last look, None before the end.
        cause: why the supervisor could not do its work, or "".
        stop_reason: why it was stopped, or "".
    """

    host: str
    state: str
    ends: tuple[RankEnd, ...] = ()
    left_over: int | None = None
    cause: str = ""
    stop_reason: str = ""

    @property
    def is_final(self) -> bool:
        """No more is to come."""
        return self.state in FINAL_STATES or self.state == "lost"


def host_state(host: str, state: Mapping[str, Any], *, alive: bool) -> HostState:
    """Read what a supervisor has written down.

    Args:
        host: inventory name.
        state: the content of its state.json.
        alive: the supervisor still runs.
    """
    name = str(state.get("state", "starting"))
    if not alive and name not in FINAL_STATES:
        name = "lost"
    ends = [
        RankEnd(int(rank["rank"]), host, int(rank["exit_code"]), float(rank.get("ended_at", 0)))
        for rank in (state.get("ranks") or {}).values()
        if rank.get("exit_code") is not None
    ]
    left = state.get("left_over")
    return HostState(
        host=host,
        state=name,
        ends=tuple(sorted(ends, key=lambda end: end.rank)),
        left_over=None if left is None else int(left),
        cause=str(state.get("cause") or ""),
        stop_reason=str((state.get("stop") or {}).get("why", "")),
    )

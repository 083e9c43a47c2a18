"""What is written down of a run, the same on every host and on the controller."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
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
class RankError:
    """The exception that ended a rank's main program, as its interpreter wrote it down.

    Attributes:
        type: name of its class.
        message: its text.
        where: file:line of the innermost call.
        lines: the end of the traceback.
        at: seconds since the epoch, by the host's clock.
    """

    type: str
    message: str
    where: str
    lines: tuple[str, ...]
    at: float


@dataclass(frozen=True)
class RankEnd:
    """How one rank ended.

    Attributes:
        rank: global number.
        host: inventory name.
        exit_code: the script's own, negative for a signal.
        ended_at: seconds since the epoch, by the host's clock.
        ended_by_us: it was still at work when its supervisor ended the attempt.
        error: its exception, or None.
    """

    rank: int
    host: str
    exit_code: int
    ended_at: float
    ended_by_us: bool = False
    error: RankError | None = None


@dataclass(frozen=True)
class RankStack:
    """What one rank was doing at some moment.

    Attributes:
        rank: global number.
        host: inventory name.
        state: the kernel's letter: S sleeping, R running, D waiting for a device, T stopped.
        cpu_s: seconds of CPU used in each second.
        stack: text, the main thread first, its most recent call first; "" where none could be had.
        how: "py-spy", "faulthandler", or why there is none.
    """

    rank: int
    host: str
    state: str
    cpu_s: float
    stack: str
    how: str


@dataclass(frozen=True)
class HostState:
    """How a run stands on one host.

    Attributes:
        host: inventory name.
        state: "starting", "running", "waiting" (between two attempts), "stopping", one of FINAL_STATES, "lost" (its
            supervisor is gone without a word) or "unreachable".
        attempt: number of the attempt, 0 for the first.
        members: hosts that take part in it, () where that is not known.
        resume: name of the checkpoint that it goes on from, or "".
        ends: the ranks that have ended there.
        left_over: processes of the run that were still there at the last look, None before the end.
        cause: why the supervisor could not do its work, or "".
        stop_kind: "user", "timeout", "failure", "silence" or "hang", or "".
        stop_reason: why it was stopped, or "".
        waits_for: what a waiting supervisor waits for, or "".
        gave_up: why there was no further attempt, or "".
        hung: what each rank did when no rank made progress; () where that was not the end.
        agent_exit: torchrun's exit code, negative for a signal, or None.
        oom_kills: processes that the kernel has killed for memory during the run, on the whole host.
        disk_full: a folder on a disk without room, or "".
        kernel: telling lines of the kernel's log.
        clock_offsets_s: host -> by how much its clock is ahead of this one's.
        beat_port: UDP port of its supervisor, or 0.
    """

    host: str
    state: str
    attempt: int = 0
    members: tuple[str, ...] = ()
    resume: str = ""
    ends: tuple[RankEnd, ...] = ()
    left_over: int | None = None
    cause: str = ""
    stop_kind: str = ""
    stop_reason: str = ""
    waits_for: str = ""
    gave_up: str = ""
    hung: tuple[RankStack, ...] = ()
    agent_exit: int | None = None
    oom_kills: int = 0
    disk_full: str = ""
    kernel: tuple[str, ...] = ()
    clock_offsets_s: Mapping[str, float] = field(default_factory=dict)
    beat_port: int = 0

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
    stop, evidence = state.get("stop") or {}, state.get("evidence") or {}
    ends = [_rank_end(host, rank) for rank in (state.get("ranks") or {}).values() if rank.get("exit_code") is not None]
    left, agent_exit = state.get("left_over"), state.get("agent_exit")
    return HostState(
        host=host,
        state=name,
        attempt=int(state.get("attempt", 0)),
        members=tuple(map(str, state.get("members") or ())),
        resume=str(state.get("resume") or ""),
        ends=tuple(sorted(ends, key=lambda end: end.rank)),
        left_over=None if left is None else int(left),
        cause=str(state.get("cause") or ""),
        stop_kind=str(stop.get("kind", "")),
        stop_reason=str(stop.get("why", "")),
        waits_for=str(state.get("waits_for") or ""),
        gave_up=str(state.get("gave_up") or ""),
        hung=rank_stacks(host, state.get("hung") or {}),
        agent_exit=None if agent_exit is None else int(agent_exit),
        oom_kills=int(evidence.get("oom_kills", 0)),
        disk_full=str(evidence.get("disk_full", "")),
        kernel=tuple(map(str, evidence.get("kernel", ()))),
        clock_offsets_s={str(other): float(ahead) for other, ahead in (state.get("clock_offsets_s") or {}).items()},
        beat_port=int(state.get("beat_port", 0)),
    )


def _rank_end(host: str, rank: Mapping[str, Any]) -> RankEnd:
    return RankEnd(
        rank=int(rank["rank"]),
        host=host,
        exit_code=int(rank["exit_code"]),
        ended_at=float(rank.get("ended_at", 0)),
        ended_by_us=bool(rank.get("ended_by_us", False)),
        error=_rank_error(rank["error"]) if rank.get("error") else None,
    )


def _rank_error(error: Mapping[str, Any]) -> RankError:
    lines = tuple(map(str, error["lines"]))
    return RankError(str(error["type"]), str(error["message"]), str(error["where"]), lines, float(error["at"]))


def rank_stacks(host: str, found: Mapping[str, Any]) -> tuple[RankStack, ...]:
    """Read what node/stacks.py has collected on a host."""
    stacks = [
        RankStack(int(rank), host, str(seen["state"]), float(seen["cpu_s"]), str(seen["stack"]), str(seen["how"]))
        for rank, seen in found.items()
    ]
    return tuple(sorted(stacks, key=lambda stack: stack.rank))

"""Which runs there are, and which one the user means."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.errors import DdpOrchError, HostUnreachable, UsageError
from orchestrator.model.run_record import HostState, RunRecord, host_state, record_from_json
from orchestrator.model.untrusted import mapping, mappings, number, text
from orchestrator.transport.fan_out import failures, on_all_hosts, successes
from orchestrator.transport.node_program import Conversation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.runs.local_store import LocalStore
    from orchestrator.transport.link_pool import LinkPool

LIST_DEADLINE_S = 20.0


@dataclass(frozen=True)
class SeenPart:
    """One host's part in a run, as that host tells of it.

    Attributes:
        state: how it stands.
        attempt: how often the run was started anew there; 0 for the first time.
        progress: how far it is: what the script says of itself, else what its lowest rank there printed last, or "".
        user: the account that it runs under.
    """

    state: HostState
    attempt: int
    progress: str
    user: str


@dataclass(frozen=True)
class SeenRun:
    """A run as the hosts tell of it.

    Attributes:
        record: the run as it was started.
        parts: host name -> its part, in node_rank order; hosts of the run that did not answer are absent.
    """

    record: RunRecord
    parts: Mapping[str, SeenPart]

    @property
    def states(self) -> Mapping[str, HostState]:
        """How it stands on each host that answered."""
        return {name: part.state for name, part in self.parts.items()}

    @property
    def state(self) -> str:
        """One word for the whole: the least good of the hosts' states."""
        seen = {state.state for state in self.states.values()}
        order = ("lost", "failed", "stopping", "waiting", "running", "starting", "stopped", "succeeded")
        return next((name for name in order if name in seen), "unknown")

    @property
    def is_live(self) -> bool:
        """A supervisor of it runs somewhere."""
        return any(not state.is_final for state in self.states.values())

    @property
    def attempt(self) -> int:
        """The newest attempt."""
        return max((part.attempt for part in self.parts.values()), default=0)

    @property
    def progress(self) -> str:
        """How far it is: what the first host that knows says."""
        return next((part.progress for part in self.parts.values() if part.progress), "")


@dataclass(frozen=True)
class OthersRun:
    """A run of another account, of which no more can be seen than that it runs.

    Attributes:
        run: its name.
        user: the account on the hosts.
        since: when the first of its supervisors started, seconds since the epoch.
        hosts: inventory names.
    """

    run: str
    user: str
    since: float
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Listing:
    """What the hosts answered.

    Attributes:
        runs: this account's, newest first.
        others: those of other accounts that run now, newest first.
        missing: the hosts that did not answer, with the reason.
    """

    runs: tuple[SeenRun, ...]
    others: tuple[OthersRun, ...]
    missing: Mapping[str, DdpOrchError]


def list_runs(pool: LinkPool) -> Listing:
    """Ask every host for its runs."""

    def ask(name: str) -> Mapping[str, Any]:
        with Conversation(pool.link(name), "run_list") as talk:
            return talk.ask({"workdir": pool.hosts[name].workdir}, timeout_s=LIST_DEADLINE_S)

    answers = on_all_hosts({name: partial(ask, name) for name in pool.hosts}, deadline_s=LIST_DEADLINE_S)
    records: dict[str, RunRecord] = {}
    parts: dict[str, dict[str, SeenPart]] = {}
    for name, answer in successes(answers).items():
        for run in mappings(answer, "runs"):
            record = _record(run)
            if record is None:
                continue
            # Hosts may share a workdir (one machine, or a home on NFS): the folder says whose part it is.
            part = next((part for part in record.hosts if part.run_dir == text(run, "run_dir")), None)
            if part is None or part.name != name:
                continue
            records[record.run] = record
            parts.setdefault(record.run, {})[name] = _seen_part(name, run, text(answer, "user"))
    runs = tuple(
        SeenRun(records[run], _in_rank_order(records[run], parts[run])) for run in sorted(records, reverse=True)
    )
    return Listing(runs, _others(successes(answers)), failures(answers))


def _in_rank_order(record: RunRecord, parts: Mapping[str, SeenPart]) -> dict[str, SeenPart]:
    return {host.name: parts[host.name] for host in record.hosts if host.name in parts}


def _seen_part(host: str, run: Mapping[str, Any], user: str) -> SeenPart:
    state = mapping(run, "state")
    return SeenPart(
        state=host_state(host, state, alive=bool(run.get("alive"))),
        attempt=int(number(state, "attempt")),
        progress=text(run, "progress"),
        user=user,
    )


def _others(answers: Mapping[str, Mapping[str, Any]]) -> tuple[OthersRun, ...]:
    """Put together what the hosts saw of each run of another account. Several names may stand for one machine."""
    seen: dict[tuple[str, str], dict[str, float]] = {}
    for host, answer in answers.items():
        for run in mappings(answer, "others"):
            seen.setdefault((text(run, "run"), text(run, "user")), {})[host] = number(run, "since")
    runs = [OthersRun(run, user, min(since.values()), tuple(since)) for (run, user), since in seen.items()]
    return tuple(sorted(runs, key=lambda run: run.since, reverse=True))


def find_run(pool: LinkPool, store: LocalStore, run: str | None) -> RunRecord:
    """Return the record of a run: the newest one, where none is named.

    The controller's own record answers without asking a host; a run that another controller started is found on the
    hosts.

    Raises:
        UsageError: there is no such run.
        HostUnreachable: no host could be asked.
    """
    known = store.load(run) if run else store.newest(frozenset(pool.hosts))
    if known is not None and {part.name for part in known.hosts} <= set(pool.hosts):
        return known
    listing = list_runs(pool)
    for found in listing.runs:
        if run is None or found.record.run == run:
            return found.record
    missing = listing.missing
    if missing and len(missing) == len(pool.hosts):
        error = next(iter(missing.values()))
        reason = error.reason if isinstance(error, HostUnreachable) else "failed"
        raise HostUnreachable(error.message, host=error.host, reason=reason, try_this=error.try_this)
    what = f"there is no run {run}" if run else "there is no run yet"
    raise UsageError(f"{what} on {', '.join(pool.hosts)}", try_this="ddp-orch ps --all" if run else "ddp-orch run")


def find_manifest(pool: LinkPool, store: LocalStore, run: str | None) -> Mapping[str, Any]:
    """Return what exactly a run started: from the controller's own records, else from the first host that has it.

    Raises:
        UsageError: there is no such run, or nobody wrote that down.
        HostUnreachable: no host could be asked.
    """
    if run and (known := store.load_manifest(run)):
        return known
    record = find_run(pool, store, run)
    if known := store.load_manifest(record.run):
        return known
    missing: list[HostUnreachable] = []
    for part in record.hosts:
        try:
            with Conversation(pool.link(part.name), "files") as talk:
                answer = talk.ask({"do": "manifest", "run_dir": part.run_dir}, timeout_s=LIST_DEADLINE_S)
        except HostUnreachable as error:
            missing.append(error)
            continue
        if found := mapping(answer, "manifest"):
            return found
    if len(missing) == len(record.hosts):
        raise missing[0]
    raise UsageError(f"nobody has written down what exactly run {record.run} started", try_this="ddp-orch ps --all")


def _record(run: Mapping[str, Any]) -> RunRecord | None:
    body = run.get("record")
    try:
        return record_from_json(body) if isinstance(body, dict) else None
    except ValueError:
        return None  # written by another version, or damaged: not ours to read

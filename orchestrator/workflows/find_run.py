"""Which runs there are, and which one the user means."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.errors import DdpOrchError, HostUnreachable, UsageError
from orchestrator.model.run_record import HostState, RunRecord, host_state, record_from_json
from orchestrator.transport.fan_out import failures, on_all_hosts, successes
from orchestrator.transport.node_program import Conversation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.runs.local_store import LocalStore
    from orchestrator.transport.link_pool import LinkPool

LIST_DEADLINE_S = 20.0


@dataclass(frozen=True)
class SeenRun:
    """A run as the hosts tell of it.

    Attributes:
        record: the run as it was started.
        states: host name -> how it stands there; hosts of the run that did not answer are absent.
    """

    record: RunRecord
    states: Mapping[str, HostState]

    @property
    def state(self) -> str:
        """One word for the whole: the least good of the hosts' states."""
        seen = {state.state for state in self.states.values()}
        order = ("lost", "failed", "stopping", "running", "starting", "stopped", "succeeded")
        return next((name for name in order if name in seen), "unknown")


def list_runs(pool: LinkPool) -> tuple[list[SeenRun], Mapping[str, DdpOrchError]]:
    """Ask every host for its runs.

    Returns:
        the runs, newest first, and the hosts that did not answer with the reason.
    """

    def ask(name: str) -> Mapping[str, object]:
        with Conversation(pool.link(name), "run_reader") as talk:
            return talk.ask({"do": "list", "workdir": pool.hosts[name].workdir}, timeout_s=LIST_DEADLINE_S)

    answers = on_all_hosts({name: partial(ask, name) for name in pool.hosts}, deadline_s=LIST_DEADLINE_S)
    records: dict[str, RunRecord] = {}
    states: dict[str, dict[str, HostState]] = {}
    for name, answer in successes(answers).items():
        for run in _runs(answer):
            record = _record(run)
            if record is None:
                continue
            # Hosts may share a workdir (one machine, or a home on NFS): the folder says whose part it is.
            part = next((part for part in record.hosts if part.run_dir == str(run.get("run_dir", ""))), None)
            if part is None or part.name != name:
                continue
            records[record.run] = record
            state = run.get("state")
            states.setdefault(record.run, {})[name] = host_state(
                name, state if isinstance(state, dict) else {}, alive=bool(run.get("alive"))
            )
    names = sorted(records, reverse=True)
    return [SeenRun(records[run], states[run]) for run in names], failures(answers)


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
    seen, missing = list_runs(pool)
    for found in seen:
        if run is None or found.record.run == run:
            return found.record
    if missing and len(missing) == len(pool.hosts):
        error = next(iter(missing.values()))
        reason = error.reason if isinstance(error, HostUnreachable) else "failed"
        raise HostUnreachable(error.message, host=error.host, reason=reason, try_this=error.try_this)
    what = f"there is no run {run}" if run else "there is no run yet"
    raise UsageError(f"{what} on {', '.join(pool.hosts)}", try_this="ddp-orch status" if run else "ddp-orch run")


def _runs(answer: Mapping[str, object]) -> list[Mapping[str, object]]:
    runs = answer.get("runs")
    return [run for run in runs if isinstance(run, dict)] if isinstance(runs, list) else []


def _record(run: Mapping[str, object]) -> RunRecord | None:
    body = run.get("record")
    try:
        return record_from_json(body) if isinstance(body, dict) else None
    except ValueError:
        return None  # written by another version, or damaged: not ours to read

"""`preflight --deep`: a real torchrun over all hosts, and when it fails, over fewer, until the guilty are named."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import DdpOrchError
from orchestrator.model.events import Warned
from orchestrator.model.run_events import AGENT, LogLine, Step
from orchestrator.preflight.deep import (
    TIME_IS_UP,
    HostTrial,
    Trial,
    findings_of_failure,
    findings_of_success,
    guilty_alone,
)
from orchestrator.preflight.deep_pairs import next_pairs
from orchestrator.runs.local_store import LocalStore
from orchestrator.sync.manifest import manifest_of
from orchestrator.transport.fan_out import on_all_hosts
from orchestrator.workflows.clean_hosts import forget_runs
from orchestrator.workflows.follow_run import RunFollower
from orchestrator.workflows.launch_run import START_DEADLINE_S, Request, StartedRun, launch_run, new_run_name
from orchestrator.workflows.project import Project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from orchestrator.model.facts import Facts
    from orchestrator.model.finding import Finding
    from orchestrator.model.host import Host, Inventory
    from orchestrator.model.plan import Backend
    from orchestrator.model.run_record import HostState, RunRecord
    from orchestrator.preflight.deep_pairs import Pair
    from orchestrator.transport.link_pool import LinkPool

FOLDER = Path(__file__).resolve().parents[1] / "trial"
MARK = "ddp-orch-trial "  # before each line that trial.py means for us
OWN_END_S = 5.0  # beside a trial's own limit, for its ranks to end by it and to say how far they came
STOP_S = 90.0  # at most, for hosts to end a trial, one of which may have lost its power


def try_deep(
    pool: LinkPool,
    inventory: Inventory,
    facts: Mapping[str, Facts],
    backends: Sequence[Backend],
    *,
    limit_s: float,
    needs_torchvision: bool,
    on_event: Callable[[object], None],
) -> list[Finding]:
    """Run a trial with each backend, and say whom a failure points to. Nothing is left on the hosts.

    Args:
        pool: links to the hosts.
        inventory: the hosts, all of which the ordinary checks found well.
        facts: what was seen of them.
        backends: "gloo", "nccl" or both.
        limit_s: seconds for one trial.
        needs_torchvision: import it too.
        on_event: told of each Step, and Warned where something could not be removed.
    Raises:
        KeyboardInterrupt: after all trials were stopped on all hosts, and removed.
    """
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="ddp-orch-trial-") as records:  # none stays on the controller
        trials = _Trials(pool, facts, limit_s, LocalStore(Path(records)), needs_torchvision=needs_torchvision)
        try:
            for backend in backends:
                findings += _try_backend(trials, backend, inventory, on_event)
        finally:
            for name, (why, folders) in trials.forget().items():
                by_hand = f"; there: rm -r {' '.join(folders)}" if folders else ""
                on_event(Warned(f"{name}: the trial's folders could not be removed: {why}{by_hand}"))
    return findings


def _try_backend(
    trials: _Trials, backend: Backend, inventory: Inventory, on_event: Callable[[object], None]
) -> Iterable[Finding]:
    """Try all hosts together, then each alone, then pairs: as far as needed."""
    names = tuple(host.name for host in inventory.hosts)
    on_event(Step(f"trying torchrun with {backend} on {len(names)} host{'s' * (len(names) > 1)}"))
    trial = trials.run(backend, inventory, [names])[names]
    if trial.succeeded:
        return findings_of_success(backend, trial)
    alone: dict[str, Trial] = {}
    pairs: dict[Pair, Trial] = {}
    if len(names) > 1 and not guilty_alone(trial):
        on_event(Step("it failed: trying each host alone"))
        tried = trials.run(backend, inventory, [(name,) for name in names])
        alone = {hosts[0]: one for hosts, one in tried.items()}
        if all(one.succeeded for one in alone.values()):
            if len(names) == 2:
                pairs[names[0], names[1]] = trial
            while chosen := next_pairs(names, {pair: one.succeeded for pair, one in pairs.items()}):
                on_event(Step(f"each alone is well: trying {', '.join(' with '.join(pair) for pair in chosen)}"))
                found = trials.run(backend, inventory, chosen)
                pairs |= {pair: found[pair] for pair in chosen}
    return findings_of_failure(backend, trial, alone, pairs)


class _Trials:
    """Runs trials over chosen hosts, and removes what they leave."""

    def __init__(
        self, pool: LinkPool, facts: Mapping[str, Facts], limit_s: float, store: LocalStore, *, needs_torchvision: bool
    ) -> None:
        self._pool, self._facts, self._limit_s, self._store = pool, facts, limit_s, store
        self._more = ("--torchvision",) if needs_torchvision else ()
        self._runs: dict[str, Sequence[str]] = {}  # name -> its hosts

    def run(
        self, backend: Backend, inventory: Inventory, groups: Sequence[tuple[str, ...]]
    ) -> dict[tuple[str, ...], Trial]:
        """Run a trial over each group of hosts; at once, where the groups have no machine in common.

        Raises:
            KeyboardInterrupt: after they were stopped.
        """
        args = ("trial.py",), ("--backend", backend, "--limit", f"{self._limit_s:.1f}", *self._more)
        request = Request(Project(FOLDER, *args, bundled=False), backend, {}, None)
        done: dict[tuple[str, ...], Trial] = {}
        for wave in _waves(groups, self._pool.hosts):
            at_once = {" ".join(names): self._new(inventory, names, request) for names in wave}
            deadline_s = START_DEADLINE_S + self._limit_s + OWN_END_S + STOP_S
            try:
                on_all_hosts({key: one.run for key, one in at_once.items()}, deadline_s=deadline_s)
            finally:  # on Ctrl-C, or where a host hangs in something that has no limit of its own
                for one in at_once.values():
                    one.cancel()
                on_all_hosts({key: one.wait for key, one in at_once.items()}, deadline_s=STOP_S)
            done |= {names: at_once[" ".join(names)].trial for names in wave}
        return done

    def forget(self) -> dict[str, tuple[str, list[str]]]:
        """Remove every trial's folders from all hosts; return host -> why not, and what may still be there."""
        code = manifest_of(FOLDER, with_rules=True).id
        kept = forget_runs(self._pool, list(self._facts), list(self._runs), code)
        return {
            name: (why, [f"{self._facts[name].workdir}/runs/{run}" for run, on in self._runs.items() if name in on])
            for name, why in kept.items()
        }

    def _new(self, inventory: Inventory, names: Sequence[str], request: Request) -> _OneTrial:
        hosts = tuple(host for host in inventory.hosts if host.name in names)
        self._runs[run := new_run_name()] = names
        trial = Trial({host.name: HostTrial(host.nproc, host.gpu_count > 0) for host in hosts}, self._limit_s)
        launch = partial(launch_run, self._pool, dataclasses.replace(inventory, hosts=hosts), request, self._store,
                         lambda _event: None, facts=self._facts, run=run)  # fmt: skip
        return _OneTrial(trial, launch, partial(RunFollower, self._pool))


class _OneTrial:
    """One torchrun, run in a thread and cancelled from another.

    Attributes:
        trial: how it goes, as far as that is known.
    """

    def __init__(
        self, trial: Trial, launch: Callable[[], StartedRun], new_follower: Callable[..., RunFollower]
    ) -> None:
        self.trial = trial
        self._launch, self._new_follower = launch, new_follower
        self._lock = threading.Lock()
        self._cancelled = False
        self._follower: RunFollower | None = None
        self._ended = threading.Event()

    def run(self) -> None:
        """Start it and see it to its end, at the latest to its limit; every failure is noted on the host it is of."""
        try:
            with self._lock:
                if self._cancelled:
                    return
            for state in self._follow(self._launch().record).values():
                one = self.trial.hosts[state.host]
                one.state, one.exit_cause = state.state, _cause(state)
                one.timed_out = one.timed_out or state.stop_reason == TIME_IS_UP
        except DdpOrchError as error:
            for one in [self.trial.hosts[error.host]] if error.host in self.trial.hosts else self.trial.hosts.values():
                one.state, one.error, one.try_this = "failed", error.message, error.try_this
        finally:
            self._ended.set()

    def cancel(self) -> None:
        """Have it stopped on its hosts, if it has not ended."""
        with self._lock:
            self._cancelled = True
            if self._follower is not None and not self._ended.is_set():
                self._follower.stop("interrupted", grace_s=0)

    def wait(self) -> None:
        """Wait until it has ended."""
        self._ended.wait()

    def _follow(self, record: RunRecord) -> Mapping[str, HostState]:
        follower = self._new_follower(record, on_event=self._note)
        over = threading.Timer(self.trial.limit_s + OWN_END_S, follower.stop, [TIME_IS_UP], {"grace_s": 0.0})
        over.daemon = True
        with self._lock:
            self._follower = follower
            if self._cancelled:
                follower.stop("interrupted", grace_s=0)
        over.start()
        try:
            return follower.follow(owner=True).states
        finally:
            over.cancel()

    def _note(self, event: object) -> None:
        """Note a step of a rank, or its last words."""
        if not isinstance(event, LogLine):
            return
        one = self.trial.hosts[event.host]
        if event.is_error:
            one.note_error(event.text, of_rank=event.rank != AGENT)
        elif event.text.startswith(MARK):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                body = json.loads(event.text[len(MARK) :])
                one.steps.setdefault(event.rank, {})[str(body["step"])] = float(body["seconds"])


def _waves(groups: Sequence[tuple[str, ...]], hosts: Mapping[str, Host]) -> list[list[tuple[str, ...]]]:
    """Put groups together that have no machine in common: two trials on one would want the same port."""
    waves: list[dict[str, tuple[str, ...]]] = []  # machine -> the group that uses it
    for group in groups:
        machines = {"" if hosts[name].connection == "local" else name for name in group}
        wave = next((one for one in waves if not machines & one.keys()), None)
        if wave is None:
            wave = {}
            waves.append(wave)
        wave |= dict.fromkeys(machines, group)
    return [list(dict.fromkeys(wave.values())) for wave in waves]


def _cause(state: HostState) -> str:
    if state.cause or state.stop_reason:
        return state.cause or state.stop_reason
    bad = [end for end in state.ends if end.exit_code]
    return f"rank {bad[0].rank} ended with exit code {bad[0].exit_code}" if bad else ""

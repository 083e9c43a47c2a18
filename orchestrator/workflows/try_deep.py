"""`preflight --deep`: a real torchrun over all hosts, and when it fails, over fewer, until the guilty are named."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
import threading
import time
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import DdpOrchError
from orchestrator.model.run_events import LogLine, Step
from orchestrator.preflight.deep import HostTrial, Trial, findings_of_failure, findings_of_success, guilty_alone
from orchestrator.runs.local_store import LocalStore
from orchestrator.transport.fan_out import on_all_hosts, successes
from orchestrator.workflows.clean_hosts import forget_run
from orchestrator.workflows.follow_run import RunFollower, stop_on_host
from orchestrator.workflows.launch_run import Request, launch_run
from orchestrator.workflows.project import Project

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.model.facts import Facts
    from orchestrator.model.finding import Finding
    from orchestrator.model.host import Inventory
    from orchestrator.model.plan import Backend
    from orchestrator.model.run_record import HostState, RunRecord
    from orchestrator.transport.link_pool import LinkPool

MARK = "ddp-orch-trial "  # before each line that trial.py means for us
MOST_PAIRS = 16  # that are tried one after the other: each takes the first host's port
STOP_S = 15.0  # beside a trial's own limit, for the hosts to end it


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
        on_event: told of each step.
    Raises:
        KeyboardInterrupt: after the trial was stopped on all hosts.
    """
    findings: list[Finding] = []
    for backend in backends:
        deep = _Deep(pool, facts, backend, limit_s, needs_torchvision=needs_torchvision)
        on_event(Step(f"trying torchrun with {backend} on {len(inventory.hosts)} hosts"))
        trial = deep.run(inventory)
        if trial.succeeded:
            findings += findings_of_success(backend, trial)
            continue
        alone: dict[str, Trial] = {}
        pairs: dict[tuple[str, str], Trial] = {}
        if not guilty_alone(trial) and len(inventory.hosts) > 1:
            on_event(Step("it failed: trying each host alone"))
            alone = deep.each_alone(inventory)
            if all(one.succeeded for one in alone.values()):
                chosen = list(combinations([host.name for host in inventory.hosts], 2))[:MOST_PAIRS]
                on_event(Step(f"each alone is well: trying {len(chosen)} pairs"))
                pairs = {chosen[0]: trial}  # of two hosts, all of them are the pair
                if len(inventory.hosts) > 2:
                    pairs = {pair: deep.run(_part_of(inventory, pair)) for pair in chosen}
        findings += findings_of_failure(backend, trial, alone, pairs)
    return findings


def _part_of(inventory: Inventory, names: Sequence[str]) -> Inventory:
    return dataclasses.replace(inventory, hosts=tuple(host for host in inventory.hosts if host.name in names))


class _Deep:
    def __init__(
        self, pool: LinkPool, facts: Mapping[str, Facts], backend: Backend, limit_s: float, *, needs_torchvision: bool
    ) -> None:
        self._pool, self._facts, self._limit_s = pool, facts, limit_s
        self._backend: Backend = backend
        self._needs_torchvision = needs_torchvision

    def each_alone(self, inventory: Inventory) -> dict[str, Trial]:
        """Try every host by itself, all at once: each has its own rendezvous."""
        names = [host.name for host in inventory.hosts]
        work = {name: partial(self.run, _part_of(inventory, (name,))) for name in names}
        return successes(on_all_hosts(work, deadline_s=2 * (self._limit_s + STOP_S)))

    def run(self, inventory: Inventory) -> Trial:
        """Run one trial to its end, at the latest to its limit."""
        start = time.monotonic()
        hosts = {host.name: HostTrial() for host in inventory.hosts}
        args = ("--backend", self._backend, "--limit", f"{self._limit_s:.0f}")
        more = ("--torchvision",) if self._needs_torchvision else ()
        folder = Path(__file__).resolve().parents[1] / "trial"
        project = Project(folder, ("trial.py",), (*args, *more), bundled=False)
        request = Request(project, self._backend, {}, None)
        with tempfile.TemporaryDirectory(prefix="ddp-orch-trial-") as state:  # no record stays on the controller
            record: RunRecord | None = None
            try:
                record = launch_run(
                    self._pool, inventory, request, LocalStore(Path(state)), lambda _event: None, facts=self._facts
                )
                states = self._follow(record, hosts)
                for name, one in states.items():
                    hosts[name].state = one.state
                    hosts[name].exit_cause = _cause(one)
            except DdpOrchError as error:
                failed = hosts.get(error.host)
                for host in [failed] if failed is not None else hosts.values():
                    host.state, host.error = "failed", error.message
            finally:
                if record is not None:
                    forget_run(self._pool, record)
        return Trial(hosts, self._limit_s, time.monotonic() - start)

    def _follow(self, record: RunRecord, hosts: Mapping[str, HostTrial]) -> Mapping[str, HostState]:
        def on_event(event: object) -> None:
            if isinstance(event, LogLine) and event.rank >= 0:
                _take(hosts[event.host], event)

        follower = RunFollower(self._pool, record, on_event=on_event)
        over = threading.Timer(self._limit_s + STOP_S / 3, self._stop, [record])
        over.daemon = True
        over.start()
        try:
            return follower.follow(owner=True).states
        finally:
            over.cancel()

    def _stop(self, record: RunRecord) -> None:
        """End a trial whose own limit did not: a rank in native code, or a torchrun that waits for others."""
        for part in record.hosts:
            with contextlib.suppress(DdpOrchError):
                stop_on_host(self._pool, part, "the trial's time is up", grace_s=0)


def _take(host: HostTrial, line: LogLine) -> None:
    """Note a step of a rank, or its last words."""
    if line.is_error:
        if line.text.strip() and not line.text.startswith((" ", "[W", "Thread 0x", "Current thread")):
            host.error = line.text.strip()[:300]
    elif line.text.startswith(MARK):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            body = json.loads(line.text[len(MARK) :])
            host.steps.setdefault(line.rank, {})[str(body["step"])] = float(body["seconds"])


def _cause(state: HostState) -> str:
    if state.cause or state.stop_reason:
        return state.cause or state.stop_reason
    bad = [end for end in state.ends if end.exit_code]
    return f"rank {bad[0].rank} ended with exit code {bad[0].exit_code}" if bad else ""

"""From an inventory to a run that has started on every host."""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import secrets
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.errors import NodeProgramFailed, PreflightFailed, RunFailed
from orchestrator.launch.environment import CLEARED, HostSituation, Setting, settings_for
from orchestrator.launch.ranks import make_plan
from orchestrator.launch.torchrun import agent_command
from orchestrator.model.events import Warned
from orchestrator.model.run_events import Prepared, Step
from orchestrator.model.run_policy import RunPolicy
from orchestrator.model.run_record import HostPart, RunRecord
from orchestrator.preflight.all_checks import Choice
from orchestrator.preflight.nvidia_smi import read_nvidia_smi
from orchestrator.runs.run_manifest import Code, host_manifest, run_manifest
from orchestrator.sync.git_state import GitLook
from orchestrator.transport.fan_out import failures, on_all_hosts
from orchestrator.transport.node_program import Conversation, program_text
from orchestrator.workflows.check_hosts import Purpose, check_hosts
from orchestrator.workflows.follow_run import stop_on_host
from orchestrator.workflows.project import BUNDLED_DATA, backends_in_script, modules_needed, script_text
from orchestrator.workflows.sync_code import make_run_copies, sync_code, sync_data

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from orchestrator.model.facts import Facts
    from orchestrator.model.host import Inventory
    from orchestrator.model.plan import Backend, HostLaunch, LaunchPlan
    from orchestrator.preflight.nvidia_smi import Gpu
    from orchestrator.runs.local_store import LocalStore
    from orchestrator.transport.link_pool import LinkPool
    from orchestrator.workflows.project import Project

# What lies in a run's folder on a host: file -> node program.
RUN_PROGRAMS = {"supervisor.py": "supervisor", "rank_entry.py": "rank_entry", "hooks/sitecustomize.py": "rank_hooks"}
START_DEADLINE_S = 60.0  # for the supervisors: each starts a Python and a torchrun, and answers before torch is loaded


@dataclass(frozen=True)
class Request:
    """What the user asked for.

    Attributes:
        project: what to run.
        backend: None chooses by the hosts.
        env: variables for the workers of all hosts, over the inventory's; may hold secrets.
        data: a folder of data to bring along, or None.
        despite_failures: start although checks failed.
        choice: which checks to ask, and which findings to pass over.
        policy: what happens when something goes wrong, or takes too long.
    """

    project: Project
    backend: Backend | None
    env: Mapping[str, str] = field(repr=False)
    data: Path | None
    despite_failures: bool = False
    choice: Choice = field(default_factory=Choice)
    policy: RunPolicy = field(default_factory=RunPolicy)


@dataclass(frozen=True)
class StartedRun:
    """A run with a supervisor on every host, and what it takes to start one of them once more.

    Attributes:
        record: the run.
        orders: host -> the message that starts its supervisor; holds secrets.
        ways: host -> other host -> its IP address as the first one resolves it.
        beat_ports: host -> UDP port of its supervisor, as far as they have started.
    """

    record: RunRecord
    orders: Mapping[str, Mapping[str, object]] = field(repr=False)
    ways: Mapping[str, Mapping[str, str]]
    beat_ports: dict[str, int] = field(default_factory=dict)

    def start(self, pool: LinkPool, host: str, *, again: bool = False) -> Conversation:
        """Start a host's supervisor, and return the way to tell it of the others (see `introduce`).

        Args:
            pool: links to the hosts.
            host: inventory name.
            again: its first supervisor is gone, and the others wait for another one.
        Raises:
            RunFailed: it does not start; the text says why.
        """
        with contextlib.ExitStack() as stack:
            talk = stack.enter_context(Conversation(pool.link(host), "run_control"))
            answer = talk.ask({**self.orders[host], "again": again}, timeout_s=START_DEADLINE_S)
            if "failed" in answer:
                raise RunFailed(f"its part did not start: {answer['failed']}", host=host, try_this="ddp-orch preflight")
            self.beat_ports[host] = int(answer["started"]["beat_port"])
            stack.pop_all()
        return talk

    def introduce(self, talk: Conversation, host: str) -> None:
        """Tell a supervisor where the others listen."""
        ways = self.ways[host]
        talk.send({"peers": {other: [ways[other], port] for other, port in self.beat_ports.items() if other in ways}})


def launch_run(
    pool: LinkPool,
    inventory: Inventory,
    request: Request,
    store: LocalStore,
    on_event: Callable[[object], None],
    *,
    facts: Mapping[str, Facts] | None = None,
    run: str | None = None,
) -> StartedRun:
    """Check, sync and start; when this returns, a supervisor runs on every host.

    Args:
        pool: links to the inventory's hosts.
        inventory: the hosts, in rank order.
        request: what to run.
        store: where the controller's record goes.
        on_event: told of each step; also gets the CheckResult and the sync events.
        facts: what preflight has just seen of the hosts; None looks at them, and refuses what would fail.
        run: its name, where the caller has to know it whatever happens; None makes one.
    Raises:
        HostUnreachable: a host cannot be reached.
        PreflightFailed: a check found a reason why the run would fail.
        SyncFailed: code or data did not get there.
        RunFailed: a host could not start its part; those that could have been stopped again.
    """
    plan = make_plan(inventory, run=run or new_run_name(), backend=request.backend)
    git = GitLook(request.project.folder)
    other = backends_in_script(request.project) - {plan.backend}
    if other:
        on_event(Warned(f"{request.project.script[0]} names its backend itself: {', '.join(sorted(other))} is used, "
                        f"not {plan.backend}; os.environ['DDP_ORCH_BACKEND'] holds what was asked for"))  # fmt: skip
    if facts is None:
        on_event(Step(f"checking {_count(plan)}"))
        facts = _checked(pool, inventory, request, on_event)
    links = {host.name: pool.link(host.name) for host in inventory.hosts}
    on_event(Step(f"sending {request.project.folder.name}/ to {_count(plan)}"))
    synced = sync_code(links, request.project.folder, on_event)
    data_dirs = {name: f"{facts[name].workdir}/data" for name in links}
    if request.data is not None:
        data_dirs = sync_data(links, request.data, on_event)
    work_dirs = make_run_copies(links, synced.snapshot_id, plan.run)
    parts = tuple(
        HostPart(launch.host.name, launch.host.address, launch.first_rank, launch.nproc,
                 os.path.dirname(work_dirs[launch.host.name]))  # noqa: PTH120 - a path on the host
        for launch in plan.launches
    )  # fmt: skip
    record = RunRecord(
        run=plan.run,
        started_at=time.time(),
        started_by=f"{getpass.getuser()}@{platform.node()}",
        inventory=inventory.source,
        script=(*request.project.script, *request.project.args),
        backend=plan.backend,
        master=f"{plan.master_addr}:{plan.master_port}",
        snapshot=synced.snapshot_id,
        hosts=parts,
        max_restarts=request.policy.max_restarts,
    )
    store.save(record)
    secret = secrets.token_hex(32)
    orders, told = {}, []
    for launch in plan.launches:
        name = launch.host.name
        settings = _settings(plan, launch, request, facts[name], data_dir=data_dirs[name],
                             run_dir=parts[launch.node_rank].run_dir)  # fmt: skip
        on_event(Prepared(name, settings))
        orders[name] = _order(plan, launch, record, request, settings=settings, facts=facts[name],
                              data_dir=data_dirs[name], secret=secret)  # fmt: skip
        told.append(host_manifest(launch.host, parts[launch.node_rank], orders[name], settings=settings,
                                  given=request.env, facts=facts[name], gpus=_gpus(facts[name])))  # fmt: skip
    code = Code(str(request.project.folder), request.project.bundled, synced.files, synced.size_bytes, git.result())
    manifest = run_manifest(record, code, told)
    store.save_manifest(plan.run, manifest)
    for order in orders.values():
        order["manifest"] = manifest
    on_event(Step(f"starting run {plan.run}: {plan.world_size} ranks on {_count(plan)}, backend {plan.backend}"))
    ways = {name: _ways(name, record, facts[name]) for name in orders}
    started = StartedRun(record, orders, ways)
    _start_all(pool, started)
    return started


def new_run_name() -> str:
    """Name a run so that names sort by start time, and two of the same second differ."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(2)


def _count(plan: LaunchPlan) -> str:
    number = len(plan.launches)
    return f"{number} host{'s' * (number > 1)}"


def _checked(
    pool: LinkPool, inventory: Inventory, request: Request, on_event: Callable[[object], None]
) -> Mapping[str, Facts]:
    """Run preflight's checks, and return the facts of every host."""
    result = check_hosts(inventory, pool.link, _purpose(request), choice=request.choice, on_event=on_event)
    on_event(result)
    for error in result.unreachable.values():
        if not isinstance(error, NodeProgramFailed):  # which has its place among the checks
            raise error
    missing = [host.name for host in inventory.hosts if host.name not in result.facts]
    if missing or (result.failed and not request.despite_failures):
        raise PreflightFailed(
            "the run would fail: see the checks above",
            try_this="" if missing else "mend it, or start all the same with --despite-failures",
        )
    return result.facts


def _purpose(request: Request) -> Purpose:
    """Say what the hosts are checked for. Data that is sent along need not be there; the worker's own must be whole."""
    project = request.project
    return Purpose(
        backend=request.backend,
        needs_torchvision=project.bundled,
        data=(BUNDLED_DATA,) if project.bundled and request.data is None and not project.args else (),
        fetches_data=True,
        script=script_text(project),
        modules=() if "PYTHONPATH" in request.env else modules_needed(project),
    )


def _settings(
    plan: LaunchPlan, launch: HostLaunch, request: Request, facts: Facts, *, data_dir: str, run_dir: str
) -> tuple[Setting, ...]:
    """Work out what a host's workers get beside the user's own variables."""
    local = launch.host.connection == "local"
    on_this_machine = sum(other.nproc for other in plan.launches if other.host.connection == "local")
    situation = HostSituation(
        interface=facts.peer_interface,
        login_env={**facts.nccl_settings, **facts.env, **request.env},
        cpu_count=facts.cpu_count,
        processes_sharing_cpus=on_this_machine if local else launch.nproc,
        slow_lookups=facts.slow_lookups,
        name_servers_answer=facts.name_servers_answer,
        data_dir=data_dir,
        run_dir=run_dir,
    )
    return settings_for(plan, launch, situation)


def _gpus(facts: Facts) -> tuple[Gpu, ...]:
    return read_nvidia_smi(facts.nvidia_smi).gpus if facts.nvidia_smi else ()


def _order(
    plan: LaunchPlan, launch: HostLaunch, record: RunRecord, request: Request, *, settings: tuple[Setting, ...],
    facts: Facts, data_dir: str, secret: str,
) -> dict[str, object]:  # fmt: skip
    """Write the message that starts one host's supervisor."""
    host, part = launch.host, record.hosts[launch.node_rank]
    return {
        "do": "start",
        "run_dir": part.run_dir,
        "cwd": f"{part.run_dir}/work",
        "host": host.name,
        "marker": secrets.token_hex(16),
        "secret": secret,
        "hosts": [{"name": part.name, "address": part.address, "nproc": part.nproc} for part in record.hosts],
        "master_port": plan.master_port,
        "argv": agent_command(plan, launch, facts.python, part.run_dir),
        "script_argv": request.project.script_argv(plan, launch, data_dir),
        "env": {**{setting.name: setting.value for setting in settings}, **host.env, **request.env},
        "unset": CLEARED,
        "programs": {file: program_text(name).decode() for file, name in RUN_PROGRAMS.items()},
        "record": record.to_json(),
        **request.policy.order(len(plan.launches), bundled=request.project.bundled),
    }


def _start_all(pool: LinkPool, started: StartedRun) -> None:
    """Start every host's supervisor at once and make them known to each other; when one cannot start, stop the rest."""
    talks: dict[str, Conversation] = {}

    def start(name: str) -> None:
        talks[name] = started.start(pool, name)

    try:
        results = on_all_hosts({name: partial(start, name) for name in started.orders}, deadline_s=START_DEADLINE_S)
        first = next(iter(failures(results).values()), None)
        if first is not None:
            raise first  # noqa: TRY301 - the others are stopped below, as on Ctrl-C
        for name, talk in talks.items():
            started.introduce(talk, name)
    except BaseException:
        # Also on Ctrl-C: a supervisor that has started would wait for the others for minutes.
        parts = started.record.hosts
        work = {part.name: partial(stop_on_host, pool, part, "a host did not start", grace_s=0) for part in parts}
        on_all_hosts(work, deadline_s=START_DEADLINE_S)
        raise
    finally:
        for talk in talks.values():
            talk.close()


def _ways(name: str, record: RunRecord, facts: Facts) -> dict[str, str]:
    """Return where a host finds the others: their addresses as it resolves them."""
    ways = {part.name: facts.routes.get(part.address) for part in record.hosts if part.name != name}
    return {other: way.ip for other, way in ways.items() if way is not None and way.ip}

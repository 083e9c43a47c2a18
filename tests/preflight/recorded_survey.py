"""Surveys out of recorded cases: facts of some hosts, with what the case changes in them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.errors import HostUnreachable, NodeProgramFailed
from orchestrator.model.facts import Facts, facts_from_json
from orchestrator.model.host import Host, Inventory
from orchestrator.model.network_choice import training_address
from orchestrator.model.port_trial import Call, Clock, Mesh, PairTrial, PortTrial, call_from_json, port_trial_from_json
from orchestrator.preflight.question import Survey

RECORDED = Path(__file__).parents[1] / "recorded"


def facts_of(described: dict[str, Any], number: int, count: int) -> Facts:
    """Facts of host `number` of `count` at 10.9.0.0/24, with the changes that the case describes."""
    body = json.loads((RECORDED / "facts" / f"{described['facts']}.json").read_text())
    own, name = f"10.9.0.{number}", f"node{number}"
    others = [f"10.9.0.{other}" for other in range(1, count + 1) if other != number]
    way = {"interface": "eth0", "source": own, "gateway": ""}
    body.update(hostname=name, hostname_addresses=[own], hostname_choice=own, machine=f"boot{number} net:[1]")
    body["routes"] = {other: {"ip": other, **way} for other in others}
    for interface in body["interfaces"]:
        interface["networks"] = [network.replace("192.168.20.43", own) for network in interface["networks"]]
    for path, value in described["with"].items():
        inner = body
        *folders, last = path.split("/")
        for folder in folders:
            inner = inner[int(folder)] if isinstance(inner, list) else inner[folder]
        if value is None:
            inner.pop(last, None)
        elif isinstance(inner, list):
            inner.append(value)  # "interfaces/+": one more
        else:
            inner[last] = value
    return facts_from_json(body)


def survey_of(case: dict[str, Any]) -> Survey:
    gpus = case["gpus"] if isinstance(case["gpus"], int) else tuple(case["gpus"])
    hosts = tuple(
        Host(name, f"10.9.0.{number}", name, **{"gpus": gpus, **case.get("inventory", {}).get(name, {})})
        for number, name in enumerate(case["hosts"], 1)
    )
    facts = {
        name: facts_of(described, number, len(hosts))
        for number, (name, described) in enumerate(case["hosts"].items(), 1)
        if described
    }
    survey = Survey(
        inventory=Inventory(hosts),
        facts=facts,
        unreachable={
            name: (NodeProgramFailed if error.get("program") else HostUnreachable)(
                error["message"], host=name, reason=error["reason"], try_this=error.get("try_this", "")
            )
            for name, error in case.get("unreachable", {}).items()
        },
        addresses={host.name: host.address for host in hosts},
        port_trial=trial_of(case.get("port_trial", {}), hosts[0].name, facts),
        needs_torchvision=case.get("needs_torchvision", True),
        clocks={name: Clock(0.0, 0.001) for name in facts}
        | {name: Clock(*pair) for name, pair in case.get("clocks", {}).items()},
        data=tuple(case.get("data", ())),
        fetches_data=case.get("fetches_data", False),
        script=case.get("script", ""),
        modules=tuple(case.get("modules", ())),
    )
    return replace(survey, mesh=mesh_of(case.get("mesh", {}), survey))


def mesh_of(body: dict[str, Any], survey: Survey) -> Mesh:
    """A mesh where all is well but what the case says: {"pairs": {"a>b": [call, ...]}, "ring": {"a>b": call}}."""
    good = [{"ok": True, "connect_s": 0.0003, "seconds": 0.002}] * 3
    names = [host.name for host, _ in survey.hosts()]
    pairs = {f"{caller}>{called}": good for caller in names for called in names} | body.get("pairs", {})
    ring = dict(zip(names, names[1:] + names[:1], strict=True))
    sent = {
        f"{name}>{to}": {"ok": True, "seconds": 0.1, "bytes": 11_700_000} for name, to in ring.items() if name != to
    }
    ports = (34111, 45222, 56333)
    return Mesh(
        addresses={host.name: where for host, facts in survey.hosts()
                   if (where := training_address(host, facts, survey.backend)[1])},
        deaf=body.get("deaf", {}),
        pairs={tuple(name.split(">")): PairTrial(tuple(zip(ports, map(call_from_json, calls), strict=True)))
               for name, calls in pairs.items() if calls},
        ring={tuple(name.split(">")): call_from_json(call) for name, call in (sent | body.get("ring", {})).items()},
    )  # fmt: skip


def trial_of(body: dict[str, Any] | None, first: str, facts: dict[str, Facts]) -> PortTrial | None:
    if body is None:
        return None
    trial = port_trial_from_json(body, host=first, port=29500)
    well = {name: Call(ok=True, connect_s=0.0004) for name in facts} if trial.errno is None else {}
    calls = {name: call_from_json(call) for name, call in body.get("calls", {}).items()}
    return PortTrial(trial.port, first, trial.errno, trial.problem, trial.holder, {**well, **calls})

"""Remove from hosts what earlier runs left there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.errors import DdpOrchError
from orchestrator.model.untrusted import text, texts, texts_by_name
from orchestrator.transport.fan_out import on_all_hosts
from orchestrator.transport.node_program import Conversation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.model.facts import Facts
    from orchestrator.transport.link_pool import LinkPool

CLEAN_S = 60.0


@dataclass(frozen=True)
class Cleaned:
    """What became of a host's leftovers: the paths that are gone, and why others were kept."""

    removed: tuple[str, ...]
    kept: Mapping[str, str]


def leftovers_of(facts: Facts) -> tuple[str, ...]:
    """Return the paths on a host that may be removed."""
    return (*facts.left_folders, *facts.left_shared)


def clean_hosts(pool: LinkPool, paths: Mapping[str, Sequence[str]]) -> dict[str, Cleaned | DdpOrchError]:
    """Remove leftovers; each is looked at again on its host before it goes.

    Args:
        pool: links to the hosts.
        paths: host -> what the probe named there.
    """
    return on_all_hosts(
        {name: partial(_clean, pool, name, wanted) for name, wanted in paths.items()}, deadline_s=CLEAN_S
    )


def forget_runs(pool: LinkPool, hosts: Sequence[str], runs: Sequence[str], code: str) -> dict[str, str]:
    """Remove runs that have ended, and their code, from hosts; return host -> why something is still there.

    Args:
        pool: links to the hosts.
        hosts: where; one that never had a run of these has nothing to remove.
        runs: their names.
        code: id of the snapshot that they had in common.
    """

    def forget(name: str) -> str:
        order = {"workdir": pool.hosts[name].workdir, "forget": list(runs), "code": code}
        with Conversation(pool.link(name), "clean") as talk:
            return text(talk.ask(order, timeout_s=CLEAN_S), "why")

    results = on_all_hosts({name: partial(forget, name) for name in hosts}, deadline_s=CLEAN_S)
    said = {name: one.message if isinstance(one, DdpOrchError) else one for name, one in results.items()}
    return {name: why for name, why in said.items() if why}


def _clean(pool: LinkPool, name: str, paths: Sequence[str]) -> Cleaned:
    order = {"workdir": pool.hosts[name].workdir, "remove": list(paths)}
    with Conversation(pool.link(name), "clean") as talk:
        answer = talk.ask(order, timeout_s=CLEAN_S)
    return Cleaned(texts(answer, "removed"), texts_by_name(answer, "kept"))

"""What every rank of a run is doing right now."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.model.run_record import RankStack, rank_stacks
from orchestrator.transport.fan_out import failures, on_all_hosts, successes
from orchestrator.transport.node_program import Conversation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.errors import DdpOrchError
    from orchestrator.model.run_record import HostPart, RunRecord
    from orchestrator.transport.link_pool import LinkPool

DEADLINE_S = 60.0  # py-spy takes seconds a rank where there are many threads


@dataclass(frozen=True)
class SeenStacks:
    """The stacks of a run's ranks.

    Attributes:
        stacks: in rank order; ranks that have ended are absent.
        dumps: host -> paths there of what NCCL's flight recorder has written.
        missing: hosts that did not answer, with the reason.
    """

    stacks: tuple[RankStack, ...]
    dumps: Mapping[str, tuple[str, ...]]
    missing: Mapping[str, DdpOrchError]


def see_stacks(pool: LinkPool, record: RunRecord) -> SeenStacks:
    """Ask every host of a run at once; the ranks go on meanwhile."""

    def ask(part: HostPart) -> Mapping[str, object]:
        with Conversation(pool.link(part.name), "stacks") as talk:
            return talk.ask({"run_dir": part.run_dir}, timeout_s=DEADLINE_S)

    answers = on_all_hosts({part.name: partial(ask, part) for part in record.hosts}, deadline_s=DEADLINE_S)
    stacks: list[RankStack] = []
    dumps = {}
    for host, answer in successes(answers).items():
        ranks, paths = answer.get("ranks"), answer.get("dumps")
        stacks += rank_stacks(host, ranks if isinstance(ranks, dict) else {})
        if isinstance(paths, list) and paths:
            dumps[host] = tuple(map(str, paths))
    return SeenStacks(tuple(sorted(stacks, key=lambda stack: stack.rank)), dumps, failures(answers))

"""Which ranks of a run wait, and for which one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator.model.run_record import RankStack

# The innermost calls of a rank that waits for the others: torch's collectives, its store, the end of a backward pass.
_WAITS = re.compile(
    r"distributed_c10d|torch/distributed/|torch/autograd/graph\.py|_engine_run_backward|all_reduce|all_gather|broadcast"
    r"|barrier|reduce_scatter|ProcessGroup|Work::wait|synchronize"
)
_INNERMOST = 6  # calls that are looked at


@dataclass(frozen=True)
class Waited:
    """Who holds up the others.

    Attributes:
        rank: global number; where several do, the first.
        host: its host.
        says: a sentence about it.
    """

    rank: int
    host: str
    says: str


def who_waits(stacks: Sequence[RankStack]) -> Waited:
    """Tell which ranks wait and which one they wait for.

    Args:
        stacks: what each rank does, at least one.
    """
    stopped = [stack for stack in stacks if stack.state in ("T", "t")]
    stuck = [stack for stack in stacks if stack.state == "D"]
    elsewhere = [stack for stack in stacks if stack.stack and not waits_for_others(stack)]
    for held, what in (
        (stopped, "stopped (SIGSTOP: kill -CONT lets it go on)"),
        (stuck, "stuck in the kernel, waiting for a device or a file system"),
        (elsewhere if len(elsewhere) < len(stacks) else [], "not in the collective that the others are in"),
    ):
        if held:
            others = [stack.rank for stack in stacks if stack not in held]
            wait = f"; {_ranks(others)} wait{'s' * (len(others) == 1)} for it" if others else ""
            return _waited(held, what, wait)
    if elsewhere:
        return _waited(elsewhere, "at work without progress", "")
    return _waited(stacks, "in a collective, each waiting for another: do all ranks make the same calls?", "")


def waits_for_others(stack: RankStack) -> bool:
    """Tell whether a rank's main thread is in a call that ends when the others come."""
    return any(_WAITS.search(line) for line in main_thread(stack.stack)[:_INNERMOST])


def main_thread(stack: str) -> list[str]:
    """Return the calls of the first thread of a stack, most recent first."""
    first = stack.split("\n\n", maxsplit=1)[0].splitlines()
    return [line.strip() for line in first if line.strip() and not line.startswith(("Thread", "Process", "Python"))]


def folded(stacks: Iterable[RankStack]) -> list[tuple[list[RankStack], str]]:
    """Group ranks with equal stacks: (ranks, stack), the largest group first."""
    groups: dict[str, list[RankStack]] = {}
    for stack in stacks:
        text = stack.stack or f"no stack: {stack.how}"
        text = re.sub(r"0x[0-9a-f]{6,}|\bProcess \d+|/runs/[^/]+/[^/]+/", lambda found: _plain(found[0]), text)
        groups.setdefault(text, []).append(stack)
    return sorted(((ranks, text) for text, ranks in groups.items()), key=lambda group: -len(group[0]))


def _plain(found: str) -> str:
    """Take out what differs between equal stacks: addresses, pids, and the host's part of a run's folder."""
    return "0x..." if found.startswith("0x") else "Process ..." if found.startswith("Process") else "/runs/.../"


def _waited(held: Sequence[RankStack], what: str, wait: str) -> Waited:
    first = held[0]
    more = f" (and {_ranks([stack.rank for stack in held[1:]])})" if held[1:] else ""
    calls = main_thread(first.stack)
    where = f", in {calls[0]}" if calls else ""
    return Waited(first.rank, first.host, f"rank {first.rank} on {first.host}{more} is {what}{where}{wait}")


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"

"""Are the hosts of the inventory different machines?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="hosts_are_distinct",
    title="different machines",
    why='two ranks share one GPU ("Duplicate GPU detected"), and the hosts take each other\'s ports',
    source="NCCL compares host identity and PCI bus",
    group="getting in",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail a host that is another one under a second name and uses the same GPUs; warn where it uses others."""
    first_by_machine: dict[str, str] = {}
    gpus = {host.name: set(range(host.gpus) if isinstance(host.gpus, int) else host.gpus) for host, _ in survey.hosts()}
    for host, facts in survey.hosts():
        if not facts.machine or host.connection == "local":  # several local hosts are one machine on purpose
            continue
        first = first_by_machine.setdefault(facts.machine, host.name)
        if first == host.name:
            yield QUESTION.ok(host.name, facts.hostname)
            continue
        shared = gpus[first] & gpus[host.name]
        judge = QUESTION.fail if shared else QUESTION.warn
        yield judge(
            host.name,
            f"it is the same machine as {first}" + (f", with the same GPUs {sorted(shared)}" if shared else ""),
            wanted="one entry a machine",
            try_this="take one of the two out of the inventory, or give each its own GPUs (gpus: [0] and gpus: [1])",
        )

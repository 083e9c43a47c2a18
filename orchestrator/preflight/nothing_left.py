"""Have earlier runs left shared memory or folders behind?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="nothing_left",
    title="nothing left over",
    why="they fill memory and disk, run by run",
    source="NCCL and torch leave /dev/shm/nccl-* and torch_* when they are killed",
    group="leftovers",
)
MIB = 1024**2
MUCH_BYTES = 64 * MIB  # of shared memory: less hurts nobody


def ask(survey: Survey) -> Iterator[Finding]:
    """Warn of shared memory that nobody uses any more; name the folders of runs that never began."""
    for host, facts in survey.hosts():
        if "leftovers" in facts.problems:
            continue
        if facts.left_shared_bytes >= MUCH_BYTES:
            yield QUESTION.warn(
                host.name,
                f"{len(facts.left_shared)} unused files with {facts.left_shared_bytes // MIB} MiB in /dev/shm",
                wanted="none",
                consequence="what is free of it is what NCCL and data loaders can have: they fail with a bus error",
                try_this="ddp-orch preflight --fix",
            )
        elif facts.left_folders:
            count = len(facts.left_folders)
            yield QUESTION.ok(
                host.name, f"{count} folder{'s' * (count > 1)} of runs that never began (--fix removes them)"
            )
        else:
            yield QUESTION.ok(host.name, "nothing")

"""Is there memory enough for the workers of each host?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="memory",
    title="memory",
    why='the kernel kills a worker, and all that is seen of it is "exitcode: -9"',
    source="a worker that has imported torch and initialized CUDA holds 1 to 3 GiB; ResNet-101 on the CPU 2 to 3 GiB",
    group="room",
)
GIB = 1024**3
FAIL_A_WORKER, WARN_A_WORKER = 1 * GIB // 2, 2 * GIB


def ask(survey: Survey) -> Iterator[Finding]:
    """Judge what is free now, limits of control groups included, against the number of workers."""
    for host, facts in survey.hosts():
        free, total = facts.memory_free_bytes, facts.memory_bytes
        if not total or not free:
            continue
        seen = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free for {host.nproc} worker{'s' * (host.nproc > 1)}"
        if free < WARN_A_WORKER * host.nproc:
            judge = QUESTION.fail if free < FAIL_A_WORKER * host.nproc else QUESTION.warn
            yield judge(
                host.name,
                seen,
                wanted=f"{WARN_A_WORKER * host.nproc / GIB:.0f} GiB or more",
                try_this="on the host: ps aux --sort=-rss | head; fewer processes in the inventory; for a container or "
                "a session with a limit: a higher one",
            )
        else:
            yield QUESTION.ok(host.name, f"{free / GIB:.0f} GiB free")

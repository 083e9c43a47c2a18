"""Are there variables left over in the login shell that would change torchrun's flags or a worker's rank?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="environment_clean",
    title="no leftover variables",
    why="torchrun takes PET_* as its flags, and ranks or addresses of another run lead workers astray",
    source="torch/distributed/argparse_util.py: PET_STANDALONE=1 turns a host into a run of its own",
    group="parity",
)
LEFT_OVER = ("PET_", "TORCHELASTIC_", "MASTER_ADDR", "MASTER_PORT")
WHOLE = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE")


def ask(survey: Survey) -> Iterator[Finding]:
    """Name them. A run of ddp-orch takes them out of its workers' environment."""
    for host, facts in survey.hosts():
        found = [f"{name}={value}" for name, value in sorted(facts.env.items())
                 if name.startswith(LEFT_OVER) or name in WHOLE]  # fmt: skip
        if found:
            yield QUESTION.handled(
                host.name,
                ", ".join(found[:8]),
                wanted="none of them",
                try_this="nothing: run clears them; by hand: unset them, and take them out of the shell's start files",
            )
        elif "environment" not in facts.problems:
            yield QUESTION.ok(host.name, "none")

"""May processes of this login go on when it has ended?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="session_survives",
    title="runs outlive the login",
    why="systemd ends the run there when the SSH connection closes: with the terminal, or on a broken line",
    source="logind.conf(5): KillUserProcesses, KillOnlyUsers, KillExcludeUsers; loginctl enable-linger",
    group="room",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Warn where systemd ends what is left of a login."""
    for host, facts in survey.hosts():
        if facts.ends_at_logout:
            yield QUESTION.warn(
                host.name,
                f"KillUserProcesses holds for {facts.user}",
                wanted="processes that may stay",
                try_this=f"on the host: sudo loginctl enable-linger {facts.user}",
            )
        elif "capacity" not in facts.problems:
            yield QUESTION.ok(host.name, "yes")

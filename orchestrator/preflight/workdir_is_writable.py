"""Can the work folder be made and written on every host?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="workdir_is_writable",
    title="workdir writable",
    why="neither code nor results could be put there",
    group="room",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail where it is not, or where its file system gives no answer."""
    for host, facts in survey.hosts():
        place = facts.places.get("workdir")
        if place is None:
            yield QUESTION.fail(
                host.name,
                f"{host.workdir}: {facts.problems.get('place:workdir', 'not looked at')}",
                wanted="a file system that answers",
                try_this=f"on the host: df {host.workdir}; a network file system whose server is gone hangs here",
            )
        elif not place.is_folder:
            yield QUESTION.fail(
                host.name,
                f"{place.nearest} is no folder",
                wanted=f"room for the folder {place.path}",
                try_this="name another folder in the inventory (workdir:)",
            )
        elif not place.writable:
            yield QUESTION.fail(
                host.name,
                f"{facts.user} may not write to {place.nearest}",
                wanted=place.path,
                try_this=f"on the host: sudo install -d -o {facts.user} {place.path}; "
                "or name another folder in the inventory (workdir:)",
            )
        else:
            yield QUESTION.ok(host.name, place.path)

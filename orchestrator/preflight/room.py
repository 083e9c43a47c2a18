"""Is there room for a run: in the work folder, in /tmp, and in shared memory?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.facts import Place
    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(name="room", title="disk room", why="writing fails in the middle of the run", group="room")
MIB = 1024**2
GIB = 1024**3
FEW_FILES = 1000  # a run makes dozens; a synced project may have hundreds


@dataclass(frozen=True)
class Need:
    """How much has to be free in one place (bytes), and what runs out of it."""

    place: str
    fail_below: int
    warn_below: int
    consequence: str


NEEDS = (
    # ResNet-101 and Adam's state are 0.5 GB a checkpoint: two are kept, a third is written before the oldest goes.
    Need("workdir", 1 * GIB, 2 * GIB, "checkpoints and results do not fit: two checkpoints of ResNet-101 take 1 GiB"),
    # torchrun's error files and torch's compiler; what a script itself puts there is not known here.
    Need("tmp", 16 * MIB, 128 * MIB, "torchrun, pip and many scripts write there"),
    # Docker gives a container 64 MiB; data loader workers hand batches over in it, and NCCL up to 10 MiB a pair.
    Need("shm", 8 * MIB, 128 * MIB, "data loader workers die with a bus error, and NCCL cannot connect local ranks"),
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Judge each place of each host; all in one finding where there is enough everywhere."""
    for host, facts in survey.hosts():
        judged = [_judge(host.name, need, facts.places[need.place]) for need in NEEDS if need.place in facts.places]
        bad = [finding for finding in judged if finding is not None]
        workdir = facts.places.get("workdir")
        if bad:
            yield from bad
        elif workdir is not None:
            yield QUESTION.ok(host.name, f"{workdir.free_bytes / GIB:.0f} GiB free")


def _judge(host: str, need: Need, place: Place) -> Finding | None:
    seen = f"{place.free_bytes / MIB:.0f} MiB free in {place.path}"
    if place.free_files is not None and place.free_files < FEW_FILES:
        seen, judge = f"room for only {place.free_files} more files in {place.path} (inodes)", QUESTION.fail
    elif place.free_bytes < need.fail_below:
        judge = QUESTION.fail
    elif place.free_bytes < need.warn_below:
        judge = QUESTION.warn
    else:
        return None
    grow = (
        "docker run --shm-size=1g (or --ipc=host); outside of containers: sudo mount -o remount,size=1G /dev/shm"
        if need.place == "shm"
        else f"on the host: df -h {place.nearest}; du -xh {place.nearest} | sort -h | tail"
    )
    return judge(host, seen, wanted=f"{need.warn_below / MIB:.0f} MiB", consequence=need.consequence, try_this=grow)

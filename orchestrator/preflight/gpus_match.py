"""Do all hosts have the same GPUs and the same driver?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.gpus_used import used_gpus
from orchestrator.preflight.majority import agree
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="gpus_match",
    title="GPU models and drivers",
    why="all ranks wait for the slowest card, and the smallest memory decides the batch size",
    group="gpus",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Warn of other models; a driver of another branch is only worth a look where CUDA differs in behaviour."""
    used = {host.name: used_gpus(host, facts) for host, facts in survey.gpu_hosts()}
    models = {name: ", ".join(sorted({gpu.name for gpu in gpus if gpu.name})) for name, gpus in used.items() if gpus}
    drivers = {name: gpus[0].driver for name, gpus in used.items() if gpus and gpus[0].driver}
    if not models:
        return
    common, common_driver = agree(models), agree(drivers or {"": ""})
    for name, model in models.items():
        if name in common.odd:
            yield QUESTION.warn(
                name,
                model or "a card without a name",
                wanted=f"{common.value}, as on {common.held_by}",
                try_this="leave the host out (--exclude), or give it less to do in the script",
            )
        elif name in common_driver.odd:
            yield QUESTION.warn(
                name,
                f"driver {drivers[name]}",
                wanted=f"driver {common_driver.value}, as on {common_driver.held_by}",
                consequence="kernels may differ in speed, and faults of one driver look like faults of the network",
                try_this="on the host: install the same driver as on the others",
            )
        elif "," in model:
            yield QUESTION.warn(name, f"different cards in one host: {model}", try_this="name equal ones (gpus: [..])")
        else:
            yield QUESTION.ok(name, f"{model}, driver {drivers.get(name, 'unknown')}")

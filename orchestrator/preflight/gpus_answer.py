"""Does nvidia-smi answer on the hosts that shall use GPUs?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.nvidia_smi import read_nvidia_smi
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.facts import NvidiaSmi
    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="gpus_answer",
    title="NVIDIA driver answers",
    why="CUDA would not start there; a card that needs a reset looks to torch like none",
    group="gpus",
)
SLOW_S = 5.0  # without persistence mode each call loads the driver anew: so does each start of a worker


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail where it is missing, silent or has only complaints; warn where it complains beside good GPUs."""
    for host, facts in survey.gpu_hosts():
        if facts.nvidia_smi is None:
            yield QUESTION.skip(host.name, facts.problems.get("nvidia_smi", "not asked"))
        else:
            yield _judge(host.name, facts.nvidia_smi, has_driver=facts.has_nvidia_driver, jetson=facts.gpu.jetson)


def _judge(host: str, answer: NvidiaSmi, *, has_driver: bool, jetson: str) -> Finding:
    if not answer.found:
        return (
            QUESTION.ok(host, f"{jetson} has none")
            if jetson
            else QUESTION.fail(
                host,
                "no nvidia-smi" + (", though the driver is loaded" if has_driver else " and no NVIDIA driver"),
                wanted="nvidia-smi of the installed driver",
                try_this="on the host: install the NVIDIA driver (its utils package has nvidia-smi); "
                "for a run on CPUs: gpus: 0 in the inventory",
            )
        )
    if answer.code is None and not answer.stdout:
        said = answer.stderr or f"nvidia-smi gave no answer within {answer.seconds:.0f} s"
        return QUESTION.fail(
            host,
            said,
            wanted="an answer in seconds",
            try_this="on the host: sudo dmesg | grep -iE 'xid|nvrm'; a hung driver needs a reboot",
        )
    reading = read_nvidia_smi(answer)
    if not reading.gpus:
        said = reading.complaint or f"nothing (exit code {answer.code})"
        return QUESTION.fail(
            host,
            f"{reading.cause}: {said}" if reading.cause else f"nvidia-smi says {said}",
            wanted="a list of GPUs",
            try_this=reading.try_this,
        )
    if reading.complaint:
        return QUESTION.warn(
            host, f"{reading.cause}: {reading.complaint}", wanted="no complaint", try_this=reading.try_this
        )
    if answer.seconds > SLOW_S:
        return QUESTION.warn(
            host,
            f"nvidia-smi took {answer.seconds:.0f} s",
            wanted=f"less than {SLOW_S:.0f} s",
            consequence="each worker waits as long at its start",
            try_this="on the host: sudo nvidia-smi -pm 1",
        )
    return QUESTION.ok(host, f"driver {reading.gpus[0].driver or 'of unknown version'}")

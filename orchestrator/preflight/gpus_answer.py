"""Does nvidia-smi answer on the hosts that shall use GPUs?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.nvidia_smi import read_nvidia_smi
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.facts import Facts, NvidiaSmi
    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="gpus_answer",
    title="NVIDIA driver answers",
    why="CUDA would not start there; a card that needs a reset looks to torch like none",
    group="gpus",
)
IN_WINDOWS = "in Windows: install or update NVIDIA's driver there (none inside of WSL), then wsl --shutdown"
SLOW_S = 5.0  # without persistence mode each call loads the driver anew: so does each start of a worker


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail where it is missing, silent or has only complaints; warn where it complains beside good GPUs."""
    for host, facts in survey.gpu_hosts():
        if facts.nvidia_smi is None:
            yield QUESTION.skip(host.name, facts.problems.get("nvidia_smi", "not asked"))
        else:
            yield _judge(host.name, facts, facts.nvidia_smi)


def _judge(host: str, facts: Facts, answer: NvidiaSmi) -> Finding:
    if not answer.found:
        return _missing(host, facts)
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
        return (QUESTION.warn if facts.gpu.jetson else QUESTION.fail)(  # CUDA does without it on a Jetson
            host,
            f"{reading.cause}: {said}" if reading.cause else f"nvidia-smi says {said}",
            wanted="a list of GPUs",
            try_this=IN_WINDOWS if facts.container == "WSL" else reading.try_this,
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
    driver = reading.gpus[0].driver
    little = f"{facts.gpu.jetson}, whose nvidia-smi tells little" if facts.gpu.jetson else "driver of unknown version"
    return QUESTION.ok(host, f"driver {driver}" if driver else little)


def _missing(host: str, facts: Facts) -> Finding:
    """There is no nvidia-smi."""
    if facts.gpu.jetson:  # JetPack 5 and older have none
        return QUESTION.ok(host, f"{facts.gpu.jetson} has no nvidia-smi and needs none")
    return QUESTION.fail(
        host,
        "no nvidia-smi" + (", though the driver is loaded" if facts.has_nvidia_driver else " and no NVIDIA driver"),
        wanted="nvidia-smi of the installed driver",
        try_this=IN_WINDOWS
        if facts.container == "WSL"
        else "on the host: install the NVIDIA driver (its utils package has nvidia-smi); "
        "for a run on CPUs: gpus: 0 in the inventory",
    )

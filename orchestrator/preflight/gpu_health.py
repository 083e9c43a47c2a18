"""Do the GPUs, or the kernel, complain of anything?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.preflight.gpus_used import used_gpus
from orchestrator.preflight.nvidia_smi import bus_address, read_nvidia_smi
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.facts import Facts
    from orchestrator.model.finding import Finding
    from orchestrator.preflight.nvidia_smi import Gpu
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="gpu_health",
    title="GPU health",
    why="the card fails in the middle of the run, or slows all others down",
    source="NVIDIA's Xid catalogue; nvidia-smi's clocks_event_reasons, gpu_recovery_action and ECC counters",
    group="gpus",
)
HOT_C = 90
RECENT_S = 24 * 3600.0
# Bits of nvmlClocksEventReasons that mean trouble; idle (1), application clocks (2) and a power cap (4) do not.
SLOWED = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
XIDS = {
    13: "a kernel faulted",
    31: "a kernel read memory that is not its own",
    43: "a kernel was stopped",
    45: "a program ended early",
    48: "uncorrectable memory error",
    61: "firmware fault",
    62: "firmware fault",
    63: "memory row retired",
    64: "memory row could not be retired",
    69: "graphics engine fault",
    74: "NVLink error",
    79: "the card has fallen off the bus",
    92: "many corrected memory errors",
    94: "memory error, contained",
    95: "memory error, not contained",
    109: "a context switch timed out",
    119: "firmware does not answer",
    120: "firmware fault",
}
PROGRAMS_FAULT = (13, 31, 43, 45)  # of a program that is gone, not of the card


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail cards that need a reset; warn of errors, heat and what the kernel's log says."""
    for host, facts in survey.gpu_hosts():
        gpus = used_gpus(host, facts)
        if not gpus:
            continue
        troubles = [trouble for gpu in gpus for trouble in _of_gpu(host.name, facts, gpu.index)]
        if facts.gpu.hung:
            troubles.append(
                QUESTION.warn(
                    host.name,
                    "nvidia-smi lists the cards, and hangs when it is asked for their health",
                    wanted="an answer in seconds",
                    try_this="on the host: sudo dmesg | grep -iE 'xid|nvrm'; a hung driver needs a reboot",
                )
            )
        troubles += [*_of_license(host.name, facts), *_of_dcgm(host.name, facts), *_of_log(host.name, facts, gpus)]
        yield from troubles
        if not troubles:
            log = "" if not facts.gpu.kernel_log_problem else ", kernel log not readable"
            said = "no complaint" if facts.gpu.details else "nvidia-smi told no details"
            yield QUESTION.ok(host.name, f"{said}{log}")


def _of_gpu(host: str, facts: Facts, index: int) -> Iterator[Finding]:
    detail = facts.gpu.detail(index)
    if detail is None:
        return
    slowed = [name for bit, name in SLOWED.items() if detail.slowed_by & bit]
    if detail.recovery not in ("", "None"):
        yield QUESTION.fail(
            host,
            f"GPU {index} needs recovery: {detail.recovery}",
            wanted="None",
            try_this="on the host: sudo reboot"
            if detail.recovery == "Reboot"
            else f"on the host: sudo nvidia-smi --gpu-reset -i {index}, or reboot",
        )
        return  # what else it says is of a card that does not work
    if detail.uncorrected_errors:
        yield QUESTION.warn(
            host,
            f"GPU {index} has had {detail.uncorrected_errors} uncorrectable memory errors since the driver was loaded",
            wanted="none",
            try_this=f"on the host: nvidia-smi -q -d ECC,ROW_REMAPPER -i {index}; a reset or reboot retires the rows",
        )
    if slowed or (detail.temperature_c or 0) >= HOT_C:
        heat = f" at {detail.temperature_c} degrees" if detail.temperature_c is not None else ""
        yield QUESTION.warn(
            host,
            f"GPU {index} is slowed down by {', '.join(slowed) or 'heat'}{heat}",
            wanted="full clocks",
            consequence="all ranks wait for it at every step",
            try_this="on the host: nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER; fans, dust, power cables",
        )


def _of_license(host: str, facts: Facts) -> Iterator[Finding]:
    if re.match("Unlicensed|Expired", facts.gpu.license, re.IGNORECASE):
        yield QUESTION.warn(
            host,
            f"virtual GPU: {facts.gpu.license}",
            wanted="Licensed",
            consequence="it is slowed down, and refuses CUDA after a while",
            try_this="on the host: systemctl status nvidia-gridd; /etc/nvidia/gridd.conf names the licence server",
        )


def _of_dcgm(host: str, facts: Facts) -> Iterator[Finding]:
    """Pass on what DCGM calls a failure; its warnings are counters that a training hardly notices."""
    if re.search(r"Overall Health[\s:|]+Failure", facts.gpu.dcgm):
        cells = re.findall(r"[^|+=\n]+", facts.gpu.dcgm.partition("Failure")[2])
        words = " ".join(" ".join(cells).replace("->", " ").replace("---", " ").split())
        yield QUESTION.warn(
            host, f"DCGM reports a failure: {words[:200]}", wanted="Healthy", try_this="on the host: dcgmi health -c"
        )


def _of_log(host: str, facts: Facts, used: tuple[Gpu, ...]) -> Iterator[Finding]:
    """Tell the last complaint about a used card; one whose card nvidia-smi no longer lists counts too."""
    listed = read_nvidia_smi(facts.nvidia_smi).gpus if facts.nvidia_smi else ()
    others = {gpu.bus for gpu in listed if gpu.bus} - {gpu.bus for gpu in used}
    lines = [line for line in facts.gpu.kernel_log if line.age_s < RECENT_S and _matters(line.text)
             and bus_address(line.text) not in others]  # fmt: skip
    if not lines:
        return
    last = lines[-1]
    xid = _xid(last.text)
    meaning = f" ({XIDS[xid]})" if xid in XIDS else ""
    tests = {"dcgmi": "dcgmi diag -r 1", "gpud": "gpud scan"}
    yield QUESTION.warn(
        host,
        f"the kernel said {_ago(last.age_s)} ago: {last.text[:120]}{meaning}"
        + (f", and {len(lines) - 1} more" if len(lines) > 1 else ""),
        wanted="no complaint of the driver in the last day",
        try_this="; ".join(
            ["on the host: sudo dmesg | grep -iE 'xid|nvrm'", "nvidia-smi -q"]
            + [tests[tool] for tool in facts.gpu.tools if tool in tests]
            + ["a reset or a reboot"]
        ),
    )


def _matters(text: str) -> bool:
    xid = _xid(text)
    return xid not in PROGRAMS_FAULT if xid else bool(re.search(r"fallen off the bus|RmInitAdapter failed", text))


def _xid(text: str) -> int:
    match = re.search(r"Xid \([^)]*\): (\d+)", text)
    return int(match.group(1)) if match else 0


def _ago(age_s: float) -> str:
    return f"{age_s / 3600:.0f} h" if age_s >= 3600 else f"{age_s / 60:.0f} min"

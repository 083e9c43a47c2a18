"""Reading what nvidia-smi says: rows of good GPUs, rows of bad ones, and sentences instead of either."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.model.facts import NvidiaSmi

# A field that holds one of these belongs to a GPU that does not work, at exit code 0 too. Others, like [N/A] and
# [Not Supported], only mean that this kind of GPU does not say.
_BAD_FIELD = re.compile(r"requires reset|is lost|^ERR!$", re.IGNORECASE)
_UNKNOWN = re.compile(
    r"^\[?(N/A|Not Supported|Unknown Error|Insufficient Permissions|Not Found)\]?$|deprecated|^$", re.IGNORECASE
)

# What it says instead of rows, on standard output or standard error: pattern, cause, remedy.
_COMPLAINTS = (
    (
        r"Driver/library version mismatch",
        "the driver was updated while the old one is loaded",
        "on the host: sudo reboot (or unload and load the nvidia modules)",
    ),
    (
        r"couldn.t communicate with the NVIDIA driver",
        "the driver is not loaded",
        "on the host: sudo modprobe nvidia; after a kernel update: dkms status",
    ),
    (
        r"No devices were found",
        "the driver finds no GPU that it can start",
        "on the host: lspci | grep -i nvidia; sudo dmesg | grep NVRM",
    ),
    (
        r"Unable to determine the device handle|GPU is lost|fallen off the bus",
        "a GPU has dropped off the bus",
        "on the host: sudo dmesg | grep -i xid; a reboot brings it back, or a look at power and slot",
    ),
    (
        r"requires reset",
        "a GPU waits for a reset",
        "on the host: sudo nvidia-smi --gpu-reset, or reboot",
    ),
    (
        r"blocked by the operating system|NVML: N/A",
        "Windows keeps the GPU from WSL",
        "in Windows: wsl --shutdown, and update its NVIDIA driver",
    ),
    (
        r"Insufficient Permissions",
        "this login may not use the GPU",
        "on the host: ls -l /dev/nvidia*; is the user in the group that owns them?",
    ),
    (r"infoROM is corrupted", "the GPU's own memory for settings is damaged", "keep an eye on it; it still computes"),
    (r"not a valid field to query", "a driver older than the question", "on the host: update the NVIDIA driver"),
    (r"Failed to initialize NVML", "the driver does not answer", "on the host: sudo dmesg | grep NVRM"),
)


@dataclass(frozen=True)
class Gpu:
    """One row.

    Attributes:
        index: as CUDA_VISIBLE_DEVICES counts in PCI order.
        name: the model, "" where it does not say.
        driver: version of the driver, "" where it does not say.
        memory_mib: in all, or None where it does not say.
        problem: "" for one that works.
        uuid: its name everywhere, "" where it does not say.
        used_mib: memory in use, or None where it does not say.
        bus: its place, as bus_address() writes it.
    """

    index: int
    name: str
    driver: str
    memory_mib: int | None
    problem: str
    uuid: str = ""
    used_mib: int | None = None
    bus: str = ""


@dataclass(frozen=True)
class Reading:
    """What one call of nvidia-smi tells.

    Attributes:
        gpus: every row, good or bad.
        complaint: its sentence beside or instead of rows, "" for none.
        cause: the complaint in plain words.
        try_this: what to do about it.
    """

    gpus: tuple[Gpu, ...]
    complaint: str = ""
    cause: str = ""
    try_this: str = ""

    @property
    def good(self) -> tuple[Gpu, ...]:
        """The GPUs that work."""
        return tuple(gpu for gpu in self.gpus if not gpu.problem)


def read_nvidia_smi(answer: NvidiaSmi) -> Reading:
    """Read rows of index, name, uuid, pci.bus_id, driver_version, memory.total, memory.used.

    Source:
        Errors come on standard output too, beside good rows too; the exit code alone says little (14 under a good
        table, 0 above a GPU that waits for a reset). Public reports of nvidia-smi output, 2013 to 2026.
    """
    gpus, sentences = [], answer.stderr.splitlines()
    for line in answer.stdout.replace("\0", "").splitlines():  # csv of Python 3.10 refuses NUL
        cells = next(csv.reader([line], skipinitialspace=True), [])
        if len(cells) >= 2 and re.fullmatch("[0-9]{1,4}", cells[0].strip()):
            gpus.append(_gpu([cell.strip()[:100] for cell in cells]))
        elif line.strip():
            sentences.append(line)
    said = " ".join(sentence.strip() for sentence in sentences if sentence.strip())[:300]
    for pattern, cause, try_this in _COMPLAINTS:
        if re.search(pattern, said, re.IGNORECASE):
            return Reading(tuple(gpus), said, cause, try_this)
    return Reading(
        tuple(gpus), said, "it gives no reason that is known here" if said else "", "on the host: nvidia-smi"
    )


def _gpu(cells: list[str]) -> Gpu:
    problem = next((cell.strip("[]") for cell in cells if _BAD_FIELD.search(cell)), "")
    known = [("" if _UNKNOWN.search(cell) or _BAD_FIELD.search(cell) else cell) for cell in cells] + [""] * 7
    total, used = (re.match(r"\d+", cell) for cell in known[5:7])
    return Gpu(
        index=int(cells[0]),
        name=known[1],
        driver=known[4],
        memory_mib=int(total.group()) if total else None,
        problem=problem,
        uuid=known[2],
        used_mib=int(used.group()) if used else None,
        bus=bus_address(known[3]),
    )


def bus_address(text: str) -> str:
    """Find a PCI address in a text, and write it as "DOMAIN:BUS:DEVICE"; "" where there is none.

    nvidia-smi and the kernel write domains with four or with eight digits, and the driver's own messages name no
    function ("PCI:0000:44:00").
    """
    match = re.search(r"\b([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2})\b", text, re.IGNORECASE)
    return f"{int(match.group(1), 16):x}:{match.group(2).lower()}" if match else ""

"""What the probe saw of a host's GPUs beside nvidia-smi's first answer. Unknown is "" or None everywhere."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.model.untrusted import mapping, mappings, number, text, texts

if TYPE_CHECKING:
    from collections.abc import Mapping

_SAYS_NOTHING = re.compile(
    r"^\[?(N/A|Not Supported|Unknown Error|Insufficient Permissions|Not Found)\]?$|deprecated", re.IGNORECASE
)


@dataclass(frozen=True)
class GpuDetail:
    """Newer facts of one GPU, as far as its driver tells them.

    Attributes:
        compute_mode: "Default", "Exclusive_Process" or "Prohibited".
        temperature_c: degrees Celsius.
        uncorrected_errors: of its memory, since the driver was loaded.
        capability: "8.6".
        mig: "Enabled" or "Disabled".
        slowed_by: bit mask of why its clocks are lowered.
        recovery: what it needs to work again: "None", "Reset", "Reboot", ...
        fabric: state of NVLink's fabric: "Completed", "In Progress", ...
        busy_percent: of the last second, some kernel ran.
    """

    index: int
    compute_mode: str
    temperature_c: int | None
    uncorrected_errors: int | None
    capability: str
    mig: str
    slowed_by: int
    recovery: str
    fabric: str
    busy_percent: int | None


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds memory of a GPU; what /proc did not tell is "" or 0."""

    pid: int
    uuid: str
    name: str
    memory_mib: int | None
    user: str
    since_s: float
    command: str
    run: str


@dataclass(frozen=True)
class KernelLine:
    """A line of the kernel's log, and its age (seconds)."""

    age_s: float
    text: str


@dataclass(frozen=True)
class GpuFacts:
    """All of it.

    Attributes:
        details: one for each GPU, by index.
        hung: nvidia-smi answered the first question, and did not end at the one for details.
        processes: that hold GPU memory.
        topology: what `nvidia-smi topo -m` says, "" for fewer than two.
        peer_access: what `nvidia-smi topo -p2p r` says where there is no NVLink.
        license: of a virtual GPU.
        module_version: of the loaded kernel module.
        switches: NVSwitch devices.
        has_fabric_manager: it runs.
        has_iommu: an IOMMU translates what the GPUs send.
        jetson: name of the board.
        architectures: that torch was built for: "sm_80", "compute_90", ...
        kernel_log: what the kernel said of GPUs and killed processes.
        kernel_log_problem: why it could not be read.
        tools: that watch GPUs and are installed: "dcgmi", "gpud".
        dcgm: what `dcgmi health -c` says.
    """

    details: tuple[GpuDetail, ...]
    hung: bool
    processes: tuple[GpuProcess, ...]
    topology: str
    peer_access: str
    license: str
    module_version: str
    switches: int
    has_fabric_manager: bool
    has_iommu: bool
    jetson: str
    architectures: tuple[str, ...]
    kernel_log: tuple[KernelLine, ...]
    kernel_log_problem: str
    tools: tuple[str, ...]
    dcgm: str

    def detail(self, index: int) -> GpuDetail | None:
        """Return the facts of one GPU."""
        return next((one for one in self.details if one.index == index), None)


def gpu_facts_from_json(body: Mapping[str, Any]) -> GpuFacts:
    """Read what the probe answered."""
    host, told = mapping(body, "gpu_host"), mapping(body, "gpu_details")
    return GpuFacts(
        details=tuple(_details(texts(told, "fields"), text(told, "stdout"))),
        hung=told.get("hung") is True,
        processes=tuple(_processes(mapping(body, "gpu_apps"))),
        topology=text(body, "gpu_topology"),
        peer_access=text(body, "gpu_peer_access"),
        license=text(body, "gpu_license"),
        module_version=text(host, "module_version"),
        switches=int(number(host, "switches")),
        has_fabric_manager=host.get("fabric_manager") is True,
        has_iommu=host.get("iommu") is True,
        jetson=text(host, "jetson"),
        architectures=tuple(text(host, "torch_architectures").split()),
        kernel_log=tuple(
            KernelLine(number(line, "age_s"), text(line, "text")) for line in mappings(body, "kernel_log")
        ),
        kernel_log_problem=text(body, "kernel_log_problem"),
        tools=texts(body, "gpu_tools"),
        dcgm=text(body, "dcgm"),
    )


def _details(fields: tuple[str, ...], stdout: str) -> list[GpuDetail]:
    found = []
    for line in stdout.replace("\0", "").splitlines():
        cells = [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
        values = {name: "" if _SAYS_NOTHING.search(cell) else cell for name, cell in zip(fields, cells, strict=False)}
        if not values.get("index", "").isdigit():
            continue
        reasons = values.get("clocks_event_reasons.active") or values.get("clocks_throttle_reasons.active", "")
        found.append(
            GpuDetail(
                index=int(values["index"]),
                compute_mode=values.get("compute_mode", ""),
                temperature_c=_number(values.get("temperature.gpu", "")),
                uncorrected_errors=_number(values.get("ecc.errors.uncorrected.volatile.total", "")),
                capability=values.get("compute_cap", ""),
                mig=values.get("mig.mode.current", ""),
                slowed_by=int(reasons, 16) if re.fullmatch("0x[0-9a-fA-F]{1,16}", reasons) else 0,
                recovery=values.get("gpu_recovery_action", ""),
                fabric=values.get("fabric.state", ""),
                busy_percent=_number(values.get("utilization.gpu", "")),
            )
        )
    return found


def _processes(body: Mapping[str, Any]) -> list[GpuProcess]:
    found, known = [], mapping(body, "processes")
    for line in text(body, "stdout").replace("\0", "").splitlines():
        cells = [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
        if len(cells) == 4 and re.fullmatch("[0-9]{1,9}", cells[0]):
            about = mapping(known, cells[0])
            found.append(
                GpuProcess(
                    pid=int(cells[0]),
                    uuid=cells[1],
                    name="" if _SAYS_NOTHING.search(cells[2]) else cells[2],
                    memory_mib=_number(cells[3]),
                    user=text(about, "user"),
                    since_s=number(about, "since_s"),
                    command=text(about, "command"),
                    run=text(about, "run"),
                )
            )
    return found


def _number(cell: str) -> int | None:
    match = re.match(r"[0-9]{1,15}", cell)
    return int(match.group()) if match else None

"""What a host itself knows of why a process of the run ended: the OOM killer, a full disk, the kernel's log.

Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import os
import re

from orchestrator.node.parts import read_text

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

FULL_BYTES = 128 * 1024  # less than this free: a write of a page or two may still go through
MOST_LINES = 20
TELLING = re.compile(
    r"NVRM: Xid|oom-kill:|Out of memory: Killed|Memory cgroup out of memory|I/O error|EXT4-fs error|XFS .*corruption"
    r"|NIC Link is Down|link becomes not ready|nvidia-nvswitch.*SXid"
)


class Evidence:
    """Looks at a host from the start of a run to its end."""

    def __init__(self, folder: str) -> None:
        """Begin to look.

        Args:
            folder: on the disk that the run writes to.
        """
        self._folder = folder
        self._oom_kills = oom_kills()
        self._kernel: Optional[int] = None
        self._full = False
        try:
            self._kernel = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._kernel, 0, os.SEEK_END)
        except OSError:
            pass  # not for this account

    def disk_is_full(self) -> bool:
        """Look at the disk; once full is remembered, since a failed rank may free what it could not fill."""
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return self._full
        no_names = found.f_files > 0 and not found.f_favail
        self._full = self._full or no_names or found.f_bavail * found.f_frsize < FULL_BYTES
        return self._full

    def found(self) -> Dict[str, Any]:
        """Return what there is: {"oom_kills", "disk_full", "kernel"}; what is absent was not seen."""
        seen: Dict[str, Any] = {}
        if oom_kills() > self._oom_kills:
            seen["oom_kills"] = oom_kills() - self._oom_kills
        if self.disk_is_full():
            seen["disk_full"] = self._folder
        lines = self._kernel_lines()
        if lines:
            seen["kernel"] = lines
        return seen

    def _kernel_lines(self) -> List[str]:
        lines: List[str] = []
        while self._kernel is not None:
            try:
                record = os.read(self._kernel, 8192).decode(errors="replace")
            except BrokenPipeError:
                continue  # some were overwritten before we read them
            except OSError:
                break  # no more
            text = record.partition(";")[2].partition("\n")[0]
            if TELLING.search(text):
                lines.append(text[:300])
        return lines[-MOST_LINES:]


def oom_kills() -> int:
    """Return how many processes the OOM killer has killed: in this process's memory cgroup, and on the whole host."""
    count = 0
    for line in read_text("/proc/vmstat").splitlines():
        if line.startswith("oom_kill "):
            count += int(line.split()[1])
    for line in read_text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            text = read_text("/sys/fs/cgroup%s/memory.events" % path)
        elif "memory" in controllers.split(","):
            text = read_text("/sys/fs/cgroup/memory%s/memory.oom_control" % path)
        else:
            continue
        found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
        count += int(found.group(1)) if found else 0
    return count

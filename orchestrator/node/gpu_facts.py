"""Part of the probe, for hosts that shall use GPUs: what nvidia-smi says, and what can be seen beside it.

Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import time

from orchestrator.node.parts import TEXT_KEPT, read_text, user_name

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

# Every driver since 2013 knows these. One field that a driver does not know fails the whole query, so that what is
# newer is asked for in a second one, without the fields that the driver complains of.
SMI_FIELDS = "index,name,uuid,pci.bus_id,driver_version,memory.total,memory.used"
MORE_FIELDS = (
    "index", "compute_mode", "temperature.gpu", "ecc.errors.uncorrected.volatile.total", "compute_cap",
    "mig.mode.current", "clocks_event_reasons.active", "clocks_throttle_reasons.active",
    "gpu_recovery_action", "fabric.state", "utilization.gpu",
)  # fmt: skip
APP_FIELDS = "pid,gpu_uuid,process_name,used_gpu_memory"
SMI_PLACES = ":/usr/bin:/usr/lib/wsl/lib:/usr/local/nvidia/bin"  # WSL and GKE keep it off a bare login's PATH
QUICK_S = 3.0  # a first answer that took longer (no persistence mode) leaves no time for further questions
LEAST_S = 0.3  # with less time left, a further question would only cost the answers that are there already
DCGM_LIMIT_S = 5.0
DMESG_LIMIT_S, DMESG_KEPT = 2.0, 4 * 1024 * 1024  # the last lines matter; a kernel's log is at most a few MiB
NO_ANSWER = {"found": True, "code": None, "stdout": "", "stderr": ""}  # no code: it did not end in time
KERNEL_LINES = re.compile(r"NVRM|Xid|Out of memory|oom-kill|Memory cgroup out of memory|mlx5_core.*link down")
KERNEL_LINES_KEPT = 40


def run(argv: List[str], limit_s: float, kept: int = TEXT_KEPT) -> Dict[str, Any]:
    """Run a program; its words come back as they are, good or bad."""
    start = time.monotonic()
    answer: Dict[str, Any] = dict(NO_ANSWER)
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=dict(os.environ, PATH=os.environ.get("PATH", "") + SMI_PLACES),
        )  # fmt: skip
    except OSError as error:
        return dict(answer, found=error.errno != errno.ENOENT, stderr=str(error), seconds=0.0)
    try:
        out, err = process.communicate(timeout=limit_s)
        answer["code"] = process.returncode
        answer["stdout"] = out.decode(errors="replace")[:kept]
        answer["stderr"] = err.decode(errors="replace")[:TEXT_KEPT]
    except subprocess.TimeoutExpired:
        process.kill()  # and no wait: one that is stuck in the driver does not end
    return dict(answer, seconds=round(time.monotonic() - start, 3))


def query(what: str, fields: str) -> List[str]:
    """Return the nvidia-smi command of a query."""
    return ["nvidia-smi", "--query-%s=%s" % (what, fields), "--format=csv,noheader,nounits"]


def run_before(end: float, argv: List[str]) -> Dict[str, Any]:
    """Run a program where there is time left: after a question that hung there is none, and no other is asked."""
    left = end - time.monotonic()
    return run(argv, left) if left >= LEAST_S else dict(NO_ANSWER)


def smi_facts(limit_s: float) -> Dict[str, Any]:
    """Ask nvidia-smi about each GPU, and more where it is quick."""
    end = time.monotonic() + limit_s
    first = run(query("gpu", SMI_FIELDS), limit_s)
    answer: Dict[str, Any] = {"nvidia_smi": first}
    rows = [line for line in first["stdout"].splitlines() if re.match(r"\d+, ", line)]
    if not rows or first["seconds"] > QUICK_S:
        return answer
    answer["gpu_details"] = details(end)
    apps = run_before(end, query("compute-apps", APP_FIELDS))["stdout"]
    named = re.findall(r"^(\d+),[^,]*, *([^,\n]*)", apps, re.MULTILINE)
    answer["gpu_apps"] = {"stdout": apps, "processes": {pid: process(pid, name) for pid, name in named[:100]}}
    if len(rows) > 1:
        answer["gpu_topology"] = run_before(end, ["nvidia-smi", "topo", "-m"])["stdout"]
        if not re.search(r"\bNV\d", answer["gpu_topology"]):  # whether the driver lets cards read each other's memory
            answer["gpu_peer_access"] = run_before(end, ["nvidia-smi", "topo", "-p2p", "r"])["stdout"]
    if re.search(r"GRID|-\d+[ABCQ]\b", "\n".join(rows)):  # the name of a share of a card, which needs a licence
        license_ = re.search(r"License Status\s*:\s*(.*)", run_before(end, ["nvidia-smi", "-q"])["stdout"])
        answer["gpu_license"] = license_.group(1).strip() if license_ else ""
    return answer


def details(end: float) -> Dict[str, Any]:
    """Ask for the newer fields, without those that this driver does not know."""
    fields = list(MORE_FIELDS)
    while len(fields) > 1:
        told = run_before(end, query("gpu", ",".join(fields)))
        unknown = re.search(r'Field "([^"]+)" is not a valid field', told["stdout"] + told["stderr"])
        if unknown is None or unknown.group(1) not in fields:
            hung = told["code"] is None and told.get("seconds", 0) > 0
            return {"fields": fields, "stdout": told["stdout"], "hung": hung}
        fields.remove(unknown.group(1))
    return {"fields": [], "stdout": "", "hung": False}


def process(pid: str, name: str) -> Dict[str, Any]:
    """Say what /proc knows of the process that nvidia-smi calls by that name.

    Nothing where nvidia-smi counts in another PID namespace: in a container a process of that number may well be
    there, and be another one, which nobody should be told to kill.
    """
    folder = "/proc/" + pid
    command = read_text(folder + "/cmdline").replace("\0", " ").strip()
    program = os.path.basename(name.strip())
    if not program or program not in command:
        return {}
    try:
        owner = user_name(os.stat(folder).st_uid)
        ticks = int(read_text(folder + "/stat").rpartition(")")[2].split()[19])
        since = time.time() - float(read_text("/proc/uptime").split()[0]) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return {}
    run_name = re.search(r"(?:^|\0)DDP_ORCH_RUN=([^\0]*)", read_text(folder + "/environ"))
    return {"user": owner, "since_s": round(since), "command": command[:200],
            "run": run_name.group(1) if run_name else ""}  # fmt: skip


def beside_facts(torch_path: str) -> Dict[str, Any]:
    """Look at what concerns GPUs and is not nvidia-smi's."""
    module = re.search(r"Kernel Module\s+([\d.]+)", read_text("/proc/driver/nvidia/version"))
    model = read_text("/proc/device-tree/model").strip("\0\n ")
    is_jetson = "Jetson" in model or os.path.exists("/etc/nv_tegra_release")
    return {
        "gpu_host": {
            "module_version": module.group(1) if module else "",
            "switches": switches(),
            "fabric_manager": any_process("nv-fabricmanager"),
            "iommu": iommu_translates(),
            "jetson": (model or "Jetson") if is_jetson else "",
            "torch_architectures": torch_architectures(torch_path),
        }
    }


def switches() -> int:
    """Count the NVSwitches, by the driver's list or by their device files."""
    listed = "/proc/driver/nvidia-nvswitch/devices"
    if os.path.isdir(listed):
        return len(os.listdir(listed))
    return sum(bool(re.match(r"nvidia-nvswitch\d+$", name)) for name in os.listdir("/dev"))


def iommu_translates() -> bool:
    """Tell whether an IOMMU translates what the GPUs send: it is on, and does not let them pass ("identity")."""
    if not os.path.isdir("/sys/class/iommu") or not os.listdir("/sys/class/iommu"):
        return False
    cards = "/sys/bus/pci/drivers/nvidia"
    names = [name for name in os.listdir(cards) if ":" in name] if os.path.isdir(cards) else []
    kinds = {read_text("%s/%s/iommu_group/type" % (cards, name)).strip() for name in names}
    return kinds != {"identity"}  # a kernel that does not tell the kind is taken for one that translates


def watchers() -> Dict[str, Any]:
    """Say which tools that watch GPUs are installed, and what DCGM has noticed; asking it sets no watch."""
    folders = os.environ.get("PATH", "").split(":")
    tools = [name for name in ("dcgmi", "gpud") if any(os.access(folder + "/" + name, os.X_OK) for folder in folders)]
    dcgm = run(["dcgmi", "health", "-c"], DCGM_LIMIT_S)["stdout"] if "dcgmi" in tools else ""
    return {"gpu_tools": tools, "dcgm": dcgm[:4000]}


def any_process(name: str) -> bool:
    """Tell whether a process of that name runs; the kernel keeps 15 characters of it."""
    pids = filter(str.isdigit, os.listdir("/proc"))
    return any(read_text("/proc/%s/comm" % pid).strip() == name[:15] for pid in pids)


def torch_architectures(torch_path: str) -> str:
    """Return the GPU architectures that torch was built for ("sm_75 sm_80"), without importing it; "" where unknown.

    torch.cuda.get_arch_list() splits a text that was compiled into libtorch_python.so.
    """
    import mmap

    try:
        with open(torch_path + "/lib/libtorch_python.so", "rb") as stream:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return ""
    with data:
        at = data.find(b"sm_")
        while at >= 0:
            start, end = data.rfind(b"\0", 0, at) + 1, data.find(b"\0", at)
            text = data[start : min(end, start + 1000)].decode("ascii", "replace")
            if re.fullmatch(r"(sm|compute)_\d+[a-z]?( (sm|compute)_\d+[a-z]?)+", text):
                return text
            at = data.find(b"sm_", end)
    return ""


def kernel_log() -> Dict[str, Any]:
    """Return the kernel's last words about GPUs and killed processes, with their age (seconds), or why none."""
    now = time.monotonic()  # the clock of the log: like it, it stands still while the machine sleeps
    try:
        lines, problem = kernel_records(), ""
    except OSError as error:
        told = run(
            ["dmesg"], DMESG_LIMIT_S, DMESG_KEPT
        )  # asks by a system call, which may be allowed where this is not
        found = re.findall(r"^\[ *(\d+\.\d+)\] (.*)", told["stdout"], re.MULTILINE)
        lines = [(float(at), text) for at, text in found]
        problem = "" if lines else str(error.strerror)
    matching = [(at, text) for at, text in lines if KERNEL_LINES.search(text)][-KERNEL_LINES_KEPT:]
    kept = [{"age_s": max(round(now - at), 0), "text": text[:300]} for at, text in matching]
    return {"kernel_log": kept, "kernel_log_problem": problem}


def kernel_records() -> List[Tuple[float, str]]:
    """Read what is in the kernel's log now: when each line was written (seconds since the start), and the line."""
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    found: List[Tuple[float, str]] = []
    try:
        while True:
            try:
                record = os.read(log, 8192).decode(errors="replace")  # "6,1234,5678901,-;NVRM: ..."
            except BlockingIOError:
                return found
            except OSError as error:
                if error.errno != errno.EPIPE:  # the oldest were overwritten before they were read: go on
                    raise
                continue
            match = re.match(r"\d+,\d+,(\d+)[^;]*;(.*)", record)
            if match:
                found.append((int(match.group(1)) / 1e6, match.group(2)))
    finally:
        os.close(log)

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
    from typing import Any, Dict, List

# Every driver since 2013 knows these. One field that a driver does not know fails the whole query, so that what is
# newer is asked for in a second one, without the fields that the driver complains of.
SMI_FIELDS = "index,name,uuid,pci.bus_id,driver_version,memory.total,memory.used"
MORE_FIELDS = (
    "index", "compute_mode", "temperature.gpu", "ecc.errors.uncorrected.volatile.total", "compute_cap",
    "mig.mode.current", "clocks_event_reasons.active", "clocks_throttle_reasons.active",
    "gpu_recovery_action", "fabric.state",
)  # fmt: skip
APP_FIELDS = "pid,gpu_uuid,process_name,used_gpu_memory"
SMI_PLACES = ":/usr/bin:/usr/lib/wsl/lib:/usr/local/nvidia/bin"  # WSL and GKE keep it off a bare login's PATH
QUICK_S = 3.0  # a first answer that took longer (no persistence mode) leaves no time for further questions
KERNEL_LINES = re.compile(r"NVRM|Xid|Out of memory|oom-kill|Memory cgroup out of memory|mlx5_core.*link down")
KERNEL_LINES_KEPT = 40


def run(argv: List[str], limit_s: float) -> Dict[str, Any]:
    """Run a program; its words come back as they are, good or bad. No code: it did not end in time."""
    start = time.monotonic()
    answer: Dict[str, Any] = {"found": True, "code": None, "stdout": "", "stderr": ""}
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=dict(os.environ, PATH=os.environ.get("PATH", "") + SMI_PLACES),
        )  # fmt: skip
    except OSError as error:
        return dict(answer, found=error.errno != errno.ENOENT, stderr=str(error), seconds=0.0)
    try:
        out, err = process.communicate(timeout=max(limit_s, 0.1))
        answer["code"] = process.returncode
        answer["stdout"] = out.decode(errors="replace")[:TEXT_KEPT]
        answer["stderr"] = err.decode(errors="replace")[:TEXT_KEPT]
    except subprocess.TimeoutExpired:
        process.kill()  # and no wait: one that is stuck in the driver does not end
    return dict(answer, seconds=round(time.monotonic() - start, 3))


def query(what: str, fields: str) -> List[str]:
    """Return the nvidia-smi command of a query."""
    return ["nvidia-smi", "--query-%s=%s" % (what, fields), "--format=csv,noheader,nounits"]


def smi_facts(limit_s: float) -> Dict[str, Any]:
    """Ask nvidia-smi about each GPU, and more where it is quick."""
    end = time.monotonic() + limit_s
    first = run(query("gpu", SMI_FIELDS), limit_s)
    answer: Dict[str, Any] = {"nvidia_smi": first}
    rows = [line for line in first["stdout"].splitlines() if re.match(r"\d+, ", line)]
    if not rows or first["seconds"] > QUICK_S:
        return answer
    answer["gpu_details"] = details(end)
    apps = run(query("compute-apps", APP_FIELDS), end - time.monotonic())
    pids = re.findall(r"^(\d+),", apps["stdout"], re.MULTILINE)
    answer["gpu_apps"] = {"stdout": apps["stdout"], "processes": {pid: process(pid) for pid in pids[:100]}}
    if len(rows) > 1:
        answer["gpu_topology"] = run(["nvidia-smi", "topo", "-m"], end - time.monotonic())["stdout"]
    if re.search(r"GRID|-\d+[ABCQ]\b", "\n".join(rows)):  # the name of a share of a card, which needs a licence
        words = run(["nvidia-smi", "-q"], end - time.monotonic())["stdout"]
        license_ = re.search(r"License Status\s*:\s*(.*)", words)
        answer["gpu_license"] = license_.group(1).strip() if license_ else ""
    return answer


def details(end: float) -> Dict[str, Any]:
    """Ask for the newer fields, without those that this driver does not know."""
    fields = list(MORE_FIELDS)
    while len(fields) > 1:
        told = run(query("gpu", ",".join(fields)), end - time.monotonic())
        unknown = re.search(r'Field "([^"]+)" is not a valid field', told["stdout"] + told["stderr"])
        if unknown is None or unknown.group(1) not in fields:
            return {"fields": fields, "stdout": told["stdout"]}
        fields.remove(unknown.group(1))
    return {"fields": [], "stdout": ""}


def process(pid: str) -> Dict[str, Any]:
    """Say what /proc knows of a process; nothing where nvidia-smi counts in another PID namespace."""
    folder = "/proc/" + pid
    try:
        owner = user_name(os.stat(folder).st_uid)
        ticks = int(read_text(folder + "/stat").rpartition(")")[2].split()[19])
        since = time.time() - float(read_text("/proc/uptime").split()[0]) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return {}
    run_name = re.search(r"(?:^|\0)DDP_ORCH_RUN=([^\0]*)", read_text(folder + "/environ"))
    command = read_text(folder + "/cmdline").replace("\0", " ").strip()[:200]
    return {"user": owner, "since_s": round(since), "command": command, "run": run_name.group(1) if run_name else ""}


def beside_facts(torch_path: str) -> Dict[str, Any]:
    """Look at what concerns GPUs and is not nvidia-smi's."""
    switches = "/proc/driver/nvidia-nvswitch/devices"
    module = re.search(r"Kernel Module\s+([\d.]+)", read_text("/proc/driver/nvidia/version"))
    model = read_text("/proc/device-tree/model").strip("\0\n ")
    return {
        "gpu_host": {
            "module_version": module.group(1) if module else "",
            "switches": len(os.listdir(switches)) if os.path.isdir(switches) else 0,
            "fabric_manager": any_process("nv-fabricmanager"),
            "iommu": bool(os.path.isdir("/sys/class/iommu") and os.listdir("/sys/class/iommu")),
            "jetson": model if "Jetson" in model or os.path.exists("/etc/nv_tegra_release") else "",
            "torch_architectures": torch_architectures(torch_path),
        }
    }


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
    try:
        uptime = float(read_text("/proc/uptime").split()[0])
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, IndexError) as error:
        return {"kernel_log": [], "kernel_log_problem": str(getattr(error, "strerror", error))}
    found: List[Dict[str, Any]] = []
    try:
        while True:
            record = os.read(log, 8192).decode(errors="replace")  # "6,1234,5678901,-;NVRM: ..."
            head, _, text = record.partition(";")
            if KERNEL_LINES.search(text):
                age = uptime - int(head.split(",")[2]) / 1e6
                found.append({"age_s": round(age), "text": text.splitlines()[0][:300]})
    except (BlockingIOError, OSError, ValueError, IndexError):
        pass  # the end of what is there
    finally:
        os.close(log)
    return {"kernel_log": found[-KERNEL_LINES_KEPT:], "kernel_log_problem": ""}

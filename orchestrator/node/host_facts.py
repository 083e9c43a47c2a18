"""Part of the probe: account, interpreter, environment, room, and what runs there already.

Standard library only, Python 3.8 or newer, Linux.
"""

import importlib.util
import os
import platform
import pwd
import re
import socket
import sys
from typing import Any, Dict, List, Optional

from orchestrator.node.parts import read_text

ENV_KEPT = re.compile(
    r"(NCCL|GLOO|TORCH|PET|OMP|MKL|UCX|MASTER|DDP_ORCH|ROLE|CUDA|NVIDIA|TP)_|(LOCAL_|GROUP_)?(RANK|WORLD_SIZE)$|RES_OPTIONS$"
    r"|LD_(LIBRARY_PATH|PRELOAD)$|(VIRTUAL_ENV|CONDA_PREFIX|PYTHONPATH|PATH|TMPDIR)$"
)
ENV_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)


def account() -> Dict[str, Any]:
    """Say who is logged in, and on what system."""
    release = dict(re.findall(r'^(\w+)="?(.*?)"?$', read_text("/etc/os-release"), re.MULTILINE))
    return {
        "hostname": socket.gethostname(),
        "user": user_name(os.getuid()),
        "home": os.path.expanduser("~"),
        "kernel": platform.release(),
        "firewall": firewall(),
        "os": release.get("PRETTY_NAME", platform.system()),
    }


def firewall() -> str:
    """Name the tool that owns the firewall here, as far as an ordinary user can see, or ""."""
    if re.search("^ENABLED=yes", read_text("/etc/ufw/ufw.conf"), re.MULTILINE):
        return "ufw"
    return "firewalld" if os.path.exists("/run/firewalld.pid") else ""


def user_name(uid: int) -> str:
    """Return a user's name, or the number of one without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def python_and_torch() -> Dict[str, Any]:
    """Say which interpreter this is and what is installed for it; importing torch would take seconds."""
    packages: Dict[str, str] = {}
    pattern = re.compile(r"(torch\w*|nvidia_\w+|numpy|triton)-([^-]+)(-py[\d.]+)?\.(dist|egg)-info$")
    for folder in reversed(sys.path):  # what comes first on the path is what an import would find
        try:
            found = [pattern.match(name.replace("nvidia-", "nvidia_")) for name in os.listdir(folder or ".")]
        except OSError:
            continue
        packages.update({match.group(1).replace("_", "-"): match.group(2) for match in found if match})
    torch = module_version("torch")
    vision = module_version("torchvision")
    if torch:
        torch["torchrun"] = os.path.isfile(os.path.join(torch["path"], "distributed", "run.py"))
    if vision and vision["version"]:
        packages["torchvision"] = vision["version"]
    return {
        "python": {
            "executable": sys.executable,
            "version": platform.python_version(),
            "kind": "venv"
            if sys.prefix != sys.base_prefix
            else "conda"
            if os.path.isdir(sys.prefix + "/conda-meta")
            else "system",
        },
        "torch": torch,
        "packages": packages,
    }


def module_version(name: str) -> Optional[Dict[str, Any]]:
    """Read NAME/version.py as text; None when the module is not installed."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = next(iter(spec.submodule_search_locations))
    text = read_text(os.path.join(path, "version.py"))
    values = dict(re.findall(r"^(\w+)\s*(?::[^=\n]*)?=\s*['\"]([^'\"]*)['\"]", text, re.MULTILINE))
    return {
        "path": path,
        "version": values.get("__version__", ""),
        "cuda": values.get("cuda", ""),
        "hip": values.get("hip", ""),
        "git": values.get("git_version", ""),
    }


def environment() -> Dict[str, Any]:
    """Return the variables that training listens to, as the launch shell sets them, and NCCL's own files."""
    kept = {name: value[:4096] for name, value in os.environ.items() if ENV_KEPT.match(name)}
    files = {path: read_text(os.path.expanduser(path)).splitlines() for path in ("~/.nccl.conf", "/etc/nccl.conf")}
    return {
        "env": {name: value for name, value in kept.items() if not ENV_SECRET.search(name)},
        "nccl_conf": {path: lines for path, lines in files.items() if lines},
    }


def capacity() -> Dict[str, Any]:
    """Return the CPUs and the memory that a process of this login may use."""
    cpus = float(len(os.sched_getaffinity(0)))
    match = re.search(r"MemTotal:\s+(\d+) kB", read_text("/proc/meminfo"))
    memory = int(match.group(1)) * 1024 if match else 0
    group = re.search(r"^0::(/.*)$", read_text("/proc/self/cgroup"), re.MULTILINE)
    folder = (group.group(1) if group else "/").rstrip("/")
    while True:  # a limit of a group above holds for us too
        quota = read_text("/sys/fs/cgroup%s/cpu.max" % folder).split()
        if len(quota) == 2 and quota[0].isdigit():
            cpus = min(cpus, int(quota[0]) / int(quota[1]))
        limit = read_text("/sys/fs/cgroup%s/memory.max" % folder).strip()
        if limit.isdigit():
            memory = min(memory, int(limit))
        if not folder:
            break
        folder = folder.rpartition("/")[0]
    old = "/sys/fs/cgroup/"  # cgroup version 1, as a container sees it
    quota_v1, period_v1 = (read_text(old + "cpu/cpu.cfs_%s_us" % name).strip() for name in ("quota", "period"))
    if quota_v1.isdigit() and period_v1.isdigit():
        cpus = min(cpus, int(quota_v1) / int(period_v1))
    limit_v1 = read_text(old + "memory/memory.limit_in_bytes").strip()
    memory = min(memory, int(limit_v1)) if limit_v1.isdigit() else memory
    return {"cpu_count": max(1, int(cpus)), "memory_bytes": memory}


def place(path: str) -> Dict[str, Any]:
    """Say how much room there is at a path, and whether it can be made and written."""
    absolute = os.path.abspath(os.path.expanduser(path))
    nearest = absolute
    while not os.path.lexists(nearest) and nearest != "/":
        nearest = os.path.dirname(nearest)
    room = os.statvfs(nearest)
    return {
        "path": absolute,
        "nearest": nearest,
        "exists": nearest == absolute,
        "is_folder": os.path.isdir(nearest),
        "writable": os.access(nearest, os.W_OK | os.X_OK),
        "size_bytes": room.f_blocks * room.f_frsize,
        "free_bytes": room.f_bavail * room.f_frsize,
        "free_files": room.f_favail if room.f_files else None,  # btrfs and others have no fixed number
        "noexec": bool(room.f_flag & os.ST_NOEXEC),
    }


def running() -> List[Dict[str, Any]]:
    """Find the processes of ddp-orch runs that this login can see."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as stream:
                match = re.search(rb"(?:^|\0)DDP_ORCH_RUN=([^\0]*)", stream.read())
        except OSError:
            continue  # another user's, or gone
        if match:
            command = read_text("/proc/%s/cmdline" % pid).replace("\0", " ").strip()[:200]
            found.append({"pid": int(pid), "run": match.group(1).decode(errors="replace"), "command": command})
    return found[:200]

"""Part of the probe: account, interpreter, environment, room, and what runs there already.

Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import os
import re
import resource
import socket
import sys
import time

from orchestrator.node.parts import read_text, user_name

TYPE_CHECKING = False  # typing takes longer to import than all that is looked at
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

ENV_KEPT = re.compile(
    r"(NCCL|GLOO|TORCH|PET|OMP|MKL|UCX|MASTER|DDP_ORCH|ROLE|CUDA|NVIDIA|TP)_|(LOCAL_|GROUP_)?(RANK|WORLD_SIZE)$|RES_OPTIONS$"
    r"|LD_(LIBRARY_PATH|PRELOAD)$|(VIRTUAL_ENV|CONDA_PREFIX|PYTHONPATH|PATH|TMPDIR)$"
)
SYSTEM_LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
)
LIMITS = {"nofile": resource.RLIMIT_NOFILE, "memlock": resource.RLIMIT_MEMLOCK, "nproc": resource.RLIMIT_NPROC}
TRAINING = re.compile(
    r"python\S* .*(-m torch\.distributed\.(run|launch)|/(torchrun|deepspeed|horovodrun)|/accelerate launch)( |$)"
)
OLD_S = 600.0  # a run that is just being copied is not left over
# As in model/masking.py.
ENV_SECRET = re.compile(
    "TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|PRIVATE|SESSION|SIGNATURE|WEBHOOK|DSN|_PWD", re.IGNORECASE
)


def account() -> Dict[str, Any]:
    """Say who is logged in, and on what system."""
    release = dict(re.findall(r'^(\w+)="?(.*?)"?$', read_text("/etc/os-release"), re.MULTILINE))
    return {
        "hostname": socket.gethostname(),
        "user": user_name(os.getuid()),
        "home": os.path.expanduser("~"),
        "kernel": os.uname().release,
        "firewall": firewall(),
        "machine": machine(),
        "container": container(),
        "os": release.get("PRETTY_NAME", os.uname().sysname),
    }


def firewall() -> str:
    """Name the tool that owns the firewall here, as far as an ordinary user can see, or ""."""
    if re.search("^ENABLED=yes", read_text("/etc/ufw/ufw.conf"), re.MULTILINE):
        return "ufw"
    if os.path.exists("/run/firewalld.pid"):
        return "firewalld"
    places = [folder + name for folder in ("/usr/sbin/", "/sbin/") for name in ("nft", "iptables")]
    there = {os.path.basename(place) for place in places if os.path.exists(place)}
    return "iptables" if there == {"iptables"} else ""


def machine() -> str:
    """Return what two names of one machine have in common, and two containers on it do not."""
    try:  # containers may share the network, and each has its own file systems
        spaces = [os.readlink("/proc/self/ns/" + name) for name in ("net", "mnt")]
        return " ".join([read_text("/proc/sys/kernel/random/boot_id").strip(), *spaces])
    except OSError:
        return ""


def container() -> str:
    """Name what this is that is not a machine of its own: "docker", "podman", "lxc", "WSL", ... or ""."""
    if "microsoft" in os.uname().release.lower():
        return "WSL"
    for path, name in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman")):
        if os.path.exists(path):
            return name
    return read_text("/run/systemd/container").strip()


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
    nccl: Dict[str, Dict[str, Any]] = {}
    for folder in [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *SYSTEM_LIBRARIES]:
        path = os.path.join(folder, "libnccl.so.2")
        if folder and os.path.exists(path):
            real = os.path.realpath(path)  # libnccl.so.2.20.5
            nccl.setdefault(real, {"path": path, "version": real.partition(".so.")[2], "preferred": False})
            nccl[real]["preferred"] |= folder not in SYSTEM_LIBRARIES
    return {
        "python": {
            "executable": sys.executable,
            "version": "%d.%d.%d" % sys.version_info[:3],
            "kind": "venv"
            if sys.prefix != sys.base_prefix
            else "conda"
            if os.path.isdir(sys.prefix + "/conda-meta")
            else "system",
        },
        "torch": torch,
        "packages": packages,
        "other_nccl": list(nccl.values()),
        "torchrun": torchrun_on_path(),
    }


def torchrun_on_path() -> Dict[str, str]:
    """Say which torchrun a person would start here, and whose interpreter it names in its first line."""
    folders = [os.path.join(folder, "torchrun") for folder in os.environ.get("PATH", "").split(":")]
    path = next((one for one in folders if os.path.isfile(one) and os.access(one, os.X_OK)), "")
    if not path:
        return {}
    match = re.match(r"#!\s*(\S+)", read_text(path))
    places = {os.path.realpath(os.path.dirname(found)) for found in (match.group(1) if match else path, sys.executable)}
    return {"path": path, "interpreter": match.group(1) if match else "", "same": "yes" if len(places) == 1 else ""}


def missing_modules(names: List[str]) -> Dict[str, Any]:
    """Say which of these an import would not find."""
    found = {name for name in names if any(finder.find_spec(name, None) for finder in sys.meta_path)}
    return {"missing_modules": [name for name in names if name not in found]}


def module_version(name: str) -> Optional[Dict[str, Any]]:
    """Read NAME/version.py as text; None when the module is not installed."""
    found = (finder.find_spec(name, None) for finder in sys.meta_path)  # as import itself looks for it
    spec = next((one for one in found if one is not None), None)
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
    memory = meminfo("MemTotal")
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
    limits = {name: resource.getrlimit(number)[0] for name, number in LIMITS.items()}
    return {
        "cpu_count": max(1, int(cpus)),
        "memory_bytes": memory,
        "memory_free_bytes": min(memory, meminfo("MemAvailable")),
        "limits": {name: value if value != resource.RLIM_INFINITY else None for name, value in limits.items()},
        "listen_backlog": int(read_text("/proc/sys/net/core/somaxconn").strip() or 0),
        "ends_at_logout": ends_at_logout(),
    }


def meminfo(name: str) -> int:
    """Return one line of /proc/meminfo (bytes), 0 where it is not there."""
    match = re.search(r"%s:\s+(\d+) kB" % name, read_text("/proc/meminfo"))
    return int(match.group(1)) * 1024 if match else 0


def ends_at_logout() -> bool:
    """Tell that systemd ends this user's processes when the last login ends (KillUserProcesses, and no lingering)."""
    user = user_name(os.getuid())
    if not os.path.isdir("/run/systemd/system") or os.path.exists("/var/lib/systemd/linger/" + user):
        return False
    text = read_text("/etc/systemd/logind.conf")
    for folder in ("/usr/lib/systemd/logind.conf.d", "/run/systemd/logind.conf.d", "/etc/systemd/logind.conf.d"):
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            text += "\n" + read_text(os.path.join(folder, name))
    values = dict(
        re.findall(r"^\s*(KillUserProcesses|KillExcludeUsers|KillOnlyUsers)\s*=\s*(.*?)\s*$", text, re.MULTILINE)
    )
    if user in values.get("KillExcludeUsers", "root").split():
        return False
    only = values.get("KillOnlyUsers", "").split()
    return values.get("KillUserProcesses", "no").lower() in ("yes", "true", "on", "1") and (not only or user in only)


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


def running() -> Dict[str, Any]:
    """Find the processes of ddp-orch runs and of other trainings that this login can see."""
    runs, others, ticks = [], [], os.sysconf("SC_CLK_TCK")
    booted = time.time() - float(read_text("/proc/uptime").split()[0] or 0)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        command = read_text("/proc/%s/cmdline" % pid).replace("\0", " ").strip()[:200]
        variables = read_text("/proc/%s/environ" % pid)  # of our own processes only
        match = re.search(r"(?:^|\0)(DDP_ORCH_RUN|TORCHELASTIC_RUN_ID)=([^\0]*)", variables)
        if not match and not TRAINING.search(command):
            continue
        try:
            owner = user_name(os.stat("/proc/" + pid).st_uid)
            since = booted + int(read_text("/proc/%s/stat" % pid).rpartition(")")[2].split()[19]) / ticks
        except (OSError, IndexError, ValueError):
            continue  # gone
        about = {"pid": int(pid), "user": owner, "since_s": round(since), "command": command}
        if "DDP_ORCH_RUN=" in variables:
            name = re.search(r"(?:^|\0)DDP_ORCH_RUN=([^\0]*)", variables)
            runs.append(dict(about, run=name.group(1) if name else ""))
        else:
            others.append(about)
    return {"running": runs[:200], "trainings": others[:200]}


def leftovers(workdir: str) -> Dict[str, Any]:
    """Find what earlier runs left: shared memory that nobody has mapped, and folders of runs that never began."""
    shared = []
    for name in os.listdir("/dev/shm"):  # noqa: S108 - only looked at
        path = "/dev/shm/" + name  # noqa: S108
        if re.match(r"nccl-|torch_|cuda\.shm", name):
            about = os.lstat(path)
            if about.st_uid == os.getuid() and time.time() - about.st_mtime > OLD_S:
                shared.append((path, about.st_size))
    if shared:
        mapped = "".join(read_text("/proc/%s/maps" % pid, 1 << 22) for pid in filter(str.isdigit, os.listdir("/proc")))
        shared = [(path, size) for path, size in shared if path not in mapped]
    top = os.path.abspath(os.path.expanduser(workdir)) + "/runs"
    stale = []
    for run in sorted(os.listdir(top)) if os.path.isdir(top) else []:
        for host in os.listdir(top + "/" + run) if os.path.isdir(top + "/" + run) else []:
            folder = "%s/%s/%s" % (top, run, host)
            begun = os.path.exists(folder + "/state.json") or os.path.exists(folder + "/record.json")
            if os.path.isdir(folder) and not begun and time.time() - os.lstat(folder).st_mtime > OLD_S:
                stale.append(folder)
    return {"left_shared": [path for path, _ in shared][:1000], "left_shared_bytes": sum(size for _, size in shared),
            "left_folders": stale[:1000]}  # fmt: skip

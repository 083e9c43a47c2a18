"""Looks at one host and says what it saw, as one JSON object. Changes nothing.

Sent as a node program, it is told what to look at:
    {"workdir": "~/ddp-orch", "peers": ["192.168.20.44"], "gpus": true, "limit_s": 10}
After its answer it waits: a message {"then": NAME} that carries another node program makes this process that program
(port_trial.py), which saves the second start of an interpreter. It ends with its input.
Each part has its time limit: a device or file system that hangs costs that part, not the others.
Standard library only, Python 3.8 or newer, Linux.
"""

import errno
import functools
import importlib.util
import json
import os
import platform
import pwd
import queue
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

SCHEMA = 1
LOOKUP_LIMIT_S = 3.0  # a resolver that takes longer than this is as good as dead (glibc waits 10 s for it)
LOOKUPS = 3  # peers whose names are asked for: all go to one resolver, 63 questions would tell no more
TEXT_KEPT = 64 * 1024
ENV_KEPT = re.compile(
    r"(NCCL|GLOO|TORCH|PET|OMP|MKL|UCX|MASTER|DDP_ORCH|ROLE|CUDA|NVIDIA|TP)_|(LOCAL_|GROUP_)?(RANK|WORLD_SIZE)$|RES_OPTIONS$"
    r"|LD_(LIBRARY_PATH|PRELOAD)$|(VIRTUAL_ENV|CONDA_PREFIX|PYTHONPATH|PATH|TMPDIR)$"
)
ENV_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
SMI_FIELDS = "index,name,uuid,pci.bus_id,driver_version,memory.total,memory.used"  # every driver since 2013 knows them
SMI_PLACES = ":/usr/bin:/usr/lib/wsl/lib:/usr/local/nvidia/bin"  # WSL and GKE keep it off a bare login's PATH


def together(tasks: Dict[Any, Callable[[], Any]], limit_s: float) -> Tuple[Dict[Any, Any], Dict[Any, str]]:
    """Do all tasks at once; return the results, and why there is none for the others."""
    done: "queue.Queue[Tuple[Any, Any, str]]" = queue.Queue()

    def work(name: Any, task: Callable[[], Any]) -> None:
        try:
            done.put((name, task(), ""))
        except Exception as error:  # noqa: BLE001 - one part that fails must not take the others with it
            done.put((name, None, "%s: %s" % (type(error).__name__, error)))

    results: Dict[Any, Any] = {}
    problems: Dict[Any, str] = {}
    for name, task in tasks.items():
        threading.Thread(target=work, args=(name, task), daemon=True).start()
    end = time.monotonic() + limit_s
    while len(results) + len(problems) < len(tasks):
        try:
            name, result, problem = done.get(timeout=max(end - time.monotonic(), 0.001))
        except queue.Empty:
            break
        if problem:
            problems[name] = problem
        else:
            results[name] = result
    for name in tasks:
        if name not in results and name not in problems:
            problems[name] = "no answer within %.0f s" % limit_s
    return results, problems


def read_text(path: str) -> str:
    """Return the first 64 KiB of a file, "" where it cannot be read."""
    try:
        with open(path, errors="replace") as stream:
            return stream.read(TEXT_KEPT)
    except OSError:
        return ""


# --- the host itself ---------------------------------------------------------------------------------------------


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


def nvidia_smi(limit_s: float) -> Dict[str, Any]:
    """Ask nvidia-smi about each GPU; its words go back as they are, good or bad."""
    start = time.monotonic()
    answer: Dict[str, Any] = {"found": True, "code": None, "stdout": "", "stderr": ""}  # no code: no end in time
    try:
        process = subprocess.Popen(
            ["nvidia-smi", "--query-gpu=" + SMI_FIELDS, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=dict(os.environ, PATH=os.environ.get("PATH", "") + SMI_PLACES),
        )  # fmt: skip
    except OSError as error:
        return dict(answer, found=error.errno != errno.ENOENT, stderr=str(error), seconds=0.0)
    try:
        out, err = process.communicate(timeout=limit_s)
        answer["code"] = process.returncode
        answer["stdout"] = out.decode(errors="replace")[:TEXT_KEPT]
        answer["stderr"] = err.decode(errors="replace")[:TEXT_KEPT]
    except subprocess.TimeoutExpired:
        process.kill()  # and no wait: one that is stuck in the driver does not end
    return dict(answer, seconds=round(time.monotonic() - start, 3))


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


# --- names, interfaces and routes --------------------------------------------------------------------------------


def netlink(kind: int, body: bytes, *, dump: bool) -> Iterator[Tuple[bytes, Dict[int, bytes]]]:
    """Ask the kernel as the ip tool does (which may be missing); yield each answer's fixed part and attributes."""
    fixed_bytes = {18: 16, 22: 8, 26: 12}[kind]  # struct ifinfomsg, ifaddrmsg, rtmsg of <linux/rtnetlink.h>
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as ask:
        ask.settimeout(2)
        ask.send(struct.pack("=IHHII", 16 + len(body), kind, 0x301 if dump else 1, 1, 0) + body)
        while True:
            data = ask.recv(1 << 18)
            while data:
                size, answer = struct.unpack_from("=IH", data)
                if answer == 2:  # NLMSG_ERROR
                    number = -struct.unpack_from("=i", data, 16)[0]
                    raise OSError(number, os.strerror(number))
                if answer == 3:  # NLMSG_DONE
                    return
                attributes, at = {}, 16 + fixed_bytes
                while at + 4 <= size:
                    length, name = struct.unpack_from("=HH", data, at)
                    attributes[name] = data[at + 4 : at + length]
                    at += (max(length, 4) + 3) & ~3
                yield data[16 : 16 + fixed_bytes], attributes
                data = data[(size + 3) & ~3 :]
            if not dump:
                return


def address_text(data: bytes) -> str:
    """Return an address of 4 or 16 bytes as text."""
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)


def network(peers: List[str]) -> Dict[str, Any]:
    """List the interfaces, and for each peer the one that the kernel would use."""
    interfaces: Dict[int, Dict[str, Any]] = {}
    for fixed, attributes in netlink(18, struct.pack("=BxHiII", 0, 0, 0, 0, 0), dump=True):
        index, flags = struct.unpack_from("=iI", fixed, 4)
        interfaces[index] = {
            "name": attributes[3].rstrip(b"\0").decode(errors="replace"),
            "up": bool(flags & 0x1),
            "running": bool(flags & 0x40),
            "mtu": struct.unpack("=I", attributes[4])[0],
            "addresses": [],
        }
    for fixed, attributes in netlink(22, struct.pack("=BBBBi", 0, 0, 0, 0, 0), dump=True):
        index = struct.unpack_from("=i", fixed, 4)[0]
        if index in interfaces:
            interfaces[index]["addresses"].append(address_text(attributes.get(2) or attributes[1]))
    routes, problems = together({peer: functools.partial(route_to, peer, interfaces) for peer in peers}, 5)
    routes.update({peer: {"error": "the look-up of its name: " + problem} for peer, problem in problems.items()})
    ports = read_text("/proc/sys/net/ipv4/ip_local_port_range").split()
    return {"interfaces": list(interfaces.values()), "routes": routes, "ephemeral_ports": list(map(int, ports))}


def route_to(peer: str, interfaces: Dict[int, Dict[str, Any]]) -> Dict[str, Any]:
    """Say by which interface and with which own address a peer is reached."""
    try:
        family, _, _, _, where = socket.getaddrinfo(peer, None, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        return {"error": "the name %s is not known here (%s)" % (peer, error.strerror), "stage": "name"}
    data = socket.inet_pton(family, str(where[0]).partition("%")[0])
    body = struct.pack("=BBBBBBBBI", family, len(data) * 8, 0, 0, 0, 0, 0, 0, 0) + struct.pack("=HH", 4 + len(data), 1)
    try:
        for _, attributes in netlink(26, body + data, dump=False):
            index = struct.unpack("=I", attributes[4])[0] if 4 in attributes else 0
            return {
                "ip": where[0],
                "interface": interfaces.get(index, {}).get("name", ""),
                "source": address_text(attributes[7]) if 7 in attributes else "",
            }
    except OSError as error:
        return {"ip": where[0], "error": str(error.strerror), "stage": "route"}
    return {"ip": where[0], "error": "the kernel named no route", "stage": "route"}


def names(peers: List[str]) -> Dict[str, Any]:
    """Time the look-ups that gloo and torch's store make at each start."""

    def reverse(peer: str) -> float:
        start = time.monotonic()
        try:
            ip = str(socket.getaddrinfo(peer, None)[0][4][0])
            mapped = "::ffff:" + ip if "." in ip else ip  # so torch's store, listening on IPv6 for both, sees it
            socket.getnameinfo((mapped, 29500, 0, 0), socket.NI_NAMEREQD)
        except OSError:
            pass  # no name is as good an answer as a name; only the time matters
        return time.monotonic() - start

    tasks: Dict[Any, Callable[[], Any]] = {peer: functools.partial(reverse, peer) for peer in peers[:LOOKUPS]}
    tasks["own"] = functools.partial(socket.getaddrinfo, socket.gethostname(), None)
    results, problems = together(tasks, LOOKUP_LIMIT_S)
    seconds = [LOOKUP_LIMIT_S if peer in problems else results[peer] for peer in peers[:LOOKUPS]]
    return {
        "hostname_addresses": sorted({str(entry[4][0]) for entry in results.get("own", [])}),
        "name_lookup_s": round(max(seconds), 3) if seconds else None,
    }


# --- the conversation --------------------------------------------------------------------------------------------


def facts(order: Dict[str, Any]) -> Dict[str, Any]:
    """Collect everything at once, each part with its own time limit."""
    limit_s = float(order.get("limit_s", 10))
    peers = [str(peer) for peer in order.get("peers", [])]
    parts: Dict[Any, Callable[[], Any]] = {
        "account": account,
        "python": python_and_torch,
        "environment": environment,
        "capacity": capacity,
        "network": functools.partial(network, peers),
        "names": functools.partial(names, peers),
        "running": lambda: {"running": running()},
    }
    places = {"workdir": str(order["workdir"]), "tmp": "/tmp", "shm": "/dev/shm"}  # noqa: S108 - only looked at
    for name, path in places.items():
        parts["place:" + name] = functools.partial(place, path)
    if order.get("gpus"):
        parts["nvidia_smi"] = lambda: {"nvidia_smi": nvidia_smi(limit_s - 0.5)}
    results, problems = together(parts, limit_s)
    answer: Dict[str, Any] = {"schema": SCHEMA, "places": {}, "problems": problems}
    for name, result in results.items():
        if name.startswith("place:"):
            answer["places"][name[6:]] = result
        else:
            answer.update(result)
    return dict(answer, nvidia_driver=os.path.exists("/proc/driver/nvidia/version"), clock_s=time.time())


def main() -> None:
    """Answer, then become what is sent next, if anything is."""
    stream = sys.stdin.buffer
    order = json.loads(stream.readline())
    sys.stdout.write(json.dumps(facts(order)) + "\n")
    sys.stdout.flush()
    line = stream.readline()
    if line:
        order = json.loads(line)
        text = stream.read(int(order["payload"]))
        name = "ddp-orch-%s" % order["then"]
        exec(compile(text, name, "exec"), {"__name__": "__main__"})  # noqa: S102 - the controller's, as this one is


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # a part that still hangs must not keep the process

"""Looks at one host and says what it saw, as one JSON object. Changes nothing.

Sent as a node program, it is told what to look at:
    {"workdir": "~/ddp-orch", "peers": ["192.168.20.44"], "gpus": true, "data": ["MNIST/raw"],
     "modules": ["numpy"], "limit_s": 10}
After its answer it waits: a message {"then": NAME} that carries another node program makes this process that program
(port_trial.py), which saves the second start of an interpreter. It ends with its input.
Each part has its time limit: a device or file system that hangs costs that part, not the others.
Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time

from orchestrator.node import host_facts, network_facts
from orchestrator.node.parts import together

TYPE_CHECKING = False  # typing takes longer to import than all that is looked at
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

SCHEMA = 1


def facts(order: Dict[str, Any]) -> Dict[str, Any]:
    """Collect everything at once, each part with its own time limit."""
    limit_s = float(order.get("limit_s", 10))
    peers = [str(peer) for peer in order.get("peers", [])]
    parts: Dict[Any, Callable[[], Any]] = {
        "account": host_facts.account,
        "python": host_facts.python_and_torch,
        "environment": host_facts.environment,
        "capacity": host_facts.capacity,
        "network": functools.partial(network_facts.network, peers),
        "names": functools.partial(network_facts.names, peers),
        "running": host_facts.running,
        "leftovers": functools.partial(host_facts.leftovers, str(order["workdir"])),
    }
    places = {"workdir": str(order["workdir"]), "tmp": "/tmp", "shm": "/dev/shm"}  # noqa: S108 - only looked at
    for name, path in places.items():
        parts["place:" + name] = functools.partial(host_facts.place, path)
    if order.get("modules"):
        names = [str(name) for name in order["modules"]]
        parts["modules"] = functools.partial(host_facts.missing_modules, names)
    for path in order.get("data", []):
        from orchestrator.node import data_facts

        parts["data:" + str(path)] = functools.partial(data_facts.data_folder, str(path), str(order["workdir"]))
    if order.get("gpus"):
        from orchestrator.node import gpu_facts

        torch = host_facts.module_version("torch")
        parts["nvidia_smi"] = functools.partial(gpu_facts.smi_facts, limit_s - 0.5)
        parts["gpu_host"] = functools.partial(gpu_facts.beside_facts, torch["path"] if torch else "")
        parts["kernel_log"] = gpu_facts.kernel_log
        parts["gpu_watchers"] = gpu_facts.watchers
    results, problems = together(parts, limit_s)
    answer: Dict[str, Any] = {"schema": SCHEMA, "places": {}, "data": {}, "problems": problems}
    for name, result in results.items():
        if name.startswith("place:"):
            answer["places"][name[6:]] = result
        elif name.startswith("data:"):
            answer["data"][name[5:]] = result
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

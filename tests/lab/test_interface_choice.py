"""What ddp-orch predicts of gloo's choice, against what gloo really does on a host, in every variant."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from orchestrator.model.facts import facts_from_json
from orchestrator.model.network_choice import gloo_choice, training_address
from orchestrator.transport.connect import Connector
from orchestrator.transport.node_program import Conversation

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.lab import Lab
    from orchestrator.model.facts import Facts

pytestmark = [pytest.mark.lab, pytest.mark.torch]

# gloo's device listens where its peers will be told to connect; torch loads once for all variants.
ASK_GLOO = """
import datetime, json, os, subprocess, sys, torch.distributed as dist
def listens():
    folder = "/proc/self/fd/"
    own = {os.readlink(folder + fd) for fd in os.listdir(folder) if os.path.lexists(folder + fd)}
    found = []
    for table in ("tcp", "tcp6"):
        for line in open("/proc/net/" + table).read().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and "socket:[%s]" % fields[9] in own:
                found.append(fields[1].rpartition(":")[0])
    return found
def text(address):
    import socket, struct
    if len(address) == 8:
        return socket.inet_ntop(socket.AF_INET, struct.pack("=I", int(address, 16)))
    words = [int(address[at:at + 8], 16) for at in range(0, 32, 8)]
    return socket.inet_ntop(socket.AF_INET6, struct.pack("=4I", *words))
for line in sys.stdin:
    variant = json.loads(line)
    subprocess.run(variant["do"], shell=True, check=True)
    os.environ.pop("GLOO_SOCKET_IFNAME", None)
    os.environ.update(variant["env"])
    try:
        group = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, datetime.timedelta(seconds=10))
        print(json.dumps([text(one) for one in listens()]), flush=True)
        del group
    except RuntimeError as error:
        print(json.dumps(str(error).splitlines()[0]), flush=True)
    sys.stdin.readline()
"""
HOSTS = "cp /etc/hosts /tmp/h; printf '127.0.0.1 localhost\\n{}\\n' > /etc/hosts"
VETH = (
    "ip link add {0} type veth peer name p{0} && ip link set p{0} up && ip link set {0} up "
    "&& ip address add {1} dev {0}"
)
MEND = "test ! -e /tmp/h || cat /tmp/h > /etc/hosts; ip link del eno8; ip link del eno9; true"
VARIANTS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("as it is", "true", {}),
    ("127.0.1.1", HOSTS.format("127.0.1.1 node43"), {}),
    ("name unknown", HOSTS.format(""), {}),
    ("an address that is not there", HOSTS.format("10.99.0.1 node43"), {}),
    ("one that is not there before one that is", HOSTS.format("10.99.0.1 node43\\nOWN node43"), {}),
    ("IPv6 of loopback", HOSTS.format("::1 node43"), {}),
    ("another interface named", VETH.format("eno9", "172.19.4.1/24"), {"GLOO_SOCKET_IFNAME": "eno9"}),
    ("the same named", "true", {"GLOO_SOCKET_IFNAME": "eth0"}),
    ("one that is not there named", "true", {"GLOO_SOCKET_IFNAME": "eth7"}),
    ("IPv6 only on the one named", VETH.format("eno8", "fd00:8::1/64 nodad"), {"GLOO_SOCKET_IFNAME": "eno8"}),
)


def seen(lab: Lab, env: dict[str, str]) -> Facts:
    """The facts of node43, with the variables that gloo has."""
    from orchestrator.inventory_file import load_inventory

    inventory = load_inventory(lab.inventory_path)
    connector = Connector(environ={**os.environ, "DDP_ORCH_SSH_CONFIG": str(lab.ssh_config_path)})
    try:
        with Conversation(connector.connect(inventory.hosts[0]), "probe") as talk:
            body = talk.ask({"workdir": "/tmp", "peers": [lab.hosts["node44"].address]}, timeout_s=20)
    finally:
        connector.close()
    return facts_from_json({**body, "env": {**body["env"], **env}})


def test_gloo_takes_what_was_predicted_in_every_variant(make_lab: Callable[..., Lab]) -> None:
    import subprocess

    from orchestrator.inventory_file import load_inventory

    lab = make_lab(2)
    host = load_inventory(lab.inventory_path).hosts[0]
    own = lab.hosts["node43"].address
    argv = lab.exec("node43", [host.python, "-c", ASK_GLOO])
    gloo = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert gloo.stdin is not None
    assert gloo.stdout is not None
    try:
        for name, do, env in VARIANTS:
            gloo.stdin.write(json.dumps({"do": do.replace("OWN", own), "env": env}) + "\n")
            gloo.stdin.flush()
            real = json.loads(gloo.stdout.readline())
            facts = seen(lab, env)
            _, predicted = gloo_choice(facts, env.get("GLOO_SOCKET_IFNAME", ""))
            if isinstance(real, str):
                assert predicted == "", f"{name}: gloo says {real}"
            else:
                assert predicted in real, f"{name}: gloo listens on {real}"
            # What `run` sets is right whatever the host's name means.
            if not env:
                assert training_address(host, facts, "gloo") == ("eth0", own), name
            lab.run(
                "node43",
                "sh",
                "-c",
                "test ! -e /tmp/h || cat /tmp/h > /etc/hosts; ip link del eno8; ip link del eno9; true",
                check=False,
            )
            gloo.stdin.write("\n")
            gloo.stdin.flush()
    finally:
        gloo.communicate(timeout=30)

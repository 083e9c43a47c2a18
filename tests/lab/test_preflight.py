"""Every fault that virtual hosts can show: seen by preflight for the right reason, and gone again when it is mended."""
# ruff: noqa: E501 - commands in a table are read across

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.lab import Lab

pytestmark = pytest.mark.lab
ROOT = Path(__file__).parents[2]
TABLE = "nft add table inet t && nft add chain inet t {hook} '{{ type filter hook {hook} priority 0; }}'"
SYN = "tcp flags & (syn | ack) == syn"  # a connection that begins, not the answers to those of the other direction
EPHEMERAL = "tcp dport 32768-60999"
UNBLOCK = "nft delete table inet t"


@dataclass(frozen=True)
class Fault:
    """A way to break a host, and what preflight must say of it."""

    name: str
    host: str
    breaking: str
    mending: str
    check: str
    severity: str
    words: tuple[str, ...]
    at: str = ""  # the host that is named, if it is another
    options: tuple[str, ...] = ()
    also: tuple[str, ...] = field(default=())  # checks that rightly say something too


def rule(what: str, hook: str = "input") -> str:
    return f"{TABLE.format(hook=hook)} && nft add rule inet t {hook} '{what}'"


FAULTS = (
    Fault("ports dropped on the way in", "node44", rule(f"{SYN} {EPHEMERAL} drop"), UNBLOCK, "hosts_reach_each_other",
          "failure", ("node43 to node44", "no answer: a firewall drops it", "32768-60999"), also=("link_speed",)),
    Fault("ports rejected by ICMP", "node44", rule(f"{SYN} {EPHEMERAL} reject"), UNBLOCK, "hosts_reach_each_other",
          "failure", ("refused, while our listener was there",), also=("link_speed",)),
    Fault("ports reset", "node44", rule(f"{SYN} {EPHEMERAL} reject with tcp reset"), UNBLOCK,
          "hosts_reach_each_other", "failure", ("a firewall rejects it",), also=("link_speed",)),
    Fault("ports prohibited as firewalld does", "node43", rule(f"{SYN} {EPHEMERAL} reject with icmpx admin-prohibited"),
          UNBLOCK, "hosts_reach_each_other", "failure", ("node44 to node43", "no route to host: a firewall prohibits"),
          also=("link_speed",)),
    Fault("ports dropped on the way out", "node43", rule(f"{SYN} ip daddr NODE44 {EPHEMERAL} drop", "output"), UNBLOCK,
          "hosts_reach_each_other", "failure", ("node43 to node44",), at="node43", also=("link_speed",)),
    Fault("a part of the ports open", "node44", rule(f"{SYN} tcp dport 42300-60999 drop"), UNBLOCK,
          "hosts_reach_each_other", "failure", ("takes connections on port", "a part of 32768-60999")),
    Fault("only the rendezvous port dropped", "node43", rule(f"{SYN} ip saddr NODE44 tcp dport 29500 drop"), UNBLOCK,
          "port_is_reachable", "failure", ("no answer: a firewall drops it",), at="node44"),
    Fault("large packets lost", "node44", rule("ip saddr NODE43 meta length > 1400 drop"), UNBLOCK,
          "hosts_reach_each_other", "failure", ("64 KiB do not arrive", "mtu"),
          also=("link_speed", "port_is_reachable")),
    Fault("no route to the other host", "node43", "ip route add unreachable NODE44/32", "ip route del unreachable NODE44/32",
          "one_way_to_peers", "failure", ("no way to",), also=("hosts_reach_each_other", "link_speed",
                                                            "port_is_reachable", "interfaces_chosen")),
    Fault("own name means 127.0.1.1", "node44", "cp /etc/hosts /tmp/h && echo '127.0.1.1 node44' > /etc/hosts",
          "cat /tmp/h > /etc/hosts", "interfaces_chosen", "handled", ("gloo would use 127.0.1.1",)),
    Fault("own name unknown", "node43", "cp /etc/hosts /tmp/h && echo '127.0.0.1 localhost' > /etc/hosts",
          "cat /tmp/h > /etc/hosts", "interfaces_chosen", "handled", ("the name node43 is not known there",)),
    Fault("a bridge of docker compose", "node44",
          "ip link add br-5f3a type veth peer name p0 && ip link set p0 up && ip address add 172.18.0.1/16 dev br-5f3a && ip link set br-5f3a up",
          "ip link del br-5f3a", "interfaces_chosen", "handled", ("NCCL would use br-5f3a (172.18.0.1)",)),
    Fault("two interfaces in one network", "node43",
          "ip link add eth9 type veth peer name p9 && ip link set p9 up && ip address add NET.201/23 dev eth9 && ip link set eth9 up", "ip link del eth9",
          "networks_distinct", "warning", ("eth0", "eth9", "both lead to the other hosts"), also=("interfaces_chosen",)),
    Fault("a variable that names no interface", "node44",
          "echo 'export GLOO_SOCKET_IFNAME=enp1s0' > /root/.bashrc", ": > /root/.bashrc", "interface_variables",
          "failure", ("GLOO_SOCKET_IFNAME=enp1s0", "login shell"), also=("environment_matches", "link_speed")),
    Fault("flags of another run left over", "node44", "echo 'export PET_NNODES=7 MASTER_PORT=1' > /root/.bashrc",
          ": > /root/.bashrc", "environment_clean", "handled", ("MASTER_PORT=1, PET_NNODES=7",)),
    Fault("a variable set on one host only", "node44", "echo 'export TORCH_ALLOW_TF32=1' > /root/.bashrc",
          ": > /root/.bashrc", "environment_matches", "warning", ("TORCH_ALLOW_TF32=1", "not set, as on node43")),
    Fault("few open files", "node43", "echo 'ulimit -n 200' > /root/.bashrc", ": > /root/.bashrc", "limits",
          "failure", ("200 open files",)),
    Fault("little shared memory", "node44", "mount -o remount,size=4m /dev/shm", "mount -o remount,size=512m /dev/shm",
          "room", "failure", ("/dev/shm",)),
    Fault("no room in the work folder", "node43", "mkdir -p /root/ddp-orch && mount -t tmpfs -o size=20m t /root/ddp-orch",
          "umount /root/ddp-orch", "room", "failure", ("20 MiB free in /root/ddp-orch",)),
    Fault("a read-only work folder", "node44", "mkdir -p /root/ddp-orch && mount -t tmpfs -o ro t /root/ddp-orch",
          "umount /root/ddp-orch", "workdir_is_writable", "failure", ("/root/ddp-orch",)),
    Fault("data that differs", "node44", "mkdir -p /srv/set && echo other > /srv/set/a.bin", "echo data > /srv/set/a.bin",
          "data_is_there", "failure", ("1 file, 6 bytes", "1 file, 5 bytes", "on node43"), options=("--data", "/srv/set")),
    Fault("data that is missing", "node43", "mv /srv/set /srv/away", "mv /srv/away /srv/set", "data_is_there", "failure",
          ("/srv/set is not there",), options=("--data", "/srv/set")),
    Fault("shared memory of a killed run", "node43",
          "head -c 70000000 /dev/zero > /dev/shm/nccl-Ab12 && touch -d '1 hour ago' /dev/shm/nccl-Ab12",
          "rm /dev/shm/nccl-Ab12", "nothing_left", "warning", ("1 unused file", "66 MiB")),
)  # fmt: skip


def ddp(*words: str, text: str = "", timeout: float = 60) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "orchestrator.cli", *words]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout, env=environ, input=text)


def findings(*options: str) -> list[dict[str, Any]]:
    """What preflight says that is not ok; that the lab has no way to the data set's server is known."""
    done = ddp("preflight", "--json", *options)
    assert done.returncode in (0, 4, 5), done.stderr
    found = json.loads(done.stdout)["findings"]
    way = [one for one in found if one["severity"] not in ("ok", "skipped")]
    return [one for one in way if one["check"] != "data_is_there" or "no way to the internet" not in one["seen"]]


@pytest.fixture(scope="module")
def hosts(module_lab: Lab) -> Lab:
    for host in module_lab.hosts:
        module_lab.run(host, "sh", "-c", "mkdir -p /srv/set && echo data > /srv/set/a.bin; touch /root/.bashrc")
    return module_lab


@pytest.fixture
def lab(hosts: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("DDP_ORCH_INVENTORY", str(hosts.inventory_path))
    monkeypatch.setenv("DDP_ORCH_SSH_CONFIG", str(hosts.ssh_config_path))
    return hosts


def shell(lab: Lab, host: str, command: str) -> None:
    for name, known in lab.hosts.items():
        command = command.replace(name.upper(), known.address)
    net = next(iter(lab.hosts.values())).address.rpartition(".")[0]
    lab.run(host, "sh", "-c", command.replace("NET", net))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_named_and_its_mending_is_seen(lab: Lab, fault: Fault) -> None:
    shell(lab, fault.host, fault.breaking)
    try:
        broken = findings(*fault.options)
    finally:
        shell(lab, fault.host, fault.mending)
    named = [one for one in broken if one["check"] == fault.check]
    assert named, broken
    told = " | ".join(f"{one['seen']} {one['wanted']} {one['try_this']}" for one in named)
    for words in fault.words:
        assert words in told
    assert fault.severity in {one["severity"] for one in named}
    if not fault.at:
        assert fault.host in {one["host"] for one in named}
    assert {one["check"] for one in broken} <= {fault.check, *fault.also}, broken
    assert findings(*fault.options) == []


def test_a_host_without_a_cable_hides_nothing_and_costs_no_more_than_the_deadline(lab: Lab) -> None:
    lab.cut("node44")
    start = time.monotonic()
    try:
        done = ddp("preflight", "--json", "--timeout", "10")
    finally:
        lab.heal("node44")
    assert time.monotonic() - start < 15
    assert done.returncode == 4
    found = json.loads(done.stdout)["findings"]
    assert {one["host"] for one in found if one["severity"] == "failure"} == {"node44"}
    assert any(one["check"] == "torch_installed" and one["host"] == "node43" for one in found)


def test_a_taken_port_is_named_with_its_holder(lab: Lab) -> None:
    hold = (
        "import socket,time; s=socket.socket(); s.bind(('',29500)); s.listen(); print('up',flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(
        lab.exec("node43", ["python3", "-c", hold], user="trainer"), stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "up\n"
        (found,) = [one for one in findings() if one["severity"] == "failure"]
    finally:
        lab.run("node43", "sh", "-c", "kill $(ss -tlnpH 'sport = :29500' | grep -o 'pid=[0-9]*' | cut -d= -f2)")
        holder.communicate(timeout=10)
    assert (found["check"], found["host"]) == ("port_is_free", "node43")
    assert "taken by trainer, pid" in found["seen"]


def test_a_training_that_ddp_orch_did_not_start_is_named_with_its_owner_and_age(lab: Lab) -> None:
    argv = lab.exec("node44", ["env", "TORCHELASTIC_RUN_ID=x", "sleep", "60"])
    other = subprocess.Popen(argv)
    try:
        time.sleep(0.5)
        (found,) = findings()
    finally:
        lab.run(
            "node44",
            "sh",
            "-c",
            "for p in /proc/[0-9]*; do grep -qz TORCHELASTIC_RUN_ID=x $p/environ 2>/dev/null && kill ${p#/proc/}; done; true",
        )
        other.wait(10)
    assert (found["check"], found["host"], found["severity"]) == ("no_other_training", "node44", "warning")
    assert "of root since 20" in found["seen"]
    assert "sleep 60" in found["seen"]


def test_a_hanging_nvidia_smi_is_that_hosts_trouble_alone(lab: Lab, tmp_path: Path) -> None:
    stand_in = (
        "printf '#!/bin/sh\\nexec sleep 60\\n' > /usr/local/bin/nvidia-smi && chmod 755 /usr/local/bin/nvidia-smi"
    )
    shell(lab, "node44", stand_in)
    gpus = tmp_path / "gpus.yaml"
    gpus.write_text(lab.inventory_path.read_text() + "    gpus: 1\n")
    try:
        start = time.monotonic()
        found = findings("-i", str(gpus), "--timeout", "8")
    finally:
        shell(lab, "node44", "rm /usr/local/bin/nvidia-smi")
    assert time.monotonic() - start < 12
    (silent,) = [one for one in found if one["check"] == "gpus_answer"]
    assert silent["host"] == "node44"
    assert "no answer" in silent["seen"]


def test_fix_removes_what_earlier_runs_left_and_only_after_asking(lab: Lab) -> None:
    stale = "/root/ddp-orch/runs/20260101-000000-abcd/node44"
    live = "/root/ddp-orch/runs/20260101-000000-ffff/node44"
    shell(lab, "node44", f"mkdir -p {stale}/work {live} && touch {stale}/work/a {live}/state.json && "
          f"touch -d '1 hour ago' {stale} {live} && head -c 70000000 /dev/zero > /dev/shm/torch_7 && "
          "touch -d '1 hour ago' /dev/shm/torch_7")  # fmt: skip
    there = f"ls -d {stale} {live} /dev/shm/torch_7; true"
    refused = ddp("preflight", "--fix", text="n\n")
    assert "left over: " in refused.stderr
    assert set(lab.run("node44", "sh", "-c", there).split()) == {stale, live, "/dev/shm/torch_7"}
    done = ddp("preflight", "--fix", text="y\n")
    assert "node44: removed 2" in done.stderr
    assert "nothing left over" in " ".join(done.stdout.split())
    assert lab.run("node44", "sh", "-c", f"{there} 2>/dev/null").split() == [live]
    shell(lab, "node44", "rm -rf /root/ddp-orch/runs")


def test_fix_shows_an_unknown_key_and_writes_it_when_told(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("".join(line for line in lab.known_hosts_path.read_text().splitlines(keepends=True)
                             if lab.hosts["node44"].address not in line))  # fmt: skip
    config = tmp_path / "ssh_config"
    config.write_text(lab.ssh_config_path.read_text().replace(str(lab.known_hosts_path), str(known)))
    monkeypatch.setenv("DDP_ORCH_SSH_CONFIG", str(config))
    refused = ddp("preflight", "--fix", text="n\n")
    assert refused.returncode == 4, refused.stderr
    assert "shows the key SHA256:" in refused.stderr
    done = ddp("preflight", "--fix", text="y\n")
    assert done.returncode == 0, done.stdout
    assert lab.hosts["node44"].address in known.read_text()


def test_what_is_ignored_does_not_count(lab: Lab) -> None:
    shell(lab, "node44", "mount -o remount,size=4m /dev/shm")
    try:
        assert ddp("preflight").returncode == 5
        assert ddp("preflight", "--ignore", "room@node43").returncode == 5
        done = ddp("preflight", "--ignore", "room@node44")
        assert done.returncode == 0
        assert "ignored: 4 MiB free in /dev/shm" in done.stdout
        assert ddp("preflight", "--skip", "room").returncode == 0
        only = json.loads(ddp("preflight", "--only", "room,limits", "--json").stdout)["findings"]
        assert {one["check"] for one in only} == {"room", "limits"}
    finally:
        shell(lab, "node44", "mount -o remount,size=512m /dev/shm")


def left_on(lab: Lab) -> dict[str, str]:
    """What a look leaves on the hosts: programs of ours, and listeners beside sshd."""
    return {host: lab.run(host, "sh", "-c", "ps -eo args | grep ddp-orch- | grep -v grep; ss -tlnH | grep -v ':22 '; true")
            for host in lab.hosts}  # fmt: skip


def test_nothing_is_left_on_the_hosts_also_when_the_controller_is_killed_in_the_middle(lab: Lab) -> None:
    assert ddp("preflight").returncode == 0
    assert set(left_on(lab).values()) == {""}
    shell(lab, "node44", rule(f"{SYN} {EPHEMERAL} drop"))  # so that it stays in the middle for three seconds
    argv = [sys.executable, "-m", "orchestrator.cli", "preflight"]
    looking = subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 20
        while "29500" not in left_on(lab)["node43"]:
            assert time.monotonic() < end
        looking.send_signal(signal.SIGKILL)
        looking.wait(10)
    finally:
        shell(lab, "node44", UNBLOCK)
    end = time.monotonic() + 5
    while set(left_on(lab).values()) != {""}:
        assert time.monotonic() < end, left_on(lab)
        time.sleep(0.1)


def test_a_dead_name_server_is_told_and_handled(make_lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch) -> None:
    silent = make_lab(2, resolver="silent")
    monkeypatch.setenv("DDP_ORCH_INVENTORY", str(silent.inventory_path))
    monkeypatch.setenv("DDP_ORCH_SSH_CONFIG", str(silent.ssh_config_path))
    found = findings()
    assert {(one["check"], one["severity"]) for one in found} == {("names_answer_fast", "handled")}
    assert {one["host"] for one in found} == set(silent.hosts)

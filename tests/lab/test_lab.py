"""The virtual hosts themselves: are they like real ones, and is nothing left of them?"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import LabError
from orchestrator.lab import Lab
from orchestrator.lab import network as lab_network
from orchestrator.lab.lab import leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.lab


def ssh(lab: Lab, host: str, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    argv = ["ssh", "-F", str(lab.ssh_config_path), "-o", "StrictHostKeyChecking=yes", *options, host, command]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)


@pytest.fixture
def small_lab() -> Iterator[Lab]:
    lab = Lab.up(2, name="small", subnet="10.77.31.0/24", first=11, disk="64m")
    yield lab
    Lab.down("small")


def test_openssh_itself_reaches_every_host_with_the_written_keys(lab_two: Lab) -> None:
    for name, host in lab_two.hosts.items():
        assert ssh(lab_two, name, "hostname").stdout == f"{name}\n"
        assert ssh(lab_two, host.address, "hostname").stdout == f"{name}\n"


def test_a_host_is_a_machine_of_its_own(lab_two: Lab) -> None:
    seen = lab_two.run(
        "node43", "sh", "-c", "cat /proc/1/comm; ls -A /tmp /dev/shm; hostname; ls /home; ls -A /root/.ssh"
    )
    assert seen.split() == ["sh", "/dev/shm:", "/tmp:", "node43", "trainer", "authorized_keys"]
    pids = lab_two.run("node43", "sh", "-c", "ls -d /proc/[0-9]* | wc -l")
    assert int(pids) < 10


def test_hosts_see_each_other_and_nothing_else(lab_two: Lab) -> None:
    reach = "import socket, sys; socket.create_connection((sys.argv[1], 22), 3); print('in')"
    assert lab_two.run("node43", sys.executable, "-c", reach, "node44") == "in\n"
    out = lab_two.run("node43", sys.executable, "-c", reach, "10.200.1.1", check=False)
    assert out == ""
    assert "default" not in lab_two.run("node43", "ip", "route")


def test_an_ordinary_user_can_use_the_interpreter(lab_two: Lab) -> None:
    version = "import importlib.metadata as m, getpass; print(getpass.getuser(), m.version('fabric')[:2])"
    done = ssh(lab_two, "node44", f'{sys.executable} -c "{version}"', "-l", "trainer")
    assert done.stdout == "trainer 3.\n", done.stderr
    assert ssh(lab_two, "node44", "touch /etc/x", "-l", "trainer").returncode != 0


def test_a_full_disk_fills_one_host_only(small_lab: Lab) -> None:
    fill = "dd if=/dev/zero of=/var/fill bs=1M count=200 2>&1; df --output=pcent / | tail -1"
    assert "100%" in small_lab.run("node11", "sh", "-c", fill)
    assert "100%" not in small_lab.run("node12", "sh", "-c", "df --output=pcent / | tail -1")
    assert small_lab.run("node12", "sh", "-c", "echo fine > /var/file; cat /var/file") == "fine\n"


LISTEN = """
import socket, sys
server = socket.create_server(("0.0.0.0", 7000))
print("up", flush=True)
connection, _ = server.accept()
while data := connection.recv(65536):
    connection.sendall(data)
"""


def connected(lab: Lab, host: str) -> tuple[socket.socket, subprocess.Popen[str]]:
    """Connect from this machine to a program on a host."""
    argv = lab.exec(host, [sys.executable, "-c", LISTEN])
    server = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdout.readline() == "up\n"
    connection = socket.create_connection((lab.hosts[host].address, 7000), 5)
    connection.sendall(b"x")
    assert connection.recv(10) == b"x"
    return connection, server


def test_a_power_cut_is_silent_and_the_disk_comes_back(lab_two: Lab) -> None:
    lab_two.run("node44", "sh", "-c", "echo kept > /var/kept; echo lost > /tmp/lost")
    connection, server = connected(lab_two, "node44")
    lab_two.kill("node44")
    server.wait(10)
    assert lab_two.status()["node44"]["power"] == "off"
    connection.settimeout(2)
    with pytest.raises(TimeoutError):
        connection.recv(10)  # no FIN, no RST: what a peer sees of a machine without power
    connection.close()
    with pytest.raises(LabError, match="node44 is switched off"):
        lab_two.run("node44", "true")
    lab_two.start("node44")
    assert lab_two.run("node44", "sh", "-c", "cat /var/kept; ls -A /tmp") == "kept\n"
    assert ssh(lab_two, "node44", "hostname").stdout == "node44\n"
    if server.stdout is not None:
        server.stdout.close()


def test_a_cable_that_is_pulled_and_plugged_in_again_carries_on(lab_two: Lab) -> None:
    connection, server = connected(lab_two, "node43")
    lab_two.cut("node43")
    assert lab_two.status()["node43"]["cable"] == "cut"
    connection.sendall(b"while cut")
    connection.settimeout(1)
    with pytest.raises(TimeoutError):
        connection.recv(10)
    lab_two.heal("node43")
    connection.settimeout(20)
    assert connection.recv(20) == b"while cut"
    connection.close()
    server.wait(10)
    if server.stdout is not None:
        server.stdout.close()


def test_a_link_can_be_made_slow(lab_two: Lab) -> None:
    def seconds() -> float:
        argv = ["ssh", "-F", str(lab_two.ssh_config_path), "node43", "cat > /dev/null"]
        started = time.perf_counter()
        subprocess.run(argv, input=bytes(4 << 20), check=True, timeout=60)
        return time.perf_counter() - started

    free = min(seconds(), seconds())
    lab_two.rate("node43", "8mbit")
    try:
        assert lab_two.status()["node43"]["rate"] == "8mbit"
        assert seconds() > 2 * free
    finally:
        lab_two.rate("node43", "off")
    assert lab_two.status()["node43"]["rate"] == ""


def test_a_subnet_in_use_is_refused(lab_two: Lab) -> None:
    with pytest.raises(LabError, match=r"this machine already has 192\.168\.20\.0/24"):
        Lab.up(1, name="second", subnet="192.168.0.0/16", first=99)
    with pytest.raises(LabError, match=r"127\.0\.0\."):
        Lab.up(1, name="second", subnet="127.0.0.0/24", first=99)
    assert lab_two.name in Lab.names()
    assert "second" not in Lab.names()


def test_two_labs_stand_side_by_side(lab_two: Lab, small_lab: Lab) -> None:
    assert ssh(small_lab, "node11", "hostname").stdout == "node11\n"
    assert ssh(lab_two, "node43", "hostname").stdout == "node43\n"
    Lab.down("small")
    assert ssh(lab_two, "node43", "hostname").stdout == "node43\n"


@pytest.mark.parametrize("broken", ["plug_in", "make_bridge"])
def test_a_lab_that_fails_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    real = getattr(lab_network, broken)
    calls = []

    def fails_in_the_end(*args: object) -> None:
        calls.append(args)
        real(*args)
        if broken == "make_bridge" or len(calls) == 2:
            raise LabError("it broke")

    before = set(leftovers())
    monkeypatch.setattr(lab_network, broken, fails_in_the_end)
    with pytest.raises(LabError, match="it broke"):
        Lab.up(2, name="half", subnet="10.77.32.0/24")
    assert set(leftovers()) == before
    assert "half" not in Lab.names()


def test_down_cleans_up_after_a_lab_whose_maker_was_killed() -> None:
    code = (
        "import os, signal\nfrom orchestrator.lab import Lab, lab\n"
        "lab.Lab._await_sshd = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Lab.up(2, name='killed', subnet='10.77.33.0/24')"
    )
    before = set(leftovers())
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert set(leftovers()) > before
    Lab.down("killed")
    assert set(leftovers()) == before
    Lab.down("killed")  # twice is fine


def test_a_name_server_can_be_silent() -> None:
    lab = Lab.up(1, name="silent", subnet="10.77.34.0/24", resolver="silent")
    try:
        look = "import socket, time; t=time.monotonic()\ntry: socket.gethostbyname('a.example')\nexcept OSError: pass\n"
        host = next(iter(lab.hosts))
        env = ["env", "RES_OPTIONS=timeout:1 attempts:1", sys.executable, "-c", look + "print(time.monotonic()-t)"]
        assert float(lab.run(host, *env)) > 0.9
    finally:
        Lab.down("silent")


def test_names_look_up_fast_where_the_name_server_refuses(lab_two: Lab) -> None:
    look = "import socket, time; t=time.monotonic()\ntry: socket.gethostbyname('a.example')\nexcept OSError: pass\n"
    assert float(lab_two.run("node43", sys.executable, "-c", look + "print(time.monotonic()-t)")) < 0.9


def test_an_ordinary_user_is_told_what_virtual_hosts_need() -> None:
    code = (
        "import os; os.setuid(65534)\nfrom orchestrator.errors import LabError\nfrom orchestrator.lab import Lab\n"
        "try: Lab.up(1, name='x')\nexcept LabError as error: print(error)"
    )
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    if "Permission" not in done.stderr:  # the checkout itself may be closed to others
        assert done.stdout == "virtual hosts need root: they are made of namespaces and mounts\n", done.stderr


def test_a_host_that_is_not_in_the_lab_is_named_as_such(lab_two: Lab) -> None:
    with pytest.raises(LabError, match="there is no host 'node99' in this lab") as caught:
        lab_two.cut("node99")
    assert caught.value.try_this == "one of node43, node44"

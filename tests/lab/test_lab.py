"""The virtual hosts themselves: are they like real ones, and is nothing left of them?"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.errors import LabError
from orchestrator.lab import Lab, boot, client_files, network, places
from orchestrator.lab.places import leftovers

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.lab


def ssh(lab: Lab, host: str, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    argv = ["ssh", "-F", str(lab.ssh_config_path), "-o", "StrictHostKeyChecking=yes", *options, host, command]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)


def cli(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "orchestrator.cli", "lab", *words]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, env=env)


@pytest.fixture
def small_lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab(2, first=11, disk="64m")


def test_openssh_itself_reaches_every_host_with_the_written_keys(lab_two: Lab) -> None:
    for name, host in lab_two.hosts.items():
        assert ssh(lab_two, name, "hostname").stdout == f"{name}\n"
        assert ssh(lab_two, host.address, "hostname").stdout == f"{name}\n"


def test_a_host_is_a_machine_of_its_own(lab_two: Lab) -> None:
    # Files alone: a checkout below /tmp is bound in with its virtual environment.
    look = "cat /proc/1/comm; find /tmp /dev/shm -maxdepth 1 -type f; hostname; ls /home; ls -A /root/.ssh"
    with tempfile.NamedTemporaryFile(dir="/tmp"), tempfile.NamedTemporaryFile(dir="/dev/shm"):
        seen = lab_two.run("node43", "sh", "-c", look)
    assert seen.split() == ["sh", "node43", "trainer", "authorized_keys"]
    pids = lab_two.run("node43", "sh", "-c", "ls -d /proc/[0-9]* | wc -l")
    assert int(pids) < 10
    assert [state["processes"] for state in lab_two.status().values()] == [2, 2]  # its first one, and sshd


def test_a_host_has_no_way_to_the_machines_own_files(lab_two: Lab) -> None:
    root = lab_two.run("node43", "nsenter", "-t", "1", "-m", "findmnt", "-n", "-o", "FSTYPE", "/")
    assert root == "overlay\n"
    mounted = lab_two.run("node43", "findmnt", "-n", "-r", "-o", "TARGET").split()
    assert "/dev/shm" in mounted
    assert not [where for where in mounted if where.startswith(str(places.STATE))]
    with pytest.raises(LabError, match="Read-only file system"):
        lab_two.run("node43", "touch", f"{sys.prefix}/written")


def test_a_command_inside_gets_a_fresh_environment_and_its_exit_code_comes_back(
    lab_two: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "24")
    argv = lab_two.exec("node43", ["sh", "-c", "env; pwd; exit 37"], user="trainer")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    seen = done.stdout.splitlines()
    assert done.returncode == 37
    assert {"HOME=/home/trainer", "USER=trainer", f"PATH={boot.HOST_PATH}", "/"} <= set(seen)
    assert not [line for line in seen if line.startswith(("SECRET", "PYTHON", "VIRTUAL_ENV", "OMP"))]
    over_ssh = ssh(lab_two, "node43", "env").stdout
    assert f"PATH={boot.HOST_PATH}" in over_ssh
    assert not [line for line in over_ssh.splitlines() if line.startswith(("SECRET", "PYTHON", "VIRTUAL_ENV", "OMP"))]


def test_orphans_are_collected_and_sshd_can_be_started_again(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(1)
    orphan = ("sh", "-c", "(sleep 0.05 &); sleep 0.5; ps -eo stat | grep -c ^Z || :")
    assert lab.run("node43", *orphan) == "0\n"
    lab.run("node43", "sh", "-c", f"kill $(cat {boot.SSHD_PID})")
    assert lab.run("node43", *orphan) == "0\n"
    assert "Connection refused" in ssh(lab, "node43", "hostname").stderr
    lab.run("node43", "/usr/sbin/sshd", "-f", "/etc/ssh/lab_sshd_config")
    assert ssh(lab, "node43", "hostname").stdout == "node43\n"


def test_options_take_the_place_of_the_labs_own_on_all_hosts_or_on_one(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(2, sshd_options=["MaxStartups 3:30:10", "PermitRootLogin no"])
    asked = ("/usr/sbin/sshd", "-T", "-f", "/etc/ssh/lab_sshd_config")
    for host in lab.hosts:
        assert "maxstartups 3:30:10\n" in lab.run(host, *asked)
    assert "Permission denied" in ssh(lab, "node43", "hostname").stderr
    lab.configure_sshd("node44", "Subsystem sftp /bin/false")
    assert "maxstartups 10:30:100\n" in lab.run("node44", *asked)  # OpenSSH's default
    assert ssh(lab, "node44", "hostname").stdout == "node44\n"
    sftp = ["sftp", "-F", str(lab.ssh_config_path), "-b", "/dev/null", "node44"]
    assert subprocess.run(sftp, capture_output=True, check=False, timeout=30).returncode != 0
    with pytest.raises(LabError, match="bad configuration options"):
        lab.configure_sshd("node44", "NoSuchOption yes")
    assert ssh(lab, "node44", "hostname").stdout == "node44\n"


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


UP_AND_ASK = """
import sys
from orchestrator.lab import Lab
lab = Lab.up(1, name=sys.argv[1], subnet=sys.argv[2])
print(lab.run("node43", sys.prefix + "/bin/python", "-c", "import sys, getpass; print(getpass.getuser(), sys.prefix)",
              user="trainer"))
"""


@pytest.mark.parametrize("where", ["/tmp", "/var/tmp"])  # what a host has its own of; what it has this machine's of
def test_an_interpreter_behind_a_closed_folder_or_another_mount_is_there_for_everybody(
    lab_place: Callable[[], dict[str, Any]], where: str
) -> None:
    place = lab_place()
    with tempfile.TemporaryDirectory(dir=where) as closed:  # its mode is 0700
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", f"{closed}/in/venv"], check=True)
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        argv = [f"{closed}/in/venv/bin/python", "-c", UP_AND_ASK, place["name"], place["subnet"]]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
        assert done.stdout.split() == ["trainer", f"{closed}/in/venv"], done.stderr
        assert Path(closed).stat().st_mode & 0o777 == 0o700  # this machine's own is as it was
        Lab.down(place["name"])


def test_the_systems_own_interpreter_needs_no_mount_of_its_own(
    make_lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", "/usr")
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    assert boot.bound_paths() == [path for path in boot.SYSTEM_FOLDERS if Path(path).is_mount()]
    assert make_lab(1).run("node43", "hostname") == "node43\n"


FORWARDING = """
import ipaddress
from pathlib import Path
from orchestrator.lab import network
Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
network.make_bridge("dlfwd", ipaddress.IPv4Interface("10.88.4.1/24"))
print(network.run("nft", "list", "ruleset"))
network.remove_bridge("dlfwd")
print("after:", network.run("nft", "list", "ruleset"), network.run("ip", "-br", "link", "show", "type", "bridge"))
"""


def test_a_machine_that_forwards_packets_forwards_none_of_the_labs() -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    argv = ["unshare", "--net", sys.executable, "-c", FORWARDING]  # the switch is one of each network namespace
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    rules, _, after = done.stdout.partition("after:")
    assert "hook forward" in rules, done.stderr
    assert 'iifname "dlfwd" oifname != "dlfwd" drop' in rules
    assert after.strip() == ""


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
    with pytest.raises(LabError, match="node44 is switched off"):
        lab_two.run("node44", "true")
    lab_two.start("node44")
    connection.settimeout(10)
    connection.sendall(b"still there?")
    with pytest.raises(ConnectionResetError):  # it knows nothing of the connection, as after any reboot
        connection.recv(10)
    connection.close()
    assert lab_two.run("node44", "sh", "-c", "cat /var/kept; find /tmp -maxdepth 1 -type f") == "kept\n"
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


def test_a_cable_stays_out_and_a_limit_stays_while_the_power_goes_and_comes(lab_two: Lab) -> None:
    lab_two.rate("node43", "100mbit")
    lab_two.cut("node43")
    lab_two.kill("node43")
    assert {"power": "off", "cable": "cut", "rate": "100mbit", "processes": 0}.items() <= lab_two.status()[
        "node43"
    ].items()
    lab_two.kill("node43")  # twice is fine
    lab_two.start("node43")
    assert {"power": "on", "cable": "cut", "rate": "100mbit"}.items() <= lab_two.status()["node43"].items()
    address = lab_two.hosts["node43"].address
    with pytest.raises(TimeoutError):
        socket.create_connection((address, 22), 1)
    lab_two.heal("node43")
    socket.create_connection((address, 22), 10).close()
    assert "rate 100Mbit" in lab_two.run("node43", "tc", "qdisc", "show", "dev", "eth0")
    with pytest.raises(LabError, match="node43 is on already"):
        lab_two.start("node43")


def test_a_limit_that_is_none_leaves_the_link_as_it_was(lab_two: Lab) -> None:
    lab_two.rate("node43", "100mbit")
    with pytest.raises(LabError, match='illegal value for "rate": "fast"'):
        lab_two.rate("node43", "fast")
    assert lab_two.status()["node43"]["rate"] == "100mbit"
    for qdisc in (["tc"], ["tc", "-n", lab_two.hosts["node43"].namespace]):
        device = "eth0" if len(qdisc) > 1 else lab_two.hosts["node43"].cable
        assert "rate 100Mbit" in network.run(*qdisc, "qdisc", "show", "dev", device)
    lab_two.rate("node43", "off")


def test_a_link_can_be_made_slow(lab_two: Lab) -> None:
    def seconds() -> float:
        argv = ["ssh", "-F", str(lab_two.ssh_config_path), "node43", "cat > /dev/null"]
        started = time.perf_counter()
        subprocess.run(argv, input=bytes(2 << 20), check=True, timeout=60)
        return time.perf_counter() - started

    free = min(seconds(), seconds())
    lab_two.rate("node43", "8mbit")
    try:
        assert lab_two.status()["node43"]["rate"] == "8mbit"
        assert seconds() > 2 * free
    finally:
        lab_two.rate("node43", "off")
    assert lab_two.status()["node43"]["rate"] == ""


def test_a_subnet_in_use_is_refused(lab_two: Lab, lab_place: Callable[[], dict[str, Any]]) -> None:
    name = lab_place()["name"]
    with pytest.raises(LabError, match=r"this machine already has 192\.168\.20\.0/24") as caught:
        Lab.up(1, name=name, subnet="192.168.0.0/16", first=99)
    assert f"ddp-orch lab down --name {lab_two.name}" in caught.value.try_this
    with pytest.raises(LabError, match=r"127\.0\.0\."):
        Lab.up(1, name=name, subnet="127.0.0.0/24", first=99)
    assert lab_two.name in Lab.names()
    assert leftovers(name) == []


ROUTES = """
import ipaddress, sys
from orchestrator.lab.network import run, user_of
run("ip", "link", "set", "lo", "up")
for route in sys.argv[2:]:
    run("ip", "route", "add", route, "dev", "lo")
print(user_of(ipaddress.IPv4Network(sys.argv[1])))
"""


@pytest.mark.parametrize(
    ("routes", "seen"),
    [
        (["default"], "None"),
        (["0.0.0.0/1", "128.0.0.0/1"], "None"),  # a VPN's way to write a default route
        (["10.0.0.0/8"], "('10.0.0.0/8', 'lo')"),
        (["10.88.3.7/32"], "('10.88.3.7', 'lo')"),
    ],
)
def test_a_route_other_than_the_default_one_takes_a_subnet(routes: list[str], seen: str) -> None:
    argv = ["unshare", "--net", sys.executable, "-c", ROUTES, "10.88.3.0/24", *routes]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    assert done.stdout.strip() == seen, done.stderr


@pytest.mark.parametrize("name", ["", ".", "..", "../up", "a/b", "a b", "-x", "x" * 25])
def test_what_is_no_name_of_a_lab_never_becomes_a_folder_that_goes(name: str) -> None:
    for act in (Lab.down, Lab.load, lambda name: Lab.up(1, name=name, subnet="10.77.0.0/24")):
        with pytest.raises(LabError, match="a lab's name is made of letters and digits"):
            act(name)


def test_two_labs_stand_side_by_side(lab_two: Lab, small_lab: Lab) -> None:
    assert ssh(small_lab, "node11", "hostname").stdout == "node11\n"
    assert ssh(lab_two, "node43", "hostname").stdout == "node43\n"
    Lab.down(small_lab.name)
    assert ssh(lab_two, "node43", "hostname").stdout == "node43\n"


@pytest.mark.parametrize("broken", ["plug_in", "make_bridge"])
def test_a_lab_that_fails_half_way_leaves_nothing(
    lab_place: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    real = getattr(network, broken)
    calls = []

    def fails_in_the_end(*args: object) -> None:
        calls.append(args)
        real(*args)
        if broken == "make_bridge" or len(calls) == 2:
            raise LabError("it broke")

    monkeypatch.setattr(network, broken, fails_in_the_end)
    place = lab_place()
    with pytest.raises(LabError, match="it broke"):
        Lab.up(2, **place)
    assert leftovers(place["name"]) == []


def test_a_host_that_does_not_boot_is_told_at_once_with_its_last_words(
    lab_place: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boot, "INIT", boot.INIT.replace("mount -t overlay overlay", "mount -t nosuchfs overlay"))
    place = lab_place()
    started = time.monotonic()
    with pytest.raises(LabError, match=r"node43 did not come up: mount: .*/node43/root"):
        Lab.up(1, **place)
    assert time.monotonic() - started < 10
    assert leftovers(place["name"]) == []


@pytest.mark.parametrize("moment", ["network.make_bridge", "client_files.write_client_files", "lab.Lab._await_sshd"])
def test_down_cleans_up_after_a_lab_whose_maker_was_killed(
    lab_place: Callable[[], dict[str, Any]], moment: str
) -> None:
    place = lab_place()
    name, subnet = place["name"], place["subnet"]
    code = (
        "import os, signal\nfrom orchestrator.lab import Lab, client_files, lab, network\n"
        f"{moment} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\nLab.up(2, name='{name}', subnet='{subnet}')"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.run([sys.executable, "-c", code], check=False, env=env).returncode == -signal.SIGKILL
    assert leftovers(name) != []
    assert Lab.down(name) is True
    assert leftovers(name) == []
    assert Lab.down(name) is False  # twice is fine


def test_down_works_without_any_record_of_the_lab(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(1)
    (lab.folder / "lab.json").unlink()
    with pytest.raises(LabError, match="was cut short") as caught:
        Lab.load(lab.name)
    assert caught.value.try_this == f"ddp-orch lab down --name {lab.name}"
    assert Lab.down(lab.name) is True
    assert leftovers(lab.name) == []


def test_no_process_of_a_host_outlives_the_lab(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(1)
    mark = f"86400.{os.getpid()}"
    # One that left the host's network namespace, in a session of its own, and has no parent but the first process.
    lab.run("node43", "sh", "-c", f"setsid unshare --net sleep {mark} > /dev/null 2>&1 < /dev/null &")

    def running() -> list[str]:
        seen = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                seen.append(entry.read_text())
        return [line for line in seen if line == f"sleep\0{mark}\0"]

    end = time.monotonic() + 10
    while not running() and time.monotonic() < end:
        time.sleep(0.02)
    assert len(running()) == 1
    Lab.down(lab.name)
    assert running() == []


def test_the_kernels_limits_come_back_with_the_last_lab_that_raised_them(
    make_lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "MANY_HOSTS", 0)
    before = network.neighbour_limits()
    first, second = make_lab(1), make_lab(1)
    assert network.neighbour_limits() == {name: max(before[name], 4096 << n) for n, name in enumerate(before)}
    Lab.down(first.name)
    assert network.neighbour_limits()["gc_thresh3"] >= 16384
    Lab.down(second.name)
    assert network.neighbour_limits() == before


def test_keys_are_added_to_the_users_known_hosts_and_only_they_are_taken_out(
    make_lab: Callable[..., Lab], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    known_hosts = client_files.users_known_hosts()
    known_hosts.parent.mkdir()
    known_hosts.write_bytes(b"other.example ssh-ed25519 AAAA caf\xe9")  # no newline, no UTF-8
    lab = make_lab(1, trust=True)
    text = known_hosts.read_bytes()
    assert lab.known_hosts_path.read_bytes() in text
    known_hosts.write_bytes(text + b"later.example ssh-ed25519 BBBB\n")
    Lab.down(lab.name)
    assert known_hosts.read_bytes() == (b"other.example ssh-ed25519 AAAA caf\xe9\nlater.example ssh-ed25519 BBBB\n")


def test_the_commands_do_what_they_say(lab_place: Callable[[], dict[str, Any]]) -> None:
    place = lab_place()
    name = place["name"]
    up = cli("up", "1", "--name", name, "--subnet", place["subnet"])
    assert up.returncode == 0, up.stderr
    assert f"export DDP_ORCH_INVENTORY={places.STATE}/{name}/inventory.yaml" in up.stdout
    assert f"ddp-orch lab env --name {name}" in up.stderr
    assert cli("up", "1", "--name", name).returncode == 2
    done = cli("exec", "--name", name, "node43", "sh", "-c", "hostname; exit 37")
    assert (done.returncode, done.stdout) == (37, "node43\n")
    for words in (["rate", "node43", "1gbit"], ["cut", "node43"], ["kill", "node43"]):
        assert cli(*words, "--name", name).returncode == 0
    status = json.loads(cli("status", "--json", "--name", name).stdout)
    address = str(ipaddress.IPv4Network(place["subnet"])[43])
    wanted = {"address": address, "power": "off", "cable": "cut", "rate": "1gbit", "processes": 0}
    assert status == {"schema": 1, "lab": name, "hosts": {"node43": wanted}}
    off = cli("exec", "--name", name, "node43", "true")
    assert off.returncode == 2
    assert f"ddp-orch lab start node43 --name {name}" in off.stderr
    assert "node43" in cli("status", "--name", name).stdout
    assert f"the lab '{name}' is gone" in cli("down", "--name", name).stderr
    assert f"there was no lab '{name}'" in cli("down", "--name", name).stderr


def test_a_name_server_can_be_silent(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(1, resolver="silent")
    look = "import socket, time; t=time.monotonic()\ntry: socket.gethostbyname('a.example')\nexcept OSError: pass\n"
    env = ["env", "RES_OPTIONS=timeout:1 attempts:1", sys.executable, "-c", look + "print(time.monotonic()-t)"]
    assert float(lab.run("node43", *env)) > 0.9
    lab.kill("node43")
    lab.start("node43")
    assert float(lab.run("node43", *env)) > 0.9


def test_names_look_up_fast_where_the_name_server_refuses(lab_two: Lab) -> None:
    look = "import socket, time; t=time.monotonic()\ntry: socket.gethostbyname('a.example')\nexcept OSError: pass\n"
    assert float(lab_two.run("node43", sys.executable, "-c", look + "print(time.monotonic()-t)")) < 0.9


def test_an_ordinary_user_is_told_what_virtual_hosts_need() -> None:
    code = (
        "import os\nfrom orchestrator.errors import LabError\nfrom orchestrator.lab import Lab\n"
        "os.setuid(65534)\ntry: Lab.up(1, name='x')\nexcept LabError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "virtual hosts need root: they are made of namespaces and mounts\n", done.stderr


def test_a_host_that_is_not_in_the_lab_is_named_as_such(lab_two: Lab) -> None:
    with pytest.raises(LabError, match="there is no host 'node99' in this lab") as caught:
        lab_two.cut("node99")
    assert caught.value.try_this == "one of node43, node44"


def test_a_disk_can_be_filled_and_cleared(small_lab: Lab) -> None:
    write = ["sh", "-c", "echo x > /root/file && echo fits || true"]
    small_lab.fill("node11")
    assert small_lab.run("node11", *write) == ""
    assert small_lab.run("node12", *write) == "fits\n"
    small_lab.clear("node11")
    assert small_lab.run("node11", *write) == "fits\n"
    assert int(small_lab.run("node11", "sh", "-c", "df --output=size -m /root | tail -1")) == 64


TAKE = 'python3 -c \'x = bytearray(b"x" * (200 << 20)); print("taken")\'; true'


def test_memory_can_be_limited_and_the_kernel_kills_what_takes_more(small_lab: Lab) -> None:
    small_lab.memory("node11", "100m")
    assert "taken" not in ssh(small_lab, "node11", TAKE).stdout
    assert ssh(small_lab, "node12", TAKE).stdout == "taken\n"
    assert any(what.startswith("control group") for what in leftovers(small_lab.name))
    small_lab.memory("node11", "off")
    assert ssh(small_lab, "node11", TAKE).stdout == "taken\n"
    small_lab.memory("node11", "100m")
    small_lab.kill("node11")  # a limit ends with the power
    small_lab.start("node11")
    assert ssh(small_lab, "node11", TAKE).stdout == "taken\n"
    assert not any(what.startswith("control group") for what in leftovers(small_lab.name))
    with pytest.raises(LabError, match="much is no size"):
        small_lab.memory("node11", "much")


NOW = """
import threading, time
start = time.monotonic()
time.sleep(0.2); threading.Event().wait(0.2)
print(int(time.time()), 0.3 < time.monotonic() - start < 5)
"""


def test_a_clock_that_is_off_is_off_for_one_host_and_waits_are_as_long_as_ever(small_lab: Lab) -> None:
    small_lab.clock("node11", -7200)
    command = f"python3 -c '{NOW}'; date +%s"
    for host, ahead_s in (("node11", -7200), ("node12", 0)):
        done = ssh(small_lab, host, command)
        assert done.returncode == 0, done.stderr
        shown, waits, date = done.stdout.split()
        assert abs(int(shown) - time.time() - ahead_s) < 60
        assert abs(int(date) - time.time() - ahead_s) < 60
        assert waits == "True"
    small_lab.clock("node11", 0)
    assert abs(int(ssh(small_lab, "node11", "date +%s").stdout) - time.time()) < 60

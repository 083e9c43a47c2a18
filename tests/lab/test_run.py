"""The whole path on virtual hosts: real sshd, real torchrun, the command line as a user types it."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab_runs import belongs_to_a_run, clean, ddp, processes, start, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.torch]

# A gloo all-reduce without torchvision: torch alone takes seconds to load.
HELLO = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group(os.environ["DDP_ORCH_BACKEND"])
total = torch.ones(1)
dist.all_reduce(total)
print("hello from", dist.get_rank(), "of", int(total), sys.argv[1:], flush=True)
"""
SETTLE = "time.sleep(1.5)\n"  # one rank may leave a collective while another is still in it
DONE = "dist.barrier(); dist.destroy_process_group()\n"
WAIT = "print('waiting', flush=True); time.sleep(300)\n"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAIT


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def test_a_script_runs_on_both_hosts_with_its_arguments_as_given(lab_two: Lab, project: Path) -> None:
    (project / "my script.py").write_text(HELLO + DONE)
    words = ["--", "-x", "a b", "$HOME", "'\"`", "line\nbreak", "é 字", "", "*"]
    done = ddp("run", "my script.py", "--", *words, cwd=project)
    assert done.returncode == 0, done.stderr
    lines = sorted(line for line in done.stdout.splitlines() if "hello" in line)
    assert lines == [f"[r0 node43] hello from 0 of 2 {words!r}", f"[r1 node44] hello from 1 of 2 {words!r}"]
    assert "0 processes left on 2 of 2 hosts" in done.stderr
    assert "GLOO_SOCKET_IFNAME=eth0" in done.stderr
    assert clean(lab_two)


def test_hosts_may_start_different_numbers_of_processes(lab_two: Lab, project: Path, tmp_path: Path) -> None:
    text = lab_two.inventory_path.read_text()
    inventory = tmp_path / "uneven.yaml"
    inventory.write_text(text + "    processes: 2\n")  # of the last host
    (project / "hello.py").write_text(HELLO + DONE)
    done = ddp("run", "-i", str(inventory), "hello.py", cwd=project)
    assert done.returncode == 0, done.stderr
    seen = sorted(line.partition("] ")[0] + "]" for line in done.stdout.splitlines() if "of 3" in line)
    assert seen == ["[r0 node43]", "[r1 node44]", "[r2 node44]"]


def test_a_rank_that_raises_ends_the_run_and_its_traceback_comes_last(lab_two: Lab, project: Path) -> None:
    (project / "fail.py").write_text(
        HELLO + SETTLE + "if dist.get_rank() == 1: raise ValueError('on purpose')\n" + WAIT
    )
    done = ddp("run", "fail.py", cwd=project)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-12:]
    assert any("ValueError: on purpose" in line for line in last), done.stderr
    # How its interpreter ends after the exception is not ours: TERM may find it on its way down.
    assert any(line.startswith("cause: rank 1 on node44 ") for line in last), done.stderr
    assert last[-1].endswith("failed; 0 processes left on 2 of 2 hosts")
    assert clean(lab_two)
    state = json.loads(ddp("ps", "--all", "--json", cwd=project).stdout)["runs"][0]
    assert state["state"] == "failed"


def test_a_rank_that_is_killed_is_named_with_its_signal(lab_two: Lab, project: Path) -> None:
    (project / "killed.py").write_text(
        HELLO + "if dist.get_rank() == 0: os.kill(os.getpid(), 9)\ndist.all_reduce(total)\n" + WAIT
    )
    done = ddp("run", "killed.py", cwd=project)
    assert done.returncode == 1
    assert "cause: rank 0 on node43 was ended by SIGKILL" in done.stderr
    assert clean(lab_two)


def test_ctrl_c_stops_the_run_everywhere_and_says_so(lab_two: Lab, project: Path) -> None:
    (project / "wait.py").write_text(HELLO + WAIT)
    run = start("run", "wait.py", cwd=project)
    wait_until(lambda: len([1 for lines in processes(lab_two).values() for line in lines if "wait.py" in line]) == 2)
    time.sleep(4)
    os.killpg(run.pid, signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert "stopping the run on all hosts (interrupted)" in err
    assert "was stopped; 0 processes left on 2 of 2 hosts" in err
    assert "[r0 node43] waiting" in out
    assert clean(lab_two)


def test_a_second_ctrl_c_kills_what_will_not_end(lab_two: Lab, project: Path) -> None:
    (project / "stubborn.py").write_text(HELLO + STUBBORN)
    run = start("run", "stubborn.py", cwd=project)
    assert run.stdout is not None
    while "waiting" not in run.stdout.readline():
        assert run.poll() is None
    os.killpg(run.pid, signal.SIGINT)
    time.sleep(2)
    asked_at = time.monotonic()
    os.killpg(run.pid, signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert time.monotonic() - asked_at < 15  # the first one gave 30 s
    assert run.returncode == 130, err
    assert clean(lab_two)


def test_a_run_outlives_its_terminal_and_a_new_one_reads_on(lab_two: Lab, project: Path) -> None:
    loop = "for n in range(8):\n    print('tick', n, flush=True); time.sleep(1)\n"
    (project / "ticks.py").write_text(HELLO + loop + DONE)
    run = start("run", "ticks.py", cwd=project)
    assert run.stdout is not None
    while "tick 1" not in run.stdout.readline():
        assert run.poll() is None
    os.killpg(run.pid, signal.SIGKILL)  # the terminal is gone, and had no time for anything
    run.communicate()
    done = ddp("logs", "--rank", "1", "--follow", cwd=project)
    ticks = [line for line in done.stdout.splitlines() if "tick" in line]
    assert ticks == [f"[r1 node44] tick {number}" for number in range(8)]
    elsewhere = ddp("ps", "--all", "--json", cwd=project, XDG_STATE_HOME=str(project / "another-controller"))
    assert json.loads(elsewhere.stdout)["runs"][0]["state"] == "succeeded"
    assert clean(lab_two)


def test_logs_of_one_rank_ask_its_host_alone(lab_two: Lab, project: Path) -> None:
    (project / "hello.py").write_text(HELLO + "print('oops', file=sys.stderr)\n" + DONE)
    assert ddp("run", "hello.py", cwd=project).returncode == 0
    lab_two.cut("node43")
    done = ddp("logs", "--rank", "1", cwd=project)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[r1 node44] hello from 1 of 2 []\n"
    assert "[r1 node44] oops" in done.stderr
    body = [json.loads(line) for line in ddp("logs", "--rank", "1", "--json", cwd=project).stdout.splitlines()]
    assert {"schema": 1, "host": "node44", "rank": 1, "stream": "stdout", "text": "hello from 1 of 2 []"} in body
    refused = ddp("logs", "--rank", "5", cwd=project)
    assert refused.returncode == 2
    assert "has no rank 5: its ranks are 0 to 1" in refused.stderr


def test_a_detached_run_is_stopped_from_elsewhere(lab_two: Lab, project: Path) -> None:
    (project / "wait.py").write_text(HELLO + WAIT)
    started = ddp("run", "--detach", "wait.py", cwd=project)
    assert started.returncode == 0, started.stderr
    name = started.stdout.strip()
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", name)
    read = "cat /root/ddp-orch/runs/*/*/logs/*.out"
    wait_until(lambda: "waiting" in lab_two.run("node43", "sh", "-c", read, check=False))
    again = ddp("preflight", cwd=project)
    assert again.returncode == 5
    assert "29500" in again.stdout
    stopped = ddp("stop", name, "--grace", "5", "--json", cwd=project, XDG_STATE_HOME=str(project / "another"))
    assert stopped.returncode == 0, stopped.stderr
    hosts = json.loads(stopped.stdout)["hosts"]
    assert {host: state["left_over"] for host, state in hosts.items()} == {"node43": 0, "node44": 0}
    assert clean(lab_two)


def test_a_detached_run_ends_as_one_when_a_host_fails(lab_two: Lab, project: Path) -> None:
    # Outside of any collective: torchrun and gloo would leave rank 0 sleeping for five minutes.
    (project / "fail.py").write_text(HELLO + SETTLE + "if dist.get_rank() == 1: sys.exit(7)\n" + WAIT)
    assert ddp("run", "--detach", "fail.py", cwd=project).returncode == 0
    wait_until(lambda: "fail.py" in str(processes(lab_two)))
    wait_until(lambda: clean(lab_two), limit_s=60)
    run = json.loads(ddp("ps", "--all", "--json", cwd=project).stdout)["runs"][0]
    states = {host["host"]: (host["state"], host["stop_reason"], host["left_over"]) for host in run["hosts"]}
    assert states == {"node43": ("stopped", "node44 failed: exit code 7", 0), "node44": ("failed", "", 0)}


def test_a_host_without_power_ends_the_run_on_the_other(lab_two: Lab, project: Path) -> None:
    (project / "wait.py").write_text(HELLO + WAIT)
    assert ddp("run", "--detach", "wait.py", cwd=project).returncode == 0
    wait_until(
        lambda: "waiting" in lab_two.run("node43", "sh", "-c", "cat /root/ddp-orch/runs/*/*/logs/*", check=False)
    )
    lab_two.kill("node44")
    wait_until(lambda: not processes_on(lab_two, "node43"), limit_s=30)
    state = json.loads(lab_two.run("node43", "sh", "-c", "cat /root/ddp-orch/runs/*/node43/state.json"))
    assert (state["state"], state["stop"]["why"], state["left_over"]) == ("stopped", "no word from node44 for 7 s", 0)


def processes_on(lab: Lab, host: str) -> list[str]:
    text = lab.run(host, "ps", "-eo", "args")
    return [line for line in text.splitlines() if belongs_to_a_run(line)]


def test_a_secret_reaches_the_script_and_nothing_else(lab_two: Lab, project: Path) -> None:
    secret = secrets.token_hex(12)
    (project / "secret.py").write_text(HELLO + "print('secret', len(os.environ['TOKEN']), flush=True)\n" + WAIT)
    started = ddp("run", "--detach", "--env", "TOKEN", "secret.py", cwd=project, TOKEN=secret)
    assert started.returncode == 0, started.stderr
    try:
        find = "cat /root/ddp-orch/runs/*/*/logs/*.out"
        wait_until(lambda: "secret 24" in lab_two.run("node44", "sh", "-c", find, check=False))
        for host in lab_two.hosts:
            assert secret not in lab_two.run(host, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '", check=False)
            assert lab_two.run(host, "grep", "-rl", secret, "/root/ddp-orch", "/tmp", "/var/tmp", check=False) == ""
        state = Path(os.environ["XDG_STATE_HOME"])
        assert not any(secret in path.read_text() for path in state.rglob("*") if path.is_file())
    finally:
        ddp("stop", "--grace", "0", cwd=project)


def test_files_of_a_run_come_back_and_the_snapshot_stays_clean(lab_two: Lab, project: Path) -> None:
    (project / "write.py").write_text(HELLO + "open(f'out{dist.get_rank()}.txt', 'w').write('x' * 5)\n" + DONE)
    (project / ".ddpignore").write_text("big.bin\n")
    (project / "big.bin").write_bytes(bytes(1000))
    assert ddp("run", "write.py", cwd=project).returncode == 0
    first = ddp("fetch", "--to", "back", "--json", cwd=project)
    assert first.returncode == 0, first.stderr
    assert (project / "back" / "out0.txt").read_text() == "xxxxx"
    assert (project / "back" / "node44" / "out1.txt").read_text() == "xxxxx"
    assert {file["path"] for file in json.loads(first.stdout)["files"]} == {"out0.txt", "out1.txt"}
    refused = ddp("fetch", "--to", "back", cwd=project)
    assert refused.returncode == 6
    assert "already here" in refused.stderr
    assert "big.bin" not in lab_two.run("node43", "find", "/root/ddp-orch/code")


# --- what keeps a run from starting ---


def test_a_taken_rendezvous_port_is_named_with_its_holder(lab_two: Lab, project: Path) -> None:
    hold = "import socket, time; s = socket.create_server(('', 29500)); print('up', flush=True); time.sleep(120)"
    holder = subprocess.Popen(lab_two.exec("node43", [sys.executable, "-c", hold]), stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "up\n"
    try:
        (project / "hello.py").write_text(HELLO + DONE)
        done = ddp("run", "hello.py", cwd=project)
        assert done.returncode == 5
        assert "29500" in done.stderr
        assert "python" in done.stderr
        assert "hello" not in done.stdout
    finally:
        holder.kill()
        holder.communicate()
    assert clean(lab_two)


def test_a_host_that_cannot_be_reached_is_named_and_nothing_starts(lab_two: Lab, project: Path) -> None:
    lab_two.kill("node44")
    (project / "hello.py").write_text(HELLO + DONE)
    done = ddp("run", "hello.py", cwd=project)
    assert done.returncode == 4
    assert "node44" in done.stderr
    assert "192.168.20.44 port 22" in done.stderr
    assert clean_on(lab_two, "node43")
    checked = ddp("preflight", "--json", cwd=project)
    assert checked.returncode == 4
    findings = {(one["host"], one["severity"]) for one in json.loads(checked.stdout)["findings"]}
    assert ("node44", "failure") in findings
    assert ("node43", "ok") in findings


def clean_on(lab: Lab, host: str) -> bool:
    return not processes_on(lab, host)


def test_a_wrong_host_key_is_refused_with_the_fix(lab_two: Lab, project: Path) -> None:
    known = lab_two.known_hosts_path
    right = known.read_text()
    lines = right.splitlines()
    swapped = [f"{lines[0].split()[0]} {' '.join(lines[1].split()[1:])}", lines[1]]
    try:
        known.write_text("\n".join(swapped) + "\n")
        done = ddp("preflight", "--json", cwd=project)
        assert done.returncode == 4
        finding = next(one for one in json.loads(done.stdout)["findings"] if one["severity"] == "failure")
        assert finding["host"] == "node43"
        assert "host key has changed" in finding["seen"]
        assert "ssh-keygen -R '192.168.20.43'" in finding["try_this"]
        refused = ddp("trust", "--yes", cwd=project)
        assert refused.returncode == 4
        assert "node43: 192.168.20.43" in refused.stdout
        assert "CHANGED" in refused.stdout
        known.write_text("")
        assert ddp("preflight", cwd=project).returncode == 4
        trusted = ddp("trust", "--yes", cwd=project)
        assert trusted.returncode == 0, trusted.stderr
        assert sorted(known.read_text().splitlines()) == sorted(" ".join(line.split()[:3]) for line in lines)
        assert ddp("preflight", cwd=project).returncode == 0
    finally:
        known.write_text(right)


def test_a_torch_of_another_version_is_named_on_its_host(lab_two: Lab, project: Path, tmp_path: Path) -> None:
    # A second interpreter on node44 whose torch says another version: packages are read, not imported.
    site = "/opt/other/lib/python{}.{}/site-packages".format(*sys.version_info)
    make = (
        f"rm -rf /opt/other; {sys.executable} -m venv --without-pip /opt/other; mkdir -p {site}/torch/distributed;"
        f"echo \"__version__ = '2.1.0'\ncuda = None\ngit_version = 'x'\nhip = None\" > {site}/torch/version.py;"
        f"touch {site}/torch/__init__.py {site}/torch/distributed/run.py {site}/torch/distributed/__init__.py;"
        f"mkdir {site}/torch-2.1.0.dist-info {site}/torchvision-0.29.1.dist-info;"
        f"printf 'Metadata-Version: 2.1\\nName: torch\\nVersion: 2.1.0\\n' > {site}/torch-2.1.0.dist-info/METADATA;"
        f"printf 'Metadata-Version: 2.1\\nName: torchvision\\nVersion: 0.29.1\\n'"
        f" > {site}/torchvision-0.29.1.dist-info/METADATA"
    )
    lab_two.run("node44", "sh", "-c", make)
    inventory = tmp_path / "versions.yaml"
    inventory.write_text(lab_two.inventory_path.read_text() + "    python: /opt/other/bin/python\n")
    done = ddp("preflight", "-i", str(inventory), "--json", cwd=project)
    assert done.returncode == 5, done.stdout
    failed = [one for one in json.loads(done.stdout)["findings"] if one["severity"] == "failure"]
    assert any("2.1.0" in one["seen"] and "torch" in one["check"] for one in failed), failed


def test_a_users_own_inventory_works_as_written_and_says_what_is_missing(lab_two: Lab, project: Path) -> None:
    assert lab_two.hosts["node43"].address == "192.168.20.43"
    inventory = str(Path(__file__).parents[2] / "inventory" / "lab.yaml")
    done = ddp("preflight", inventory, "--json", cwd=project)
    assert done.returncode == 5
    failed = [one for one in json.loads(done.stdout)["findings"] if one["severity"] == "failure"]
    assert {one["host"] for one in failed} == {"192.168.20.43", "192.168.20.44"}
    assert all("nvidia-smi" in one["seen"] + one["wanted"] for one in failed), failed


def test_an_ordinary_user_runs_and_stops_like_root(lab_two: Lab, project: Path, tmp_path: Path) -> None:
    inventory = tmp_path / "trainer.yaml"
    inventory.write_text(lab_two.inventory_path.read_text().replace("user: root", "user: trainer"))
    (project / "wait.py").write_text(HELLO + WAIT)
    started = ddp("run", "-i", str(inventory), "--detach", "wait.py", cwd=project)
    assert started.returncode == 0, started.stderr
    seen = lab_two.run("node44", "ps", "-eo", "user:12,args")
    assert re.search(r"^trainer .*torch\.distributed\.run", seen, re.MULTILINE)
    stopped = ddp("stop", "-i", str(inventory), "--grace", "3", cwd=project)
    assert stopped.returncode == 0, stopped.stderr
    assert "0 processes left on 2 of 2 hosts" in stopped.stdout
    assert clean(lab_two)


def test_a_default_sshd_takes_many_logins_at_once(lab_two: Lab) -> None:
    from dataclasses import replace

    from orchestrator.model.host import Host
    from orchestrator.transport.connect import Connector
    from orchestrator.transport.fan_out import on_all_hosts, successes

    config = lab_two.run("node43", "sh", "-c", "/usr/sbin/sshd -T -f /etc/ssh/lab_sshd_config | grep ^maxstartups")
    assert config == "maxstartups 10:30:100\n"
    connector = Connector(environ=os.environ)
    first = Host(name="n", address="192.168.20.43", ssh="192.168.20.43")
    work = {f"n{n}": (lambda n=n: connector.connect(replace(first, name=f"n{n}"))) for n in range(30)}
    links = successes(on_all_hosts(work, deadline_s=60))
    assert len(links) == 30
    for link in links.values():
        link.close()


def test_a_script_that_names_its_own_backend_is_told(lab_two: Lab, project: Path) -> None:
    assert lab_two.hosts
    (project / "own.py").write_text(HELLO.replace('os.environ["DDP_ORCH_BACKEND"]', "backend='gloo'") + DONE)
    text = lab_two.inventory_path.read_text().replace("processes: 1", "gpus: 1")
    (project / "gpus.yaml").write_text(text)
    done = ddp("run", "-i", "gpus.yaml", "own.py", cwd=project)
    assert done.returncode == 5  # no GPU here, and preflight says so; the word about the backend came first
    assert "own.py names its backend itself: gloo is used, not nccl" in done.stderr
    assert "nvidia-smi" in done.stderr


def test_a_start_with_a_dead_name_server_is_no_slower_than_with_a_good_one(
    make_lab: Callable[..., Lab], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "hello.py").write_text(HELLO + DONE)
    labs = {resolver: make_lab(2, resolver=resolver) for resolver in ("silent", "refuses")}
    taken: dict[str, list[float]] = {resolver: [] for resolver in labs}
    for _ in range(2):  # in turns: the machine is not equally busy all the time
        for resolver, lab in labs.items():
            monkeypatch.setenv("DDP_ORCH_INVENTORY", str(lab.inventory_path))
            monkeypatch.setenv("DDP_ORCH_SSH_CONFIG", str(lab.ssh_config_path))
            start = time.monotonic()
            done = ddp("run", "hello.py", cwd=project)
            taken[resolver].append(time.monotonic() - start)
            assert done.returncode == 0, done.stderr
            assert ("RES_OPTIONS=attempts:0" in done.stderr) == (resolver == "silent"), done.stderr
    # Preflight itself waits 1.5 s before it calls the server dead; where nothing is mended, 10 s a look-up follow.
    assert min(taken["silent"]) < 2 * min(taken["refuses"])

"""The probe and the port trial, really run on this machine."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.model.facts import facts_from_json
from orchestrator.model.host import Host
from orchestrator.preflight.nvidia_smi import read_nvidia_smi
from orchestrator.transport.local_link import LocalLink
from orchestrator.transport.node_program import Conversation, program_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from orchestrator.model.facts import Facts

HERE = Host("here", "127.0.0.1", "here", "local", python=sys.executable)
TOKEN = "0123456789abcdef"


def look(**order: object) -> Facts:
    with Conversation(LocalLink(HERE), "probe") as talk:
        whole = {"workdir": "~/ddp-orch-test", "peers": [], "limit_s": 10, **order}
        return facts_from_json(talk.ask(whole, timeout_s=15))


def test_probe_tells_of_this_machine_what_python_knows_of_it() -> None:
    facts = look()
    assert facts.problems == {}
    assert facts.hostname == socket.gethostname()
    assert facts.home == os.path.expanduser("~")  # noqa: PTH111 - what the probe must have done
    assert facts.python == sys.executable
    assert facts.python_version == ".".join(map(str, sys.version_info[:3]))
    assert 1 <= facts.cpu_count <= len(os.sched_getaffinity(0))
    assert abs(facts.clock_s - time.time()) < 5
    assert facts.places["tmp"].writable
    assert not facts.places["workdir"].exists
    assert facts.workdir == os.path.expanduser("~/ddp-orch-test")  # noqa: PTH111 - same
    assert facts.nvidia_smi is None


def test_a_peer_on_this_machine_is_reached_by_the_loopback_interface() -> None:
    facts = look(peers=["127.0.0.1"])
    assert facts.name_lookup_s is not None
    assert facts.peer_interface == "lo"
    lo = next(interface for interface in facts.interfaces if interface.name == "lo")
    assert lo.running
    assert lo.addresses[0] == "127.0.0.1"


def test_an_unknown_peer_is_that_peers_problem_alone() -> None:
    facts = look(peers=["127.0.0.1", "nobody.invalid"])
    assert facts.routes["127.0.0.1"].interface == "lo"
    assert facts.routes["nobody.invalid"].problem  # how it is said depends on the resolver here


def test_torch_is_read_without_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "torch"
    (package / "distributed").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "distributed" / "run.py").write_text("")
    (package / "version.py").write_text(
        "from typing import Optional\n__version__ = '2.9.0+cu128'\ncuda: Optional[str] = '12.8'\n"
        "git_version = 'abc'\nhip: Optional[str] = None\n"
    )
    (tmp_path / "nvidia_nccl_cu12-2.27.5.dist-info").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    facts = look()
    assert facts.torch is not None
    assert (facts.torch.version, facts.torch.cuda, facts.torch.hip) == ("2.9.0+cu128", "12.8", "")
    assert facts.torch.has_torchrun
    assert facts.packages["nvidia-nccl-cu12"] == "2.27.5"


def test_modules_that_an_import_would_not_find_are_told() -> None:
    assert look(modules=["json", "click", "no_such_module_here"]).missing_modules == ("no_such_module_here",)


def test_secrets_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("TORCH_HUB_TOKEN", "hidden")
    monkeypatch.setenv("CUDA_SECRET", "hidden")
    monkeypatch.setenv("HF_HOME", "not ours to read")
    env = look().env
    assert env["NCCL_DEBUG"] == "INFO"
    assert not {"TORCH_HUB_TOKEN", "CUDA_SECRET", "HF_HOME"} & set(env)


@pytest.mark.parametrize(
    ("command", "is_one"),
    [
        ("/usr/bin/python3 -m torch.distributed.run --nnodes=2 train.py", True),
        ("/home/ann/venv/bin/python /home/ann/venv/bin/torchrun --nnodes=2 train.py", True),
        ("/opt/conda/bin/python3.11 /opt/conda/bin/accelerate launch train.py", True),
        ("vim /home/ann/torchrun.py", False),
        ("grep -r torch.distributed.run .", False),
        ("python /home/ann/torchrun_notes.py", False),
    ],
)
def test_a_training_is_told_from_what_only_speaks_of_one(command: str, *, is_one: bool) -> None:
    from orchestrator.node.host_facts import TRAINING

    assert bool(TRAINING.search(command)) == is_one


def test_a_process_of_a_run_is_found_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDP_ORCH_RUN", "20260901-000000-test")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as sleeper:
        monkeypatch.delenv("DDP_ORCH_RUN")
        found = [process.run for process in look().running if process.pid == sleeper.pid]
        sleeper.communicate()
    assert found == ["20260901-000000-test"]


@pytest.fixture
def fake_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    script = tmp_path / "nvidia-smi"
    script.touch()
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


ROW = "0, NVIDIA H100 80GB HBM3, GPU-00000000-0000-0000-0000-000000000000, 00000000:01:00.0, 570.124.06, 81559, 4"


@pytest.mark.parametrize(
    ("script", "code", "good", "complaint"),
    [
        (f"echo '{ROW}'", 0, 1, ""),
        (f"echo '{ROW.replace('81559', '[N/A]')}'", 0, 1, ""),
        (f"echo '{ROW.replace('81559', '[GPU requires reset]')}'", 0, 0, ""),
        ("echo 'No devices were found'; exit 6", 6, 0, "No devices were found"),
        ("kill -SEGV $$", -11, 0, ""),
        ("printf 'no \\377 UTF-8'; exit 3", 3, 0, "no \ufffd UTF-8"),
    ],
    ids=["fine", "not said", "needs reset", "no devices", "crash", "bytes"],
)
def test_nvidia_smi_comes_back_as_it_was(
    fake_nvidia_smi: Path, script: str, code: int, good: int, complaint: str
) -> None:
    fake_nvidia_smi.write_text(f"#!/bin/sh\n{script}\n")
    answer = look(gpus=True).nvidia_smi
    assert answer is not None
    assert answer.found
    assert answer.code == code
    reading = read_nvidia_smi(answer)
    assert (len(reading.good), reading.complaint) == (good, complaint)


def test_a_hanging_nvidia_smi_costs_its_time_and_nothing_else(fake_nvidia_smi: Path) -> None:
    fake_nvidia_smi.write_text("#!/bin/sh\nexec sleep 60\n")
    start = time.monotonic()
    facts = look(gpus=True, limit_s=1.5)
    assert time.monotonic() - start < 4
    assert facts.nvidia_smi is not None
    assert (facts.nvidia_smi.found, facts.nvidia_smi.code) == (True, None)
    assert facts.hostname == socket.gethostname()


def test_without_nvidia_smi_that_is_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.path.exists("/usr/bin/nvidia-smi"):  # noqa: PTH110 - one look
        pytest.skip("this machine has one")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    answer = look(gpus=True).nvidia_smi
    assert answer is not None
    assert not answer.found


# --- ports -------------------------------------------------------------------------------------------------------


@pytest.fixture
def trial() -> Iterator[Conversation]:
    with Conversation(LocalLink(HERE), "port_trial") as talk:
        yield talk


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask_one(talk: Conversation, what: str, answer: str, **order: object) -> Mapping[str, Any]:
    token = order.pop("token", TOKEN)
    if what == "connect":
        order = {"bytes": 65536, **order}
    (one,) = talk.ask({what: [order], "token": token, "timeout_s": 1}, timeout_s=10)[answer]
    assert isinstance(one, dict)
    return one


def test_a_listener_echoes_64_kib_and_gives_its_port_back(trial: Conversation) -> None:
    port = ask_one(trial, "listen", "listening", port=0)["port"]
    call = ask_one(trial, "connect", "connected", address="127.0.0.1", port=port)
    assert call["ok"]
    assert call["connect_s"] < 1
    assert trial.ask({"unlisten": True}, timeout_s=5)["listening"] == []
    again = ask_one(trial, "connect", "connected", address="127.0.0.1", port=port)
    assert (again["ok"], again["stage"], again["errno"]) == (False, "connect", 111)
    assert ask_one(trial, "listen", "listening", port=port) == {"port": port}


def test_a_caller_without_the_token_gets_nothing(trial: Conversation) -> None:
    port = ask_one(trial, "listen", "listening", port=0)["port"]
    call = ask_one(trial, "connect", "connected", address="127.0.0.1", port=port, token="f" * 16)
    assert (call["ok"], call["stage"]) == (False, "greeting")


def test_the_holder_of_a_taken_port_is_named(trial: Conversation) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))  # on one address only: torchrun, which wants all, fails all the same
        holder.listen()
        port = holder.getsockname()[1]
        answer = ask_one(trial, "listen", "listening", port=port)
    assert (answer["port"], answer["errno"]) == (port, 98)
    assert answer["holder"]["pid"] == os.getpid()
    assert "python" in answer["holder"]["command"]


def test_a_port_that_only_waits_for_old_connections_is_free_as_it_is_for_torchrun(trial: Conversation) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("0.0.0.0", 0))  # noqa: S104 - for a moment
        listener.listen()
        port = listener.getsockname()[1]
        with closing(socket.create_connection(("127.0.0.1", port))):
            listener.accept()[0].close()  # this end closes first, so its address waits in TIME_WAIT
            time.sleep(0.05)
    assert ask_one(trial, "listen", "listening", port=port) == {"port": port}


def test_another_program_on_the_port_is_told_from_our_listener(trial: Conversation) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        call = ask_one(trial, "connect", "connected", address="127.0.0.1", port=stranger.getsockname()[1])
    assert (call["ok"], call["stage"], call["errno"]) == (False, "greeting", 110)


def test_calls_fail_each_in_its_own_way_and_in_the_order_asked(trial: Conversation) -> None:
    targets = [{"address": "nobody.invalid", "port": 1}, {"address": "127.0.0.1", "port": free_port()}]
    answer = trial.ask({"connect": targets, "token": TOKEN, "timeout_s": 2}, timeout_s=10)["connected"]
    assert [call["stage"] for call in answer] == ["name", "connect"]


def test_a_port_out_of_a_range_is_listened_on_and_only_connected_to(trial: Conversation) -> None:
    port = ask_one(trial, "listen", "listening", address="127.0.0.1", between=[40000, 40999])["port"]
    assert 40000 <= port <= 40999
    call = ask_one(trial, "connect", "connected", address="127.0.0.1", port=port, bytes=0)
    assert call["ok"]


def test_what_is_sent_for_a_while_is_counted_where_it_arrives(trial: Conversation) -> None:
    with Conversation(LocalLink(HERE), "port_trial") as other:
        port = ask_one(other, "listen", "listening", address="127.0.0.1", port=0)["port"]
        order = {
            "send": {"address": "127.0.0.1", "port": port},
            "token": TOKEN,
            "seconds": 0.1,
            "most_bytes": 1 << 22,
            "timeout_s": 2,
        }
        sent = trial.ask(order, timeout_s=10)["sent"]
    assert sent["ok"]
    assert sent["bytes"] > 1 << 20
    assert 0 < sent["seconds"] < 2
    assert 0 <= sent["queued_s"] < 2


def test_every_answer_tells_the_clock(trial: Conversation) -> None:
    assert abs(trial.ask({"unlisten": True}, timeout_s=5)["clock_s"] - time.time()) < 5


def test_the_listener_ends_with_the_conversation() -> None:
    with Conversation(LocalLink(HERE), "port_trial") as talk:
        port = ask_one(talk, "listen", "listening", port=0)["port"]
    with socket.socket() as call:
        assert call.connect_ex(("127.0.0.1", port)) == 111


def test_the_probe_becomes_the_port_trial_without_a_second_interpreter() -> None:
    with Conversation(LocalLink(HERE), "probe") as talk:
        talk.ask({"workdir": "/tmp"}, timeout_s=15)
        talk.send({"then": "port_trial"}, program_text("port_trial"))
        assert ask_one(talk, "listen", "listening", port=0)["port"] > 0
        talk.end_input()
        assert talk.receive(5) is None

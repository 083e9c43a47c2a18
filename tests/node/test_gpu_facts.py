"""What the probe asks a stand-in of nvidia-smi, and what comes of it."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import pytest

from orchestrator.model.facts import facts_from_json
from orchestrator.model.host import Host
from orchestrator.node import gpu_facts
from orchestrator.preflight.topology import pairs
from orchestrator.transport.local_link import LocalLink
from orchestrator.transport.node_program import Conversation

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.model.facts import Facts

# An old driver: it does not know three of the fields, and one bad field spoils the whole query.
STAND_IN = """#!{python}
import re, sys, time
words = " ".join(sys.argv[1:])
if "query-gpu=index,name" in words:
    for number in (0, 1):
        print(f"{{number}}, {name}, GPU-{{number}}, 00000000:0{{number}}:00.0, 470.82.01, 40960, 0")
elif "query-gpu" in words:
    if {hang}:
        time.sleep(60)
    fields = re.search("query-gpu=([^ ]*)", words)[1].split(",")
    for field in fields:
        if field.startswith(("clocks_event", "gpu_rec", "fabric")):
            print(f'Field "{{field}}" is not a valid field to query.\\n')
            sys.exit(2)
    told = dict(zip(fields, fields), **{{
        "index": "0", "compute_cap": "8.0", "compute_mode": "Default", "temperature.gpu": "41",
        "mig.mode.current": "Disabled", "clocks_throttle_reasons.active": "0x0000000000000008",
        "ecc.errors.uncorrected.volatile.total": "[N/A]"}})
    print(", ".join(told[field] for field in fields))
elif "compute-apps" in words:
    print("{pid}, GPU-1, python, 900")
    print("999999999, GPU-0, /usr/bin/gone, [N/A]")
    print("1, GPU-0, /opt/of/another/namespace, 8")
elif "-p2p" in words:
    print(" \\tGPU0\\tGPU1\\t\\n GPU0\\tX\\tGNS\\t\\n GPU1\\tGNS\\tX\\t")
elif "topo" in words:
    print("\\tGPU0\\tGPU1\\nGPU0\\t X \\t{way}\\nGPU1\\t{way}\\t X ")
elif words == "-q":
    print("    vGPU Software Licensed Product\\n        License Status                    : Unlicensed (Restricted)")
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "nvidia-smi"


A100 = "NVIDIA A100-SXM4-40GB"


def look(path: Path, *, hang: bool = False, limit_s: float = 10, name: str = A100, way: str = "NV12") -> Facts:
    path.write_text(STAND_IN.format(python=sys.executable, pid=os.getpid(), hang=hang, name=name, way=way))
    path.chmod(0o755)
    host = Host("here", "127.0.0.1", "here", "local", python=sys.executable)
    with Conversation(LocalLink(host), "probe") as talk:
        order = {"workdir": "~/ddp-orch-test", "peers": [], "gpus": True, "limit_s": limit_s}
        return facts_from_json(talk.ask(order, timeout_s=15))


def test_fields_that_an_old_driver_does_not_know_are_left_out_and_the_others_told(stand_in: Path) -> None:
    facts = look(stand_in)
    detail = facts.gpu.detail(0)
    assert detail is not None
    assert (detail.capability, detail.mig, detail.slowed_by, detail.temperature_c) == ("8.0", "Disabled", 8, 41)
    assert (detail.recovery, detail.fabric, detail.uncorrected_errors) == ("", "", None)
    assert "NV12" in facts.gpu.topology
    assert not facts.gpu.hung
    assert facts.gpu.peer_access == ""  # NVLink has no need of it
    assert facts.gpu.license == ""


def test_a_share_of_a_card_is_asked_for_its_licence(stand_in: Path) -> None:
    assert look(stand_in, name="GRID A100-8C").gpu.license == "Unlicensed (Restricted)"


def test_cards_without_nvlink_are_asked_whether_they_reach_each_other(stand_in: Path) -> None:
    gpu = look(stand_in, way="PHB").gpu
    assert pairs(gpu.topology) == {(0, 1): "PHB"}
    assert pairs(gpu.peer_access) == {(0, 1): "GNS"}


def test_who_holds_memory_is_told_as_far_as_it_can_be_seen(stand_in: Path) -> None:
    mine, gone, other = look(stand_in).gpu.processes
    assert (mine.pid, mine.uuid, mine.memory_mib) == (os.getpid(), "GPU-1", 900)
    assert "pytest" in mine.command
    assert 0 < time.time() - mine.since_s < 24 * 3600
    assert (other.user, other.command) == ("", "")  # pid 1 is there, and is another program
    assert (gone.pid, gone.user, gone.memory_mib, gone.name) == (999999999, "", None, "/usr/bin/gone")


def test_a_second_question_that_hangs_leaves_the_first_answer(stand_in: Path) -> None:
    start = time.monotonic()
    facts = look(stand_in, hang=True, limit_s=3)
    assert time.monotonic() - start < 8
    assert facts.nvidia_smi is not None
    assert "A100" in facts.nvidia_smi.stdout
    assert facts.gpu.details == ()
    assert facts.gpu.hung
    assert facts.gpu.topology == ""  # no further question is put to a driver that hangs
    assert "nvidia_smi" not in facts.problems


def test_dcgm_is_asked_where_it_is(stand_in: Path) -> None:
    dcgmi = stand_in.with_name("dcgmi")
    dcgmi.write_text('#!/bin/sh\necho "| Overall Health | Healthy | $*"\n')
    dcgmi.chmod(0o755)
    gpu = look(stand_in).gpu
    assert "dcgmi" in gpu.tools
    assert gpu.dcgm == "| Overall Health | Healthy | health -c\n"


def test_the_kernels_log_is_read_to_its_end_without_waiting_for_more() -> None:
    try:
        records = gpu_facts.kernel_records()
    except OSError as error:
        pytest.skip(f"closed here: {error}")
    assert all(0 <= at <= time.monotonic() for at, _ in records)


@pytest.mark.parametrize(
    ("script", "lines", "problem"),
    [
        ("echo '[    1.000000] NVRM: loading\n[    2.500000] usb 1-1: new'", ["NVRM: loading"], ""),
        ("echo 'dmesg: read kernel buffer failed' >&2; exit 1", [], "Permission denied"),
    ],
    ids=["allowed", "forbidden"],
)
def test_where_the_kernels_log_is_closed_dmesg_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, lines: list[str], problem: str
) -> None:
    def closed() -> list[tuple[float, str]]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(gpu_facts, "kernel_records", closed)
    dmesg = tmp_path / "dmesg"
    dmesg.write_text(f"#!/bin/sh\n{script}\n")
    dmesg.chmod(0o755)
    told = gpu_facts.kernel_log()
    assert [line["text"] for line in told["kernel_log"]] == lines
    assert all(abs(time.monotonic() - 1 - line["age_s"]) < 5 for line in told["kernel_log"])
    assert told["kernel_log_problem"] == problem


def test_the_architectures_are_found_between_other_words_of_a_library(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    library = tmp_path / "lib" / "libtorch_python.so"
    assert gpu_facts.torch_architectures(str(tmp_path)) == ""
    library.write_bytes(b"\0fsm_17 sm_x\0asm_volatile\0sm_80\0" + 5000 * b"x")
    assert gpu_facts.torch_architectures(str(tmp_path)) == ""  # one alone may be any word
    library.write_bytes(b"\0an sm_70 card\0sm_80 sm_90a compute_90\0asm_volatile")
    assert gpu_facts.torch_architectures(str(tmp_path)) == "sm_80 sm_90a compute_90"


@pytest.mark.torch
def test_the_architectures_are_those_that_torch_itself_names(stand_in: Path) -> None:
    import subprocess

    code = "import torch; print(*(torch._C._cuda_getArchFlags() or '').split())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert look(stand_in).gpu.architectures == tuple(said)

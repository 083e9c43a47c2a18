"""What the probe asks a stand-in of nvidia-smi, and what comes of it."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import pytest

from orchestrator.model.facts import facts_from_json
from orchestrator.model.host import Host
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
        print(f"{{number}}, NVIDIA A100-SXM4-40GB, GPU-{{number}}, 00000000:0{{number}}:00.0, 470.82.01, 40960, 0")
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
elif "topo" in words:
    print("\\tGPU0\\tGPU1\\nGPU0\\t X \\tNV12\\nGPU1\\tNV12\\t X ")
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "nvidia-smi"


def look(path: Path, *, hang: bool = False, limit_s: float = 10) -> Facts:
    path.write_text(STAND_IN.format(python=sys.executable, pid=os.getpid(), hang=hang))
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


def test_who_holds_memory_is_told_as_far_as_it_can_be_seen(stand_in: Path) -> None:
    mine, gone = look(stand_in).gpu.processes
    assert (mine.pid, mine.uuid, mine.memory_mib) == (os.getpid(), "GPU-1", 900)
    assert "pytest" in mine.command
    assert 0 < time.time() - mine.since_s < 24 * 3600
    assert (gone.pid, gone.user, gone.memory_mib, gone.name) == (999999999, "", None, "/usr/bin/gone")


def test_a_second_question_that_hangs_leaves_the_first_answer(stand_in: Path) -> None:
    start = time.monotonic()
    facts = look(stand_in, hang=True, limit_s=3)
    assert time.monotonic() - start < 8
    assert facts.nvidia_smi is not None
    assert "A100" in facts.nvidia_smi.stdout
    assert facts.gpu.details == ()


@pytest.mark.torch
def test_the_architectures_are_those_that_torch_itself_names(stand_in: Path) -> None:
    import subprocess

    code = "import torch; print(*(torch._C._cuda_getArchFlags() or '').split())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert look(stand_in).gpu.architectures == tuple(said)

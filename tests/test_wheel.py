"""What is packaged: the worker travels as data, and is no package of its own."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.metadata import requires
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_wheel_carries_the_worker_as_data_and_the_node_programs(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    wheel = next(tmp_path.glob("ddp_orch-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry = archive.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"orchestrator"}
    assert {f"orchestrator/bundled_worker/{path.name}" for path in (ROOT / "worker").glob("*.py")} <= names
    assert {f"orchestrator/node/{path.name}" for path in (ROOT / "orchestrator" / "node").glob("*.py")} <= names
    assert "ddp-orch = orchestrator.cli.__main__:main" in entry


def test_the_base_dependencies_have_no_torch() -> None:
    base = [line for line in requires("ddp-orch") or [] if "extra ==" not in line]
    worker = [line for line in requires("ddp-orch") or [] if "extra == 'worker'" in line.replace('"', "'")]
    assert not [line for line in base if line.startswith("torch")]
    assert [line.split(">")[0] for line in worker] == ["torch", "torchvision"]

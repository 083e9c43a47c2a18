from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "orchestrator.cli"]


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, env={**os.environ, **env})


def test_help_is_as_quick_as_the_two_libraries_it_cannot_do_without() -> None:
    def seconds(*argv: str) -> float:
        started = time.perf_counter()
        subprocess.run(argv, check=True, capture_output=True)
        return time.perf_counter() - started

    bare = [sys.executable, "-c", "import click, yaml"]
    pairs = [(seconds(*COMMAND, "--help"), seconds(*bare)) for _ in range(9)]
    # 0.9 on an idle machine, and 1.5 is promised; twice that here, for a machine that is busy.
    assert min(ours for ours, _ in pairs) < 3.0 * min(theirs for _, theirs in pairs)


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["plan", "-i", "inventory/local.yaml"]])
def test_the_controller_never_imports_torch(words: list[str]) -> None:
    code = (
        "import sys\n"
        "from orchestrator.cli.error_screen import guarded\n"
        "from orchestrator.cli.main import ddp_orch\n"
        f"code = guarded(lambda: ddp_orch.main({words!r}, 'ddp-orch', standalone_mode=False))\n"
        "heavy = {'torch', 'torchvision'} & set(sys.modules)\n"
        "sys.exit(code or len(heavy))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_help_loads_nothing_but_click() -> None:
    code = (
        "import sys\nfrom orchestrator.cli.main import ddp_orch\n"
        "ddp_orch.main(['--help'], 'ddp-orch', standalone_mode=False)\n"
        "sys.exit(len({'fabric', 'paramiko', 'rich', 'pydantic', 'yaml'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_a_misspelt_verb_is_suggested() -> None:
    done = run("preflihgt")
    assert done.returncode == 2
    assert "did you mean 'preflight'?" in done.stderr


def test_options_of_the_script_without_the_two_dashes_are_explained() -> None:
    done = run("run", "train.py", "--lr", "0.1")
    assert done.returncode == 2
    assert "No such option: --lr. Options of the script go behind `--`." in done.stderr


def test_a_missing_inventory_is_told_without_a_traceback(tmp_path: Path) -> None:
    done = run("plan", "-i", str(tmp_path / "none.yaml"))
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert "none.yaml" in done.stderr


def test_plan_shows_the_commands_of_the_users_two_hosts() -> None:
    done = run("plan", "-i", "inventory/lab.yaml", "--backend", "gloo", "--json", "ddp_demo.py")
    assert done.returncode == 2  # there is no such script here
    done = run("plan", "-i", "inventory/lab.yaml", "--backend", "gloo", "--json", "--", "--epochs", "2")
    body = json.loads(done.stdout)
    assert body["schema"] == 1
    assert [(rank["rank"], rank["device"]) for rank in body["ranks"]] == [(0, "cuda:0"), (1, "cuda:0")]
    commands = list(body["commands"].values())
    assert commands[1][:7] == [
        "torchrun",
        "--nproc_per_node=1",
        "--nnodes=2",
        "--node_rank=1",
        "--rdzv_id=RUN",
        "--master_addr=192.168.20.43",
        "--master_port=29500",
    ]
    assert commands[1][-2:] == ["--epochs", "2"]


def test_words_behind_the_two_dashes_reach_the_script_untouched(tmp_path: Path) -> None:
    (tmp_path / "my train.py").write_text("")
    words = ["--", "-x", "a b", "$HOME", "--help"]
    done = run("plan", "-i", "inventory/local.yaml", "--json", str(tmp_path / "my train.py"), "--", *words)
    command = next(iter(json.loads(done.stdout)["commands"].values()))
    assert command[command.index("my train.py") + 1 :] == words


def test_a_fault_of_ours_is_told_as_such_with_where_the_details_are(monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestrator.cli import error_screen

    said: list[str] = []
    monkeypatch.setattr(error_screen, "_say", said.append)

    def broken() -> None:
        raise ZeroDivisionError("oops")

    assert error_screen.guarded(broken) == 70
    assert said[0] == "error: this is a fault of ddp-orch itself: ZeroDivisionError: oops"
    report = Path(said[1].rpartition(" ")[2])
    assert "ZeroDivisionError: oops" in report.read_text()
    report.unlink()


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestrator.cli import error_screen

    monkeypatch.setattr(error_screen, "_say", lambda _text: None)

    def interrupted() -> None:
        raise KeyboardInterrupt

    assert error_screen.guarded(interrupted) == 130


def test_a_reader_that_has_gone_is_no_error() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" -m orchestrator.cli plan -i inventory/local.yaml | true', sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""

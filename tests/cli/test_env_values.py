from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.cli.env_values import PRIVATE, split_values

COMMAND = [sys.executable, "-m", "orchestrator.cli"]


@pytest.mark.parametrize(
    ("words", "shown", "values"),
    [
        (["run", "--env", "A=1", "t.py"], ["run", "--env", "A", "t.py"], {"A": "1"}),
        (["run", "--env=A=1=2"], ["run", "--env=A"], {"A": "1=2"}),
        (["run", "t.py", "--env", "A="], ["run", "t.py", "--env", "A"], {"A": ""}),
        (["run", "--env", "A", "--env=B"], ["run", "--env", "A", "--env=B"], {}),
        (["run", "--env", "A=1", "--env", "A=2"], ["run", "--env", "A", "--env", "A"], {"A": "2"}),
        (["run", "--env", "A=1", "--env", "A"], ["run", "--env", "A", "--env", "A"], {}),
        (["run", "--en=A=1"], ["run", "--en=A"], {"A": "1"}),  # click says what it thinks of that
        (["run", "--env", "no name=1"], ["run", "--env", "no name"], {"no name": "1"}),
        (["run", "--exclude=A=1", "--env"], ["run", "--exclude=A=1", "--env"], {}),
        (["run", "--env", "A=1", "--", "--env", "B=2"], ["run", "--env", "A", "--", "--env", "B=2"], {"A": "1"}),
        (["run", "--env", "--", "A=1"], ["run", "--env", "--", "A=1"], {}),
        (["--", "run", "--env", "A=1"], ["--", "run", "--env", "A"], {"A": "1"}),
        (["lab", "exec", "h", "env", "--env", "A=1"], ["lab", "exec", "h", "env", "--env", "A=1"], {}),
        (["--env", "A=1"], ["--env", "A=1"], {}),
        ([], [], {}),
    ],
)  # fmt: skip
def test_values_are_taken_out_of_the_words_in_front_of_the_scripts_own(
    words: list[str], shown: list[str], values: dict[str, str]
) -> None:
    assert split_values(words) == (shown, values)


SHOW = """
import json, os, subprocess, sys
from orchestrator.cli import __main__, main, run
def show():
    named = dict(run._env(("SECRET", "PATH", "PLAIN")))
    inherited = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
    print(json.dumps([sys.orig_argv, named, inherited]))
main.main = show
__main__.main()
"""


def test_the_value_is_in_no_command_line_and_no_child_inherits_it() -> None:
    secret = secrets.token_hex(16) + " é\n="
    words = ["run", "--env", f"SECRET={secret}", "--env", f"PATH={secret}", "--env", "PLAIN", "--", "--env", "X=1"]
    argv = [sys.executable, "-X", "utf8", "-c", SHOW, *words]
    environ = {**os.environ, "PLAIN": "as in the shell"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    shown, named, inherited = json.loads(done.stdout)
    assert shown == [*argv[:5], "run", "--env", "SECRET", "--env", "PATH", "--env", "PLAIN", "--", "--env", "X=1"]
    assert named == {"SECRET": secret, "PATH": secret, "PLAIN": "as in the shell"}
    assert secret[:32] not in inherited
    assert PRIVATE not in inherited


def test_the_value_is_gone_from_the_process_list_before_anything_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("")
    secret = secrets.token_hex(16)
    fifo = tmp_path / "inventory.yaml"
    os.mkfifo(fifo)  # it waits there for as long as this test likes
    argv = [*COMMAND, "run", "-i", str(fifo), "--env", f"SECRET={secret}", str(tmp_path / "t.py")]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    started = time.monotonic()
    cmdline = Path(f"/proc/{process.pid}/cmdline")
    while secret in cmdline.read_text() or b"orchestrator" not in cmdline.read_bytes():
        assert time.monotonic() < started + 30
        time.sleep(0.001)
    assert "--env\0SECRET\0" in cmdline.read_text()
    with fifo.open("w") as stream:
        stream.write("hosts: 3\n")
    out, err = process.communicate(timeout=20)
    assert process.returncode == 3, err
    assert secret not in out + err


@pytest.mark.parametrize("word", ["{}", "={}", "A B={}", "1={}", "A-{}"])
def test_a_bad_name_is_told_without_the_value(word: str) -> None:
    secret = "s3cr3t" + secrets.token_hex(8)
    done = subprocess.run([*COMMAND, "run", "--env", word.format(secret)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    if "=" in word:
        assert secret not in done.stdout + done.stderr


def test_a_value_too_long_for_the_environment_is_told() -> None:
    done = subprocess.run([*COMMAND, "run", "--env", "A=" + "x" * 131_060], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert done.stderr.startswith("error: --env: Argument list too long\n")

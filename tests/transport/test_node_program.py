from __future__ import annotations

import stat
import sys
from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import NodeProgramFailed
from orchestrator.model.host import Host
from orchestrator.transport import node_program
from orchestrator.transport.local_link import LocalLink
from orchestrator.transport.node_program import Conversation

if TYPE_CHECKING:
    from pathlib import Path

ECHO = b"""
import json, sys
while True:
    line = sys.stdin.buffer.readline()
    if not line:
        break
    body = json.loads(line)
    data = sys.stdin.buffer.read(body.get("payload", 0))
    if body.get("die"):
        sys.exit("last words")
    if body.get("garble"):
        print("what?", flush=True)
        continue
    sys.stdout.buffer.write(json.dumps({"got": body, "payload": len(data)}).encode() + b"\\n" + data)
    sys.stdout.buffer.flush()
"""


@pytest.fixture(autouse=True)
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_program, "program_text", lambda _name: ECHO)


def link(python: str = sys.executable) -> LocalLink:
    return LocalLink(Host(name="here", address="127.0.0.1", ssh="", connection="local", python=python))


def script(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_messages_and_raw_bytes_go_both_ways() -> None:
    data = bytes(range(256)) * 4096
    with Conversation(link(), "echo") as talk:
        talk.send({"text": "é\n"}, data)
        message = talk.receive(10)
        assert message is not None
        assert message.body["got"] == {"text": "é\n", "payload": len(data)}
        assert message.payload == data
        talk.end_input()
        assert talk.receive(10) is None


def test_noise_of_the_login_shell_is_kept_apart(tmp_path: Path) -> None:
    noisy = script(tmp_path, f'echo "Welcome to node!"; echo; exec {sys.executable} "$@"')
    with Conversation(link(noisy), "echo") as talk:
        assert talk.noise == "Welcome to node!"
        assert talk.ask({"a": 1}, timeout_s=10)["got"] == {"a": 1}


def test_a_slow_answer_is_awaited_in_pieces_without_losing_any() -> None:
    with Conversation(link(), "echo") as talk:
        with pytest.raises(TimeoutError):
            talk.receive(0.05)
        assert talk.ask({"a": 1}, timeout_s=10)["got"] == {"a": 1}


@pytest.mark.parametrize(
    ("python", "reason", "words"),
    [
        ("no-such-python", "no_python", "there is no no-such-python in the launch shell"),
        ("conda:nowhere", "no_conda_env", "conda has no environment called nowhere here"),
        ("/proc/version", "not_executable", "/proc/version cannot be executed"),
    ],
)
def test_each_way_that_the_start_can_fail_has_its_sentence(python: str, reason: str, words: str) -> None:
    with pytest.raises(NodeProgramFailed) as caught:
        Conversation(link(python), "echo")
    assert caught.value.reason == reason
    assert caught.value.message == words
    assert caught.value.try_this


def test_an_interpreter_that_is_too_old_is_told_by_its_exit_code(tmp_path: Path) -> None:
    with pytest.raises(NodeProgramFailed, match=r"is older than Python 3\.8"):
        Conversation(link(script(tmp_path, "exit 98")), "echo")


def test_a_program_that_arrives_damaged_is_not_run(tmp_path: Path) -> None:
    eats_a_byte = script(tmp_path, f'dd bs=1 count=1 of=/dev/null 2>/dev/null; exec {sys.executable} "$@" </dev/null')
    with pytest.raises(NodeProgramFailed) as caught:
        Conversation(link(eats_a_byte), "echo")
    assert caught.value.reason == "damaged"


def test_an_interpreter_that_hangs_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(NodeProgramFailed, match="did not start in time"):
        Conversation(link(script(tmp_path, "exec sleep 3")), "echo", start_timeout_s=0.3)


def test_a_program_that_dies_leaves_its_last_words() -> None:
    with Conversation(link(), "echo") as talk, pytest.raises(NodeProgramFailed, match=r"exit code 1\): last words"):
        talk.ask({"die": True}, timeout_s=10)


def test_what_is_no_message_is_refused() -> None:
    with Conversation(link(), "echo") as talk, pytest.raises(NodeProgramFailed, match=r"no message: b'what\?'"):
        talk.ask({"garble": True}, timeout_s=10)


def test_silence_is_told_as_such() -> None:
    with Conversation(link(), "echo") as talk, pytest.raises(NodeProgramFailed, match="gave no answer within 0 s"):
        talk.expect(timeout_s=0.1)


@pytest.mark.parametrize("same_release", [True, False])
def test_parts_travel_with_a_program_compiled_or_as_text(
    monkeypatch: pytest.MonkeyPatch, *, same_release: bool
) -> None:
    monkeypatch.undo()
    if not same_release:
        monkeypatch.setattr(node_program, "MAGIC_NUMBER", b"of another Python")
    node_program.program_text.cache_clear()
    try:
        with Conversation(link(), "probe") as talk:
            answer = talk.ask({"workdir": "/tmp", "peers": []}, timeout_s=20)
    finally:
        node_program.program_text.cache_clear()
    assert answer["problems"] == {}
    assert answer["python"]["executable"] == sys.executable

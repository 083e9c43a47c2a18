from __future__ import annotations

import pytest

from orchestrator.cli.screen import safe
from orchestrator.diagnosis.blame import how_it_ended
from orchestrator.model.run_record import RankEnd


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext é 字", "plain\ttext é 字"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x1b[2J\x1b[H", "\\x1b[2J\\x1b[H"),
        ("a\rb", "a\\x0db"),
        ("\x9b31m", "\\x9b31m"),
        ("admin\u202egnp.exe", "admin\\x202egnp.exe"),
    ],
)
def test_text_of_a_host_cannot_drive_the_terminal(text: str, shown: str) -> None:
    assert safe(text) == shown


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "ended with exit code 1"),
        (-11, "was ended by SIGSEGV"),
        (-9, "was ended by SIGKILL (the kernel does this when memory runs out)"),
        (-63, "was ended by signal 63"),
    ],
)
def test_an_end_is_told_in_words(code: int, words: str) -> None:
    assert how_it_ended(RankEnd(0, "a", code, 0.0)) == words

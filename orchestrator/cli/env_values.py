"""Values of `--env NAME=VALUE` out of the process list, where every user of this machine could read them.

A process cannot take words out of its own command line, so the command starts itself once more, with `--env NAME` and
the value in its environment, which only this account (and root) can read, under a name that changes nothing here:
`--env PATH=...` is for the workers. From there it is taken out before any other program is started.
"""

from __future__ import annotations

import os
import sys

PRIVATE = "DDP_ORCH_ENV_VALUE_"
OPTION = "--env"


def hide_values() -> None:
    """Start this command again without the values, where its command line has any; returns where it has none."""
    words = sys.argv[1:]
    shown, values = split_values(words)
    if not values or sys.orig_argv[len(sys.orig_argv) - len(words) :] != words:
        return
    # How Python itself was started (-m, -X ...) stays; the path is its own, since argv may hold a name on PATH.
    interpreter = sys.orig_argv[1 : len(sys.orig_argv) - len(words)]
    environment = {**os.environ, **{PRIVATE + name: value for name, value in values.items()}}
    try:
        os.execve(sys.executable, [sys.executable, *interpreter, *shown], environment)  # noqa: S606 - no shell wanted
    except OSError as error:
        sys.stderr.write(f"error: --env: {error.strerror}\n  try: a shorter value, or a file that the script reads\n")
        sys.exit(2)


def split_values(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Take the values of --env out of a command line.

    Args:
        words: those behind the program's name.
    Returns:
        the words without values, and the values by name: for each name the one that counts, the last.
    """
    verb = next((number for number, word in enumerate(words) if not word.startswith("-")), len(words))
    end = words.index("--", verb) if "--" in words[verb:] else len(words)  # what follows belongs to the script
    if words[verb : verb + 1] == ["lab"]:
        return words, {}  # it has no such option, and runs commands that may
    shown, values = list(words), {}
    for number in range(verb, end):
        option, given, setting = words[number].partition("=")
        if not (len(option) > 2 and OPTION.startswith(option)):
            continue
        if not given:
            number += 1  # noqa: PLW2901 - the value is the next word
            setting = words[number] if number < end else ""
        name, has_value, value = setting.partition("=")
        if has_value:
            shown[number] = f"{option}={name}" if given else name
            values[name] = value
        else:
            values.pop(name, None)
    return shown, values


def take_value(name: str) -> str | None:
    """Return the value that was hidden for a name, and take it out of the environment; None where none was."""
    return os.environ.pop(PRIVATE + name, None)

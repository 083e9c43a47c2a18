"""The one place that catches everything: an error becomes what happened, where, and what to try, and an exit code."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from typing import TYPE_CHECKING

import click

from orchestrator.errors import DdpOrchError, InventoryError

if TYPE_CHECKING:
    from collections.abc import Callable

OUR_FAULT = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED = 130  # 128 + SIGINT, as shells say it


def guarded(command: Callable[[], object]) -> int:  # noqa: PLR0911 - a list of kinds, each with its code
    """Run a command and return its exit code; nothing gets past this as a traceback.

    A command returns None or 0 for fine, or an exit code.
    """
    try:
        code = command()
        sys.stdout.flush()
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone (`| head`); Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except DdpOrchError as error:
        _show(error)
        return error.exit_code
    except Exception:  # noqa: BLE001 - the last net: whatever else comes is a fault of ours, and says so
        return _our_fault()
    return code if isinstance(code, int) else 0


def _show(error: DdpOrchError) -> None:
    from orchestrator.cli.screen import safe

    if isinstance(error, InventoryError):
        for problem in error.problems:
            _say(safe(problem))
    else:
        _say(f"error: {safe(str(error))}")
    if error.try_this:
        _say(f"  try: {safe(error.try_this)}")


def _our_fault() -> int:
    with tempfile.NamedTemporaryFile("w", prefix="ddp-orch-fault-", suffix=".txt", delete=False) as stream:
        stream.write(f"{sys.argv[1:2]}\n")
        traceback.print_exc(file=stream)
    kind, value, _ = sys.exc_info()
    _say(f"error: this is a fault of ddp-orch itself: {kind.__name__ if kind else ''}: {value}")
    _say(f"  try: report it with {stream.name}")
    return OUR_FAULT


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - this room is where printing happens

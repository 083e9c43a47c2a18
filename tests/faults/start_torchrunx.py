"""Starts the script of the fault table with torchrunx: start_torchrunx.py HOST... -- WORDS OF THE SCRIPT."""

from __future__ import annotations

import os
import runpy
import sys


def subject(words: list[str], folder: str) -> None:
    """Be one rank."""
    os.chdir(folder)
    sys.argv = ["fault_subject.py", *words]
    runpy.run_path("fault_subject.py", run_name="__main__")


if __name__ == "__main__":
    import torchrunx

    between = sys.argv.index("--")
    launcher = torchrunx.Launcher(hostnames=sys.argv[1:between], workers_per_host=1, backend=None)
    launcher.run(subject, sys.argv[between + 1 :], os.getcwd())  # noqa: PTH109

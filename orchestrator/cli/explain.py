"""`ddp-orch explain`: why a run failed, from its logs."""

from __future__ import annotations

import sys
from typing import IO

import click


@click.command()
@click.argument("files", nargs=-1, type=click.File("rb"))
@click.option("--failed", is_flag=True, help="The run failed, even if its logs look well.")
@click.option("--hung", is_flag=True, help="The run stood still.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def explain(files: tuple[IO[bytes], ...], failed: bool, hung: bool, as_json: bool) -> int:
    """Name the cause of a failure from log FILES of any launcher; - is standard input.

    Lines that only follow another failure are never given as the cause. What is not known is said to be unknown, with
    the lines that look unusual.
    """
    from orchestrator.cli.explanation_screen import as_document, show
    from orchestrator.diagnosis.explain import LogSource
    from orchestrator.diagnosis.explain import explain as explain_logs
    from orchestrator.errors import UsageError

    streams = files or ((sys.stdin.buffer,) if not sys.stdin.isatty() else ())
    if not streams:
        raise UsageError("nothing to explain: no file was named", try_this="ddp-orch explain train.log")
    sources = [LogSource(getattr(stream, "name", "-"), stream) for stream in streams]  # type: ignore[arg-type]
    told = explain_logs(sources, failed=failed, hung=hung)
    if as_json:
        click.echo(as_document(told))
    else:
        show(told)
    return 0

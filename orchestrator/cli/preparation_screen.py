"""What is shown before a run begins: hosts that do not answer, checks that say no, code on its way."""

from __future__ import annotations

from orchestrator.cli.screen import err, say
from orchestrator.model.events import SyncDone, SyncProgress, Warned
from orchestrator.model.finding import Severity
from orchestrator.workflows.check_hosts import CheckResult, HostLooked

MIB = 1 << 20


def show_preparation(event: object) -> None:
    """Show one event of checking or syncing."""
    if isinstance(event, HostLooked):
        if event.problem:
            say(f"{event.host}: {event.problem}")
    elif isinstance(event, CheckResult):
        if any(finding.severity in (Severity.FAILURE, Severity.WARNING) for finding in event.findings):
            from orchestrator.cli.check_table import render

            render(event.findings, list(dict.fromkeys(one.host for one in event.findings)), err(), brief=True)
    elif isinstance(event, Warned):
        say(f"warning: {event.text}")
    elif isinstance(event, SyncProgress):
        if event.total_bytes > MIB:
            say(f"  {event.host}: {event.done_bytes // MIB} of {event.total_bytes // MIB} MiB")
    elif isinstance(event, SyncDone):
        sent = f"{event.sent_bytes / MIB:.1f} MiB sent" if event.sent_bytes else "nothing to send"
        say(f"  {event.host}: {sent}")
    else:
        raise TypeError(event)

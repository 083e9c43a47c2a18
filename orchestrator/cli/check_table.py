"""Findings on the screen: what is wrong first, then one line a check with equal hosts folded, then one sentence."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from orchestrator.cli.screen import safe
from orchestrator.model.finding import Finding, Severity
from orchestrator.preflight.all_checks import TITLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

JSON_SCHEMA = 1
NAMES_SHOWN = 6  # of hosts in a row; a reader counts the rest
KINDS_SHOWN = 3  # of one check's problems in full; sixty hosts that are off each have a sentence of their own
VALUES_SHOWN = 2  # of what was seen on hosts that are well
_STYLES = {Severity.OK: "green", Severity.SKIPPED: "dim", Severity.WARNING: "yellow", Severity.FAILURE: "bold red"}


def render(findings: Sequence[Finding], hosts: Sequence[str], console: Console, *, brief: bool = False) -> None:
    """Print findings.

    Args:
        findings: in the order of the checks.
        hosts: names of all hosts of the inventory.
        console: where to print.
        brief: leave the table out, and show only what is wrong.
    """
    for severity in (Severity.FAILURE, Severity.WARNING):
        for _, same in groupby([one for one in findings if one.severity is severity], key=lambda one: one.check):
            _print_problems(_equal(same), hosts, console)
    if not brief:
        _print_table(findings, hosts, console)
    console.print(verdict(findings), style=_STYLES[_worst(findings)])


def verdict(findings: Sequence[Finding]) -> str:
    """Say in one sentence whether a run would start."""
    failed = [finding for finding in findings if finding.severity is Severity.FAILURE]
    warned = sum(finding.severity is Severity.WARNING for finding in findings)
    if failed:
        names = list(dict.fromkeys(finding.host for finding in failed))
        return safe(f"not ready: {_count(len(failed), 'failure')} on {_names(names)}")
    return "ready" + (f", with {_count(warned, 'warning')}" if warned else "")


def findings_as_json(findings: Sequence[Finding], hosts: Sequence[str]) -> dict[str, Any]:
    """Return findings as a document for programs."""
    return {
        "schema": JSON_SCHEMA,
        "ready": _worst(findings) is not Severity.FAILURE,
        "hosts": list(hosts),
        "findings": [
            {
                "check": finding.check,
                "host": finding.host,
                "severity": finding.severity.value,
                "seen": finding.seen,
                "wanted": finding.wanted,
                "consequence": finding.consequence,
                "try_this": finding.try_this,
            }
            for finding in findings
        ],
    }


def _print_problems(groups: Sequence[Sequence[Finding]], hosts: Sequence[str], console: Console) -> None:
    """Print what one check found wrong: the first few kinds in full, the hosts of the others by name."""
    for group in groups[:KINDS_SHOWN]:
        _print_problem(group, hosts, console)
    rest = [finding.host for group in groups[KINDS_SHOWN:] for finding in group]
    if rest:
        title = TITLES.get(groups[0][0].check, groups[0][0].check)
        console.print(safe(f"  {title}: likewise on {_names(rest)} (--json shows each)"), soft_wrap=True)
        console.print()


def _print_problem(group: Sequence[Finding], hosts: Sequence[str], console: Console) -> None:
    """Print findings that say the same of several hosts, in full."""
    from rich.table import Table
    from rich.text import Text

    finding = group[0]
    where = _names([one.host for one in group], of=len(hosts))
    head = Text.assemble(
        (finding.severity.value.upper(), _STYLES[finding.severity]),
        (f"  {TITLES.get(finding.check, finding.check)}", "bold"),
        f"  on {safe(where)}",
    )
    console.print(head)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(min_width=9)
    grid.add_column(overflow="fold")
    for label, words in (("seen", finding.seen), ("wanted", finding.wanted), ("or else", finding.consequence)):
        if words:
            grid.add_row(f"  {label}", safe(words))
    console.print(grid)
    if finding.try_this:  # never broken by us: it is there to be copied
        console.print(Text(f"  try      {safe(finding.try_this)}", "cyan"), soft_wrap=True)
    console.print()


def _print_table(findings: Sequence[Finding], hosts: Sequence[str], console: Console) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("check", no_wrap=True)
    table.add_column(f"{len(hosts)} host{'s' * (len(hosts) != 1)}", overflow="fold")
    for check, group in groupby(findings, key=lambda finding: finding.check):
        table.add_row(TITLES.get(check, check), _folded(list(group), hosts))
    console.print(table)


def _folded(group: Sequence[Finding], hosts: Sequence[str]) -> Any:
    """Fold the findings of one check into "62 hosts: ok (2.14.1)" and the others by name."""
    from rich.text import Text

    parts = []
    for severity in (Severity.FAILURE, Severity.WARNING, Severity.SKIPPED, Severity.OK):
        same = [finding for finding in group if finding.severity is severity]
        if not same:
            continue
        names = list(dict.fromkeys(finding.host for finding in same))
        values = list(dict.fromkeys(finding.seen for finding in same))
        if severity in (Severity.FAILURE, Severity.WARNING):
            said = f"{_names(names, of=len(hosts))}: {severity.value}"  # said in full above
        else:
            more = ", ..." if len(values) > VALUES_SHOWN else ""
            said = f"{_count(len(names), 'host')}: {severity.value} ({', '.join(values[:VALUES_SHOWN])}{more})"
        parts.append(Text(safe(said), _STYLES[severity]))
    return Text("\n").join(parts)


def _equal(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Group findings that differ only in the host."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        key = (finding.check, finding.seen, finding.wanted, finding.consequence, finding.try_this)
        groups.setdefault(key, []).append(finding)
    return list(groups.values())


def _names(names: Sequence[str], of: int = 0) -> str:
    if len(names) == of and of > 2:
        return f"all {of} hosts"
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _worst(findings: Sequence[Finding]) -> Severity:
    order = (Severity.FAILURE, Severity.WARNING)
    return next((worst for worst in order if any(f.severity is worst for f in findings)), Severity.OK)

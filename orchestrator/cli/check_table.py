"""Findings on the screen: what is wrong first, then one row a group of checks, then one sentence."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from orchestrator.cli.screen import safe
from orchestrator.model.finding import Finding, Severity
from orchestrator.preflight.all_checks import QUESTIONS, TITLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

JSON_SCHEMA = 1
NAMES_SHOWN = 6  # of hosts in a row; a reader counts the rest
KINDS_SHOWN = 3  # of one check's problems in full; sixty hosts that are off each have a sentence of their own
VALUES_SHOWN = 2  # of what was seen on hosts that are well
VALUE_SHOWN = 30  # characters of what was seen everywhere
_STYLES = {
    Severity.OK: "green",
    Severity.SKIPPED: "dim",
    Severity.HANDLED: "cyan",
    Severity.WARNING: "yellow",
    Severity.FAILURE: "bold red",
}


def render(
    findings: Sequence[Finding], hosts: Sequence[str], console: Console, *, brief: bool = False, verbose: bool = False
) -> None:
    """Print findings.

    Args:
        findings: in the order of the checks.
        hosts: names of all hosts of the inventory.
        console: where to print.
        brief: leave the table out, and what `run` mends by itself.
        verbose: give each check a row of its own.
    """
    shown = [Severity.FAILURE, Severity.WARNING] + [Severity.HANDLED] * (not brief)
    for severity in shown:
        for _, same in groupby([one for one in findings if one.severity is severity], key=lambda one: one.check):
            _print_problems(_equal(same), hosts, console)
    if not brief:
        (_print_every_check if verbose else _print_groups)(findings, hosts, console)
    console.print(verdict(findings), style=_STYLES[_worst(findings)])


def verdict(findings: Sequence[Finding]) -> str:
    """Say in one sentence whether a run would start."""
    failed = [finding for finding in findings if finding.severity is Severity.FAILURE]
    warned = sum(finding.severity is Severity.WARNING for finding in findings)
    if failed:
        names = list(dict.fromkeys(finding.host for finding in failed))
        return safe(f"not ready: {_count(len(failed), 'failure')} on {_names(names)}")
    handled = len({finding.check for finding in findings if finding.severity is Severity.HANDLED})
    more = [_count(warned, "warning")] if warned else []
    more += [f"{_count(handled, 'thing')} that run sets right"] if handled else []
    return "ready" + (f", with {' and '.join(more)}" if more else "")


def findings_as_json(findings: Sequence[Finding], hosts: Sequence[str]) -> dict[str, Any]:
    """Return findings as a document for programs."""
    return {
        "schema": JSON_SCHEMA,
        "ready": _worst(findings) is not Severity.FAILURE,
        "hosts": list(hosts),
        "findings": [
            {
                "check": finding.check,
                "group": QUESTIONS[finding.check].group if finding.check in QUESTIONS else "",
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


def _print_every_check(findings: Sequence[Finding], hosts: Sequence[str], console: Console) -> None:
    rows = [(TITLES.get(check, check), _folded(list(group), hosts))
            for check, group in groupby(findings, key=lambda finding: finding.check)]  # fmt: skip
    _print_rows(rows, "check", hosts, console)


def _print_groups(findings: Sequence[Finding], hosts: Sequence[str], console: Console) -> None:
    """Print a row for each group: what is not well by name, and what is well in one breath."""
    by_group: dict[str, list[Finding]] = {}
    for finding in findings:
        question = QUESTIONS.get(finding.check)
        by_group.setdefault(question.group if question else finding.check, []).append(finding)
    _print_rows([(name, _summed_up(group, hosts)) for name, group in by_group.items()], "", hosts, console)


def _print_rows(rows: Iterable[tuple[str, Any]], what: str, hosts: Sequence[str], console: Console) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(what, no_wrap=True)
    table.add_column(_count(len(hosts), "host"), overflow="fold")
    for name, told in rows:
        table.add_row(name, told)
    console.print(table)


def _summed_up(group: Sequence[Finding], hosts: Sequence[str]) -> Any:
    from rich.text import Text

    lines, well = [], []
    for check, same in groupby(group, key=lambda finding: finding.check):
        found, title = list(same), TITLES.get(check, check)
        worst = max((finding.severity for finding in found), key=list(_STYLES).index)
        if worst is Severity.OK:
            values = {finding.seen for finding in found}
            value = values.pop() if len(values) == 1 else ""
            telling = len(value) <= VALUE_SHOWN and any(letter.isdigit() for letter in value)  # "none" is not
            well.append(f"{title} ({value})" if telling else title)
        else:
            at = [finding for finding in found if finding.severity is worst]
            names = _names(list(dict.fromkeys(finding.host for finding in at)), of=len(hosts))
            reason = f" ({at[0].seen})" if worst is Severity.SKIPPED else ""
            lines.append(Text(safe(f"{worst.value}: {title} on {names}{reason}"), _STYLES[worst]))
    if well:
        lines.append(Text(safe(f"ok: {', '.join(well)}"), _STYLES[Severity.OK]))
    return Text("\n").join(lines)


def _folded(group: Sequence[Finding], hosts: Sequence[str]) -> Any:
    """Fold the findings of one check into "62 hosts: ok (2.14.1)" and the others by name."""
    from rich.text import Text

    parts = []
    for severity in reversed(_STYLES):
        same = [finding for finding in group if finding.severity is severity]
        if not same:
            continue
        names = list(dict.fromkeys(finding.host for finding in same))
        values = list(dict.fromkeys(finding.seen for finding in same))
        if severity in (Severity.FAILURE, Severity.WARNING, Severity.HANDLED):
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
    order = (Severity.FAILURE, Severity.WARNING, Severity.HANDLED)
    return next((worst for worst in order if any(f.severity is worst for f in findings)), Severity.OK)

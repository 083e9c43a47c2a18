from __future__ import annotations

import io

import pytest
from rich.console import Console

from orchestrator.cli.check_table import findings_as_json, render, verdict
from orchestrator.model.finding import Finding, Severity

TRY = "sudo nft insert rule inet filter input ip saddr '{' 10.9.0.2 '}' tcp dport '{' 29500, 32768-60999 '}' accept"
TAKEN = Finding("port_is_free", "a", Severity.FAILURE, "port 29500 is taken", "a free port", "nothing starts", TRY)


def ok(host: str, seen: str = "2.14.1") -> Finding:
    return Finding("torch_matches", host, Severity.OK, seen)


def shown(
    findings: list[Finding], hosts: list[str], *, width: int = 80, brief: bool = False, verbose: bool = True
) -> str:
    stream = io.StringIO()
    render(
        findings, hosts, Console(file=stream, width=width, highlight=False, markup=False), brief=brief, verbose=verbose
    )
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def test_a_failure_comes_first_in_full_and_the_verdict_last() -> None:
    lines = shown([ok("a"), ok("b"), TAKEN], ["a", "b"]).splitlines()
    assert lines[:5] == [
        "FAILURE  rendezvous port free  on a",
        "  seen     port 29500 is taken",
        "  wanted   a free port",
        "  or else  nothing starts",
        f"  try      {TRY}",
    ]
    assert lines[-1] == "not ready: 1 failure on a"


def test_a_row_a_group_says_what_is_not_well_and_what_is() -> None:
    handled = Finding("interfaces_chosen", "b", Severity.HANDLED, "NCCL would use br-1", "eth0", "waits", "nothing")
    text = shown([ok("a"), ok("b"), TAKEN, handled], ["a", "b"], verbose=False)
    assert "HANDLED  interfaces of NCCL and gloo  on b" in text
    assert "parity          ok: torch version (2.14.1)" in text
    assert "between hosts   failure: rendezvous port free on a" in text
    assert "interfaces      handled: interfaces of NCCL and gloo on b" in text
    assert verdict([ok("a"), handled]) == "ready, with 1 thing that run sets right"


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_command_is_never_broken_so_that_it_can_be_copied(width: int) -> None:
    assert TRY in shown([TAKEN], ["a"], width=width)


def test_equal_hosts_are_folded_into_one_line() -> None:
    hosts = [f"gpu{number:02}" for number in range(64)]
    text = shown([ok(host) for host in hosts], hosts)
    assert "torch version   64 hosts: ok (2.14.1)" in text
    assert "gpu07" not in text
    assert text.splitlines()[-1] == "ready"


def test_many_hosts_with_the_same_failure_are_named_once() -> None:
    hosts = [f"gpu{number:02}" for number in range(64)]
    findings = [Finding("torch_matches", host, Severity.FAILURE, "2.5.1", "2.14.1") for host in hosts[:9]]
    findings += [ok(host) for host in hosts[9:]]
    text = shown(findings, hosts)
    assert text.count("seen     2.5.1") == 1
    assert "on gpu00, gpu01, gpu02, gpu03, gpu04, gpu05 and 3 more" in text
    assert "55 hosts: ok (2.14.1)" in text


def test_sixty_hosts_that_each_fail_with_their_own_words_stay_readable() -> None:
    hosts = [f"gpu{number:02}" for number in range(64)]
    findings = [Finding("host_answers", host, Severity.FAILURE, f"no answer from {host}") for host in hosts]
    text = shown(findings, hosts)
    assert len(text.splitlines()) < 25
    assert "likewise on gpu03, gpu04, gpu05, gpu06, gpu07, gpu08 and 55 more" in text
    assert "all 64 hosts: failure" in text


def test_a_warning_does_not_stop_a_run() -> None:
    warned = Finding("python_matches", "b", Severity.WARNING, "3.10.1", "3.11", "pickles")
    assert verdict([ok("a"), warned]) == "ready, with 1 warning"


def test_brief_shows_what_is_wrong_and_no_table() -> None:
    text = shown([ok("a"), TAKEN], ["a"], brief=True)
    assert "rendezvous port free" in text
    assert "torch version" not in text


def test_a_hosts_words_cannot_reach_the_terminal_as_commands() -> None:
    hostile = Finding(
        "host_answers", "a", Severity.FAILURE, "\x1b[2J\x1b]0;title\x07[red]boo[/red]", "", "", "\x1b[8mrm"
    )
    text = shown([hostile, ok("a", "\x9b31m")], ["a"])
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert "[red]boo[/red]" in text


def test_the_document_for_programs_has_everything() -> None:
    document = findings_as_json([ok("a"), TAKEN], ["a", "b"])
    assert (document["schema"], document["ready"], document["hosts"]) == (1, False, ["a", "b"])
    assert document["findings"][1] == {
        "check": "port_is_free",
        "group": "between hosts",
        "host": "a",
        "severity": "failure",
        "seen": "port 29500 is taken",
        "wanted": "a free port",
        "consequence": "nothing starts",
        "try_this": TRY,
    }

"""Is the rendezvous port free on the first host?"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.model.port_trial import PortTrial
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="port_is_free",
    title="rendezvous port free",
    why="torchrun on the first host cannot listen, and the others wait for it in vain or join another run",
    source="tried as torch's TCPStore listens: all interfaces, IPv6 and IPv4, SO_REUSEADDR (torch 2.14)",
    group="between hosts",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Judge the real listener; only the first host is asked."""
    trial, first = survey.port_trial, survey.inventory.hosts[0].name
    if trial is None and first in survey.facts:
        yield QUESTION.fail(first, "it did not say in time whether it can listen", try_this="run preflight again")
    elif trial is None:
        yield QUESTION.skip(first, f"port {survey.inventory.rendezvous_port} could not be tried")
    elif trial.errno is None:
        yield QUESTION.ok(first, f"{trial.port}")
    elif trial.errno == errno.EACCES:
        yield QUESTION.fail(
            first,
            f"port {trial.port} is for root only",
            wanted="a port from 1024 upward",
            try_this="another port in the inventory (rendezvous: port:)",
        )
    elif trial.errno == errno.EADDRINUSE:
        yield _taken(first, trial)
    else:
        yield QUESTION.fail(
            first,
            f"cannot listen on port {trial.port}: {trial.problem}",
            wanted="a free port",
            try_this="another port in the inventory (rendezvous: port:)",
        )


def _taken(host: str, trial: PortTrial) -> Finding:
    holder = trial.holder
    end = f"on the host: sudo ss -tlnp 'sport = :{trial.port}'"
    who = f"{holder.user or 'an unknown user'}, in a process that only root may see"
    if holder.pid:
        who, end = f"{holder.user}, pid {holder.pid}: {holder.command}", f"on the host: kill {holder.pid}"
    if holder.run:
        who, end = f"{who} (run {holder.run})", f"ddp-orch stop {holder.run}"
    return QUESTION.fail(
        host,
        f"port {trial.port} is taken by {who}",
        wanted="a free port",
        try_this=f"{end}; or another port in the inventory (rendezvous: port:)",
    )

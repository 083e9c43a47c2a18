"""May a process of this login open enough files, connections and processes?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="limits",
    title="limits of a process",
    why='the store or a data loader fails with "Too many open files" or "Resource temporarily unavailable"',
    source="pytorch issue 144856: the store's host holds a connection or two for each rank; file_descriptor sharing "
    "keeps a file for each tensor of a loader",
    group="room",
)
FILES_OF_A_WORKER = 256  # libraries, sockets to the peers of its ranks, data loader tensors
FILES_A_RANK = 4  # connections that the store on the first host, and each rank, keeps for another rank
PROCESSES_OF_A_WORKER = 64  # threads count too: BLAS, gloo, NCCL, loaders


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail limits that a run of this size would hit."""
    world = sum(host.nproc for host in survey.inventory.hosts)
    for host, facts in survey.hosts():
        files, processes = facts.limits.get("nofile"), facts.limits.get("nproc")
        needed_files, needed_processes = FILES_OF_A_WORKER + FILES_A_RANK * world, PROCESSES_OF_A_WORKER * host.nproc
        first = host.name == survey.inventory.hosts[0].name
        if files is not None and files < needed_files:
            yield QUESTION.fail(
                host.name,
                f"{files} open files a process",
                wanted=f"{needed_files} for {world} ranks",
                try_this="on the host: echo '* - nofile 65536' | sudo tee /etc/security/limits.d/nofile.conf; "
                "log in anew",
            )
        elif processes is not None and processes < needed_processes and facts.user != "root":
            yield QUESTION.fail(
                host.name,
                f"{processes} processes and threads for {facts.user}",
                wanted=f"{needed_processes} for {host.nproc} workers",
                try_this="on the host: echo '* - nproc 65536' | sudo tee /etc/security/limits.d/nproc.conf; "
                "log in anew",
            )
        elif first and facts.listen_backlog and facts.listen_backlog < world:
            yield QUESTION.warn(
                host.name,
                f"{facts.listen_backlog} connections may wait (net.core.somaxconn)",
                wanted=f"{world}: as many as there are ranks",
                consequence="ranks that connect to the store at the same moment are turned away, and try again late",
                try_this="on the host: sudo sysctl -w net.core.somaxconn=4096",
            )
        elif "capacity" not in facts.problems:
            yield QUESTION.ok(host.name, f"{files or 'unlimited'} files")

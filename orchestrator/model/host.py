"""Hosts as the inventory describes them, with every default filled in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_RENDEZVOUS_PORT = 29500  # torchrun's own default for the static rendezvous
DEFAULT_WORKDIR = "~/ddp-orch"
DEFAULT_PYTHON = "python3"

Connection = Literal["ssh", "local"]


@dataclass(frozen=True)
class Host:
    """One machine that takes part in a run.

    Attributes:
        name: unique in the inventory; what tables, logs and `--hosts` show.
        address: what the other hosts use to reach it (IP or name); "" means: whatever SSH resolves `ssh` to.
        ssh: alias or address that SSH dials.
        connection: "ssh", or "local" for this machine without SSH.
        user: login name, or None for what OpenSSH's configuration says.
        port: SSH port, or None for what OpenSSH's configuration says.
        key: private key file (absolute path on the controller), or None.
        python: interpreter command or path on the host; a leading `~/` is the login user's home there.
        workdir: folder on the host for code, data and runs; a leading `~/` is the login user's home there.
        env: variables for the workers on this host (inventory-wide ones merged in; may hold secrets).
        gpus: number of GPUs to use, or the indices of those to use; 0 or () means CPU.
        processes: worker processes to start when no GPU is used (count, at least 1).
    """

    name: str
    address: str
    ssh: str
    connection: Connection = "ssh"
    user: str | None = None
    port: int | None = None
    key: str | None = None
    python: str = DEFAULT_PYTHON
    workdir: str = DEFAULT_WORKDIR
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    gpus: int | tuple[int, ...] = 0
    processes: int = 1

    @property
    def gpu_count(self) -> int:
        """How many GPUs the host gives to a run."""
        return self.gpus if isinstance(self.gpus, int) else len(self.gpus)

    @property
    def nproc(self) -> int:
        """How many worker processes the host starts: one a GPU, or `processes` without any."""
        return self.gpu_count or self.processes


@dataclass(frozen=True)
class Inventory:
    """The hosts of a run, in rank order; the first one holds the rendezvous.

    Attributes:
        hosts: at least one, names unique.
        rendezvous_port: TCP port that the first host's torchrun listens on.
        source: the file they came from, as the user named it.
    """

    hosts: tuple[Host, ...]
    rendezvous_port: int = DEFAULT_RENDEZVOUS_PORT
    source: str = ""

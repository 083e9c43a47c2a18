"""The errors a user can meet, each with what happened, where, and what to try.

    DdpOrchError            70  a fault of ddp-orch itself, or one that no class below describes
    |-- UsageError           2  the command line asks for something that cannot be
    |-- InventoryError       3  the inventory file; carries every problem at once
    |-- HostUnreachable      4  a host cannot be reached, logged into, or talked with
    |   `-- NodeProgramFailed   the host answers, but our program does not start there
    |-- PlanError            5  the hosts cannot run this plan
    |-- PreflightFailed      5  the checks found a reason why the run would fail
    |-- SyncFailed           6  code or data could not be brought to a host
    |-- LabError             2  the virtual hosts cannot be made or changed
    `-- RunFailed            1  the training itself failed

The number is the exit code of the command. 0 means fine, 130 interrupted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class DdpOrchError(Exception):
    """What happened, on which host, and a command or step that may mend it.

    Attributes:
        message: one sentence, without the host's name.
        host: the host's inventory name, or "" where no single host is meant.
        try_this: what to type or do next, or "".
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, host: str = "", try_this: str = "") -> None:
        super().__init__(f"{host}: {message}" if host else message)
        self.message = message
        self.host = host
        self.try_this = try_this


class UsageError(DdpOrchError):
    """The command line asks for something that cannot be."""

    exit_code = 2


class InventoryError(DdpOrchError):
    """An inventory cannot be used.

    Attributes:
        problems: every problem found, each as `file:line:column: what, what was expected`.
    """

    exit_code = 3

    def __init__(self, problems: Sequence[str], *, try_this: str = "") -> None:
        super().__init__("\n".join(problems), try_this=try_this)
        self.problems = tuple(problems)


class HostUnreachable(DdpOrchError):
    """A host cannot be reached, logged into, or talked with.

    Attributes:
        reason: a stable short name for the kind ("name", "refused", "timeout", "host_key_changed", ...).
    """

    exit_code = 4

    def __init__(self, message: str, *, host: str, reason: str, try_this: str = "") -> None:
        super().__init__(message, host=host, try_this=try_this)
        self.reason = reason


class NodeProgramFailed(HostUnreachable):
    """The host answers, but a program of ours does not start or does not finish there."""


class PlanError(DdpOrchError):
    """The hosts cannot run this plan."""

    exit_code = 5


class PreflightFailed(DdpOrchError):
    """The checks found a reason why the run would fail."""

    exit_code = 5


class SyncFailed(DdpOrchError):
    """Code or data could not be brought to a host."""

    exit_code = 6


class LabError(DdpOrchError):
    """The virtual hosts cannot be made or changed as asked."""

    exit_code = 2


class RunFailed(DdpOrchError):
    """The training itself failed."""

    exit_code = 1

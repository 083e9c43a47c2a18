"""What the workflows of a run report while they work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.launch.environment import Setting
    from orchestrator.model.run_record import HostState

AGENT = -1  # stands where a rank's number would, for torchrun's own lines


@dataclass(frozen=True)
class LogLine:
    """One line of one process.

    Attributes:
        host: inventory name.
        rank: global number, or AGENT.
        is_error: it came on standard error.
        text: the line as it was printed, without its end; may hold control characters.
    """

    host: str
    rank: int
    is_error: bool
    text: str


@dataclass(frozen=True)
class LogGap:
    """Bytes of a log file are not kept any more on the host (--log-limit).

    Attributes:
        host: inventory name.
        rank: global number.
        missing_bytes: how many were given up before they were read.
    """

    host: str
    rank: int
    missing_bytes: int


@dataclass(frozen=True)
class CopyFailed:
    """A log file is not copied to the controller any further."""

    file: str
    why: str


@dataclass(frozen=True)
class HostChanged:
    """A run stands differently on a host."""

    state: HostState


@dataclass(frozen=True)
class ConnectionLost:
    """A host does not answer any more; its part of the run goes on meanwhile.

    Attributes:
        host: inventory name.
        why: how that showed.
        retry_in_s: until the next try.
        since: when it was last heard, by the monotonic clock.
    """

    host: str
    why: str
    retry_in_s: float
    since: float


@dataclass(frozen=True)
class Stopping:
    """The run is being ended on all hosts.

    Attributes:
        why: "interrupted", or what failed where.
        grace_s: seconds that the workers have to end by themselves.
    """

    why: str
    grace_s: float


@dataclass(frozen=True)
class Step:
    """A workflow has come to its next step."""

    text: str


@dataclass(frozen=True)
class Prepared:
    """What the workers of a host will get beside the user's own variables."""

    host: str
    settings: tuple[Setting, ...]

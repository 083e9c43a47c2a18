"""What one kind of line in a log means: the type of the table's rows."""

from __future__ import annotations

import enum
from dataclasses import dataclass

# Documents that many rows rest on.
TORCH_RUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"
TORCH_DDP = "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
TORCH_DISTRIBUTED = "https://docs.pytorch.org/docs/stable/distributed.html"
NCCL_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
NCCL_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
CUDA_ERRORS = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"
XID = "https://docs.nvidia.com/deploy/xid-errors/index.html"


class Kind(enum.Enum):
    """What a line can be for an explanation."""

    PRIMARY = "primary"  # names a cause by itself
    CONTRIBUTING = "contributing"  # healthy runs may have it too; where a run failed, it tells why
    SECONDARY = "secondary"  # says that something else went first; never a cause while a primary exists anywhere


@dataclass(frozen=True)
class Signature:
    """A kind of line, and what it means. Named groups of the pattern may be used in the texts as {group}.

    Attributes:
        id: name of the trouble; where preflight has a check for it, the check's, with .variant behind it if need be.
        kind: what it can be for an explanation.
        pattern: regular expression that is searched in one line; runs in linear time.
        literals: texts without digits, of which at least one is in every line that the pattern can match.
        example: a line as the software writes it.
        cause: what happened, in the user's words, as a sentence without its full stop.
        not_this: what it does not mean.
        check: what to look at.
        try_this: what to type or do.
        confirms: what would prove it, for what leaves no words of its own.
        check_before: preflight's check that sees it before a run, or "".
        known_for: versions that word it so; "" where all do.
        source: where it is described; "measured" where the project saw it; "" where the words speak for themselves.
        weight: more is more specific; decides between primaries of one log.
        suspects: preflight's checks any of which would explain this line; a finding of one makes it the cause.
        warned: also a line that is only a warning of Python's counts, as a contributing one: the failure comes later.
        if_stranger: id that stands for this one where the peer's address is known to be no host of the run.
    """

    id: str
    kind: Kind
    pattern: str
    literals: tuple[str, ...]
    example: str
    cause: str
    not_this: str = ""
    check: str = ""
    try_this: str = ""
    confirms: str = ""
    check_before: str = ""
    known_for: str = ""
    source: str = ""
    weight: int = 0
    suspects: tuple[str, ...] = ()
    warned: bool = False
    if_stranger: str = ""

    @property
    def trouble(self) -> str:
        """The id without its variant: what the scoreboard and preflight call it."""
        return self.id.partition(".")[0]

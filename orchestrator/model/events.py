"""What the workflows that move files report while they work."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SyncProgress:
    """So much of what a host needs has been sent (or fetched from it)."""

    host: str
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class SyncDone:
    """A host has everything.

    Attributes:
        host: inventory name.
        sent_bytes: content that had to be sent; 0 where nothing had changed.
        path: absolute path there.
    """

    host: str
    sent_bytes: int
    path: str


@dataclass(frozen=True)
class Warned:
    """Something that the user should know, and that stops nothing."""

    text: str

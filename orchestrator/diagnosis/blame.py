"""Who brought a run down: the first cause over all hosts, not each host's own."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.diagnosis.hang import who_waits
from orchestrator.model.run_events import AGENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.model.run_record import HostState, RankEnd

# Last words that mean "someone else went first": a closed connection, a store without its host, a rank that never came.
_FOLLOWS = re.compile(
    r"Connection (?:closed|reset) by (?:remote )?peer"
    r"|Broken pipe"
    r"|recvValue failed|sendBytes failed|recvBytes failed"
    r"|Dist(?:Network|Store)Error"
    r"|[Ff]ailed to recv, got 0 bytes|Connection was likely closed"
    r"|wait timeout after \d+ ?ms, keys:"
    r"|ncclRemoteError"
    r"|Connection refused, remote="
    r"|process group .{0,40}(?:aborted|watchdog)"
)
_TERMINATED = (-15, -2, 143)  # how torchrun ends the others; 143: a worker that caught TERM and said so
_RAISED, _ASKED = "Traceback (most recent call last)", "KeyboardInterrupt"
_NO_ROOM = re.compile(r"No space left on device|Errno 28|ENOSPC|Disk quota exceeded|the disk is full")
# What a failure is, from the one that needs no other to that which needs one.
_OWN, _HOST, _EARLY, _AGENT, _FOLLOWED, _ENDED = range(6)


@dataclass(frozen=True)
class Cause:
    """Where a failed run began to fail.

    Attributes:
        host: inventory name.
        rank: global number, or AGENT where it was no rank.
        says: a sentence about it, with host and rank.
        lines: its last words.
    """

    host: str
    rank: int
    says: str
    lines: tuple[str, ...] = ()


def first_cause(
    states: Sequence[HostState], last_errors: Mapping[tuple[str, int], Sequence[str]] | None = None
) -> Cause | None:
    """Choose what brought a run down.

    Args:
        states: how the run's last attempt ended on each host.
        last_errors: (host, rank or AGENT) -> the last lines on its standard error.
    Returns:
        The failure that is least likely to have followed another; of several, the first by the clock of the first host.
        None where nothing failed.
    """
    errors = last_errors or {}
    hung = [stack for state in states for stack in state.hung]
    if hung:
        gone = [end for state in states for end in state.ends if end.exit_code == 0]
        if gone:
            return _early(min(gone, key=lambda end: end.ended_at - _ahead_s(end.host, states)))
        waited = who_waits(hung)
        return Cause(waited.host, waited.rank, waited.says)
    found: list[tuple[int, float, Cause]] = []
    for state in states:
        for end in state.ends:
            kind = _kind_of(end, errors.get((state.host, end.rank), ()))
            if kind is not None:
                at = end.error.at if end.error else end.ended_at
                found.append((kind, at - _ahead_s(state.host, states), _cause_of(end, state, errors)))
        found += _of_the_host(state, errors)
    found += _early_ends(states)
    return min(found, key=lambda one: one[:2])[2] if found else None


def _kind_of(end: RankEnd, words: Sequence[str]) -> int | None:
    """Sort the end of a rank; None where it ended well, or because its supervisor wanted it to."""
    if end.exit_code == 0:
        return None
    told = (f"{end.error.type}: {end.error.message}",) if end.error else words
    follows = any(_FOLLOWS.search(line) for line in told)
    asked = any(_ASKED in line for line in told)
    raised = end.error is not None or any(_RAISED in line for line in words)
    if raised and not follows and not asked:
        # An interpreter takes a second to go down after its exception; a peer that sees it go may be faster to fail,
        # and have it terminated meanwhile.
        return _OWN
    if end.ended_by_us or end.exit_code in _TERMINATED:
        return _ENDED
    return _FOLLOWED if follows else _OWN


def _cause_of(end: RankEnd, state: HostState, errors: Mapping[tuple[str, int], Sequence[str]]) -> Cause:
    lines = tuple(errors.get((state.host, end.rank), ())) or (end.error.lines if end.error else ())
    who = f"rank {end.rank} on {end.host}"
    text = " ".join(lines) + (end.error.message if end.error else "")
    if state.disk_full or _NO_ROOM.search(text):
        where = f" ({state.disk_full})" if state.disk_full else ""
        says = f"the disk is full on {end.host}{where}: rank {end.rank} {how_it_ended(end)}"
    elif end.exit_code == -signal.SIGKILL and state.oom_kills:
        says = _killed_for_memory(who, end.host)
    else:
        says = f"{who} {how_it_ended(end)}"
    xid = next((line for line in state.kernel if "Xid" in line), "")
    return Cause(end.host, end.rank, says + (f"; the kernel says: {xid}" if xid else ""), lines)


def _of_the_host(state: HostState, errors: Mapping[tuple[str, int], Sequence[str]]) -> list[tuple[int, float, Cause]]:
    """Return what went wrong on a host beside its ranks."""
    words = tuple(errors.get((state.host, AGENT), ()))
    said = _of_the_supervisor(state)
    if said:
        return [(_HOST, 0.0, Cause(state.host, AGENT, said))]
    failed_ranks = any(end.exit_code and not end.ended_by_us for end in state.ends)
    if state.disk_full and not failed_ranks:  # there may have been no room for what became of them
        return [(_HOST, 0.0, Cause(state.host, AGENT, f"the disk is full on {state.host} ({state.disk_full})", words))]
    if state.agent_exit and not failed_ranks and state.state == "failed":
        kind, said = _of_the_agent(state, words)
        return [(kind, 0.0, Cause(state.host, AGENT, said, words))]
    if state.stop_kind == "silence":
        return [(_AGENT, 0.0, Cause(state.host, AGENT, f"{state.host} stopped: {state.stop_reason}"))]
    return []


def _of_the_supervisor(state: HostState) -> str:
    """Say what became of a host's supervisor, or what it could not do; "" where neither is the matter."""
    if state.state == "unreachable":
        return f"{state.host} fell silent" + (f": {state.cause}" if state.cause else "")
    if state.state == "lost":
        return f"the supervisor on {state.host} is gone without a word: it was killed, or the host has restarted"
    cause = state.cause.removeprefix("its ")
    port = re.search(r"port (\d+) was taken (.*)", cause)
    if port:
        return f"port {port[1]} on {state.host} was taken {port[2]}"
    if cause.startswith("supervisor "):
        who = f"the supervisor on {state.host}"
        if state.oom_kills and "SIGKILL" in cause:
            return _killed_for_memory(who, state.host)
        return f"{who} {cause.removeprefix('supervisor ')}"
    return f"{state.host}: {cause}" if cause else ""


def _of_the_agent(state: HostState, words: Sequence[str]) -> tuple[int, str]:
    """Say how torchrun ended by itself, and what kind of failure that is."""
    code = state.agent_exit or 0
    if any("EADDRINUSE" in line or "Address already in use" in line for line in words):
        return _OWN, f"the rendezvous port on {state.host} was taken between the check and the start"
    who = f"torchrun on {state.host}"
    if code == -signal.SIGKILL and state.oom_kills:
        return _HOST, _killed_for_memory(who, state.host)
    if code < 0:
        return _HOST, f"{who} was ended by {_signal_name(-code)}"
    return _AGENT, f"{who} ended with exit code {code}"


def _killed_for_memory(who: str, host: str) -> str:
    return f"{who} was killed because memory ran out (the kernel's OOM killer has struck on {host})"


def _early_ends(states: Sequence[HostState]) -> list[tuple[int, float, Cause]]:
    """Return the ranks that ended well while the others were still at work, and failed for the lack of them."""
    ends = [end for state in states for end in state.ends]
    later = [end.ended_at - _ahead_s(end.host, states) for end in ends if end.exit_code]
    return [
        (_EARLY, end.ended_at, _early(end))
        for end in ends
        if end.exit_code == 0 and later and end.ended_at - _ahead_s(end.host, states) < max(later)
    ]


def _early(end: RankEnd) -> Cause:
    says = f"rank {end.rank} on {end.host} ended with exit code 0 while the others were still at work"
    return Cause(end.host, end.rank, says)


def _ahead_s(host: str, states: Sequence[HostState]) -> float:
    """Return by how much a host's clock is ahead of the first host's, as far as that is known."""
    first = states[0].host
    if host == first:
        return 0.0
    if host in states[0].clock_offsets_s:
        return states[0].clock_offsets_s[host]
    return -next((state.clock_offsets_s.get(first, 0.0) for state in states if state.host == host), 0.0)


def how_it_ended(end: RankEnd) -> str:
    """Say how a rank ended, signals by name."""
    if end.error is not None:
        message = end.error.message.strip().splitlines()
        said = f"{end.error.type}: {message[0]}" if message else end.error.type
        return f"raised {said[:300]} ({end.error.where})"
    if end.exit_code >= 0:
        return f"ended with exit code {end.exit_code}"
    hint = " (the kernel does this when memory runs out)" if end.exit_code == -signal.SIGKILL else ""
    return f"was ended by {_signal_name(-end.exit_code)}{hint}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

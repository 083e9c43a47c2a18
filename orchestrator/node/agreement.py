"""What the supervisors of a run do together: when one ends its part, and how the next attempt comes about.

Every supervisor tells the others its word once a second (heartbeat.py), and each decides by the same rules from what it
has heard. Nothing here does anything; what is decided is returned.

A word: {"state", "attempt", "stop", "fail", "checkpoints", "idle_s", "plan"}. States, beside the final ones: running;
done (its part ended well, the others' not yet); ending (a failure, which another attempt may follow); waiting (its part
of the attempt is over, and no process of it left); stopping (for good).

Of those that wait, the first in the inventory's order leads: it says who takes part in the next attempt and from which
checkpoint, and the others follow. Two halves of a run that cannot hear each other must never both go on, so fewer than
all hosts go on only if they are more than half of them, or the controller has said that the missing ones are gone for
it too; or, where no controller watches, if they are exactly half and the first host is among them.
Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

from orchestrator.node import checkpoints

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set

    Word = Dict[str, Any]

FINAL = ("succeeded", "failed", "stopped")
GRACE_AFTER_FAILURE_S = 1.0  # the others' state is lost anyway; enough for last words, and clean within 2 s
CONTROLLER_S = 30.0  # for the controller to be sure that it does not reach a host either
FIRST_BACK_OFF_S, MOST_BACK_OFF_S = 1.0, 30.0


def trouble(attempt: int, members: List[str], said: Dict[str, Word], dead: Set[str]) -> Optional[Dict[str, Any]]:
    """Return why this host has to end its part of an attempt, and the seconds it may take; None where it has not.

    Args:
        attempt: the one that runs here.
        members: the other hosts that take part in it.
        said: host -> its last word.
        dead: hosts that have fallen silent.
    """
    for host in members:
        word = said.get(host)
        if word is None or int(word.get("attempt", 0)) < attempt:
            continue
        state, stop, fail = word.get("state"), word.get("stop") or {}, word.get("fail") or {}
        if state in ("failed", "ending", "waiting", "stopping", "stopped"):
            kind = str(fail.get("kind", "failure") if fail else stop.get("kind", "failure"))
            grace_s = GRACE_AFTER_FAILURE_S if fail else float(stop.get("grace_s", GRACE_AFTER_FAILURE_S))
            return {"kind": kind, "why": why_of(host, fail, stop), "grace_s": grace_s}
    for host in members:
        if host in dead and said.get(host, {}).get("state") != "succeeded":
            return {"kind": "silence", "why": "no word from %s for 7 s" % host, "grace_s": GRACE_AFTER_FAILURE_S}
    return None


def why_of(host: str, fail: Dict[str, Any], stop: Dict[str, Any]) -> str:
    """Say in a few words what another host's end was for."""
    if fail:
        return "%s failed: %s" % (host, fail.get("what", ""))
    return str(stop.get("why") or "%s failed" % host)


class Situation:
    """What a supervisor that waits for the next attempt knows.

    Attributes:
        me: this host.
        hosts: all hosts of the run, in the inventory's order.
        attempt: the one that is over.
        words: this host's and the others' last words, without those that are dead.
        unheard: hosts that were never heard.
        vouched: hosts of which the controller says that it does not reach them either.
        watched: a controller watches.
        waited_s: since this host's part was over.
        min_hosts: as many must take part.
        patience_s: for hosts that are away to come back.
        failures: the failures of this attempt and of the one before, as `what`; "" where there was none.
        resumed: the checkpoints that this attempt and the one before went on from.
    """

    def __init__(
        self, *, me: str, hosts: List[str], attempt: int, words: Dict[str, Word], unheard: Set[str], vouched: Set[str],
        watched: bool, waited_s: float, min_hosts: int, patience_s: float, max_restarts: int, failures: List[str],
        resumed: List[str],
    ) -> None:  # fmt: skip
        self.me, self.hosts, self.attempt, self.words = me, hosts, attempt, words
        self.unheard, self.vouched, self.watched = unheard, vouched, watched
        self.waited_s, self.min_hosts, self.patience_s = waited_s, min_hosts, patience_s
        self.max_restarts, self.failures, self.resumed = max_restarts, failures, resumed

    @property
    def here(self) -> List[str]:
        """Hosts whose supervisors are heard, in order."""
        return [host for host in self.hosts if host in self.words]

    @property
    def away(self) -> List[str]:
        """Hosts whose supervisors are not heard."""
        return [host for host in self.hosts if host not in self.words]


def next_step(at: Situation) -> Dict[str, Any]:
    """Decide what a waiting supervisor does.

    Returns:
        {"wait": why} | {"go": PLAN} | {"give_up": why}; a plan is {"attempt", "members": [index in `hosts`], "resume"}.
    """
    for rule in (follow_the_others, refuse, wait_for_hosts, begin):
        step = rule(at)
        if step:
            return step
    return {"wait": "%s to begin the next attempt" % at.here[0]}


def follow_the_others(at: Situation) -> Dict[str, Any]:
    """Take up an attempt that others have begun, or end with them."""
    for host, word in at.words.items():
        plan = word.get("plan") or {}
        if int(plan.get("attempt", 0)) > at.attempt:
            left_out = at.hosts.index(at.me) not in plan["members"]
            return {"give_up": "the run went on without this host"} if left_out else {"go": plan}
        if word.get("state") in ("stopping", "stopped", "failed") and host != at.me:
            return {"give_up": why_of(host, word.get("fail") or {}, word.get("stop") or {})}
    return {}


def refuse(at: Situation) -> Dict[str, Any]:
    """Give up where another attempt would be of no use, or cannot be agreed on."""
    last = at.failures[-1] if at.failures else ""
    if at.attempt >= at.max_restarts:
        return {"give_up": "it has been restarted %d times" % at.attempt}
    if at.unheard:
        names = ", ".join(sorted(at.unheard))
        return {"give_up": "%s was never heard: a firewall drops the supervisors' datagrams" % names}
    if at.attempt and last and at.failures[-2:] == [last, last] and newest_common(at) == at.resumed[-1]:
        return {"give_up": "the same failure came back before there was a newer checkpoint: %s" % last}
    return {}


def wait_for_hosts(at: Situation) -> Dict[str, Any]:
    """Wait for hosts that are not ready, or away; give up where too few are left, or nobody knows what they do."""
    busy = [host for host in at.here if at.words[host].get("state") not in ("waiting", "succeeded", "done")]
    away = ", ".join(at.away)
    if busy:
        return {"wait": "%s to end its part" % ", ".join(busy)}
    if not at.away:
        return {}
    if at.waited_s < at.patience_s:
        return {"wait": "%s to come back" % away}
    why = ""
    if len(at.here) < at.min_hosts:
        why = "%s stayed away for %.0f s" % (away, at.patience_s)
    elif not may_go_on(at):
        if at.watched and at.waited_s < at.patience_s + CONTROLLER_S:
            return {"wait": "the controller's word on %s" % away}
        why = "%s stayed away, and may be at work without us: nobody can say" % away
    return {"give_up": why} if why else {}


def begin(at: Situation) -> Dict[str, Any]:
    """Begin the next attempt, if this host leads, and not at once."""
    back_off_s = min(FIRST_BACK_OFF_S * 2**at.attempt, MOST_BACK_OFF_S)
    if at.here[0] != at.me:
        return {}
    if at.waited_s < back_off_s:
        return {"wait": "%.0f s before the next attempt" % back_off_s}
    members = [at.hosts.index(host) for host in at.here]
    return {"go": {"attempt": at.attempt + 1, "members": members, "resume": newest_common(at)}}


def may_go_on(at: Situation) -> bool:
    """Tell whether those that are here can be sure that the others do not go on by themselves."""
    if 2 * len(at.here) > len(at.hosts) or set(at.away) <= at.vouched:
        return True
    return 2 * len(at.here) == len(at.hosts) and at.hosts[0] in at.words and not at.watched


def newest_common(at: Situation) -> str:
    """Return the newest checkpoint that every host that is here has, of those that ever wrote one."""
    return checkpoints.common([list(word.get("checkpoints") or []) for word in at.words.values()])

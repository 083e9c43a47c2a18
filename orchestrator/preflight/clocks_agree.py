"""Do the clocks of the hosts agree?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="clocks_agree",
    title="clocks agree",
    why="log lines of different hosts cannot be put in order, certificates fail, and a c10d rendezvous drops its peers",
    source="c10d's dynamic rendezvous compares heartbeats by wall clock: more than 15 s of difference looks dead; the "
    "static one of ddp-orch keeps none",
    group="time",
)
APART_S = 2.0  # NTP keeps hosts within milliseconds; below this the order of events on a screen still holds


def ask(survey: Survey) -> Iterator[Finding]:
    """Warn of hosts whose clock is off the middle of all by more than the measurement can explain."""
    if len(survey.clocks) < 2:
        return
    middle = _most_common(survey)
    for host, _ in survey.hosts():
        clock = survey.clocks.get(host.name)
        if clock is None:
            continue
        apart = clock.ahead_s - middle
        error = f"± {max(clock.error_s, 0.001):.3f} s"
        if abs(apart) - clock.error_s > APART_S:
            yield QUESTION.warn(
                host.name,
                f"{abs(apart):.1f} s {'ahead of' if apart > 0 else 'behind'} the other hosts ({error})",
                wanted=f"less than {APART_S:.0f} s",
                try_this="on the host: timedatectl; sudo systemctl restart systemd-timesyncd (or chrony)",
            )
        else:
            yield QUESTION.ok(host.name, error)


def _most_common(survey: Survey) -> float:
    """Return the time that most clocks show, and of several such the first host's."""
    clocks = [survey.clocks[host.name].ahead_s for host, _ in survey.hosts() if host.name in survey.clocks]
    return max(clocks, key=lambda one: sum(abs(one - other) <= APART_S for other in clocks), default=0.0)

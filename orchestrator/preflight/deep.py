"""Does a real torchrun over all hosts come through? What a trial's ranks told, and whom that points to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator.model.finding import Finding

STEPS = ("started", "imported", "cuda", "joined", "small", "large", "done")
ALONE = ("started", "imported", "cuda")  # what a rank does before it needs the others
LARGE_BYTES = 8 * 1024 * 1024

_WHY = "what this trial could not do, a run cannot do either"
QUESTIONS = {
    "gloo": Question(name="deep_gloo", title="a real torchrun with gloo", why=_WHY, group="deep",
                     source="torchrun with the flags and the environment of a run; all-reduces of 40 bytes and 8 MiB"),
    "nccl": Question(name="deep_nccl", title="a real torchrun with NCCL", why=_WHY, group="deep",
                     source="the same over NCCL, after one CUDA operation on every GPU"),
}  # fmt: skip


@dataclass
class HostTrial:
    """How far one host came in a trial.

    Attributes:
        steps: rank -> step -> seconds.
        error: the last line that a rank of it wrote to standard error, or "".
        state: how its part of the run ended: "succeeded", "failed", "stopped", "unreachable".
        exit_cause: what the supervisor says of the end, or "".
    """

    steps: dict[int, dict[str, float]] = field(default_factory=dict)
    error: str = ""
    state: str = ""
    exit_cause: str = ""

    @property
    def came_to(self) -> str:
        """The last step that every rank of the host has ended, or ""."""
        done = [step for step in STEPS if self.steps and all(step in told for told in self.steps.values())]
        return done[-1] if done else ""

    @property
    def fell_alone(self) -> bool:
        """Tell that a rank failed by itself, before it needed any other host."""
        if self.state != "failed":
            return False
        reached = {step for told in self.steps.values() for step in told}
        return not self.steps or (not reached - set(ALONE) and not _speaks_of_network(self.error))


@dataclass(frozen=True)
class Trial:
    """One torchrun over some hosts.

    Attributes:
        hosts: inventory name -> how it went there.
        limit_s: after which it was stopped.
        seconds: how long it took.
    """

    hosts: Mapping[str, HostTrial]
    limit_s: float
    seconds: float = 0.0

    @property
    def succeeded(self) -> bool:
        """All hosts came through."""
        return bool(self.hosts) and all(one.state == "succeeded" for one in self.hosts.values())


def guilty_alone(trial: Trial) -> list[str]:
    """Return the hosts that failed by themselves."""
    return [name for name, one in trial.hosts.items() if one.fell_alone]


def findings_of_success(backend: str, trial: Trial) -> Iterator[Finding]:
    """Yield one finding a host: its slowest rank's times."""
    for name, one in trial.hosts.items():
        slowest = {step: max(told.get(step, 0.0) for told in one.steps.values()) for step in STEPS}
        rate = 8 * LARGE_BYTES / slowest["large"] / 1e9 if slowest["large"] else 0.0
        yield QUESTIONS[backend].ok(
            name,
            f"torch in {slowest['imported']:.1f} s, joined in {slowest['joined']:.1f} s, 8 MiB in "
            f"{slowest['large'] * 1000:.0f} ms ({rate:.1f} Gbit/s)",
        )


def findings_of_failure(
    backend: str, trial: Trial, alone: Mapping[str, Trial], pairs: Mapping[tuple[str, str], Trial]
) -> Iterator[Finding]:
    """Name the guilty: hosts that fail by themselves, else pairs that fail together, else what all of them said.

    Args:
        backend: "gloo" or "nccl".
        trial: of all hosts.
        alone: host -> its trial without the others, for those that were tried.
        pairs: (host, host) -> their trial without the others, for those that were tried.
    """
    question = QUESTIONS[backend]
    named = list(dict.fromkeys([*guilty_alone(trial), *(name for name, one in alone.items() if not one.succeeded)]))
    bad_pairs = [pair for pair, one in pairs.items() if not one.succeeded]
    for name in named:
        one = trial.hosts[name] if trial.hosts[name].fell_alone else alone[name].hosts[name]
        yield question.fail(
            name,
            f"{_how_far(one, trial.limit_s)}, without any other host",
            wanted="all steps",
            try_this=_remedy(one, name),
        )
    for first, second in bad_pairs if not named else ():
        worse = min((pairs[first, second].hosts[name] for name in (first, second)), key=_distance)
        yield question.fail(
            second,
            f"{first} and {second} do not come together: {_how_far(worse, pairs[first, second].limit_s)}",
            wanted="all-reduces between the two",
            try_this=f"ddp-orch preflight --hosts {first},{second}; then the firewalls, MTUs and interfaces of the two",
        )
    if not named and not bad_pairs:
        first = min(trial.hosts, key=lambda name: _distance(trial.hosts[name]))
        tried = f" (each alone and {len(pairs)} pairs came through)" if pairs or alone else ""
        yield question.fail(
            first,
            f"{_how_far(trial.hosts[first], trial.limit_s)}; only all together fail{tried}",
            wanted="all steps",
            try_this="fewer hosts (--hosts) until it passes; limits of open files and connections on the first host",
        )


def summed_up(pairs: Sequence[tuple[str, str]]) -> str:
    """Return pairs as a person reads them."""
    return ", ".join(f"{first} and {second}" for first, second in pairs)


def _distance(one: HostTrial) -> int:
    return STEPS.index(one.came_to) if one.came_to else -1


def _how_far(one: HostTrial, limit_s: float) -> str:
    after = f"after {one.came_to!r}" if one.came_to else "before its script began"
    if one.error:
        return f"{after}: {one.error}"
    if one.state == "failed" and one.exit_cause:
        return f"{after}: {one.exit_cause}"
    if one.state == "unreachable":
        return f"{after}: it cannot be reached any more"
    return f"no further within {limit_s:.0f} s than {one.came_to or 'nothing'!r}"


def _speaks_of_network(error: str) -> bool:
    words = ("connect", "timed out", "timeout", "socket", "store", "peer", "rendezvous", "address", "nccl", "gloo")
    return any(word in error.lower() for word in words)


def _remedy(one: HostTrial, name: str) -> str:
    if one.came_to in ("", "started"):
        return f"on {name}: the interpreter of the inventory, with -c 'import torch, torchvision'"
    if one.came_to == "imported":
        return f"on {name}: nvidia-smi; the interpreter of the inventory, with -c 'import torch; torch.ones(1).cuda()'"
    return f"ddp-orch preflight --hosts {name}"

"""Does a real torchrun over all hosts come through? What a trial's ranks told, and whom that points to."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.preflight.deep_pairs import blame
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.deep_pairs import Pair

DOING = {  # step -> what a rank does from then on, until the next
    "": "starting torchrun",
    "started": "importing torch",
    "imported": "meeting the others at the rendezvous port",
    "cuda": "meeting the others at the rendezvous port",
    "met": "connecting to the others at ports of their own",
    "joined": "the all-reduces of 40 bytes",
    "small": "the all-reduce of 8 MiB",
    "large": "the last barrier",
    "done": "ending",
}
STEPS = tuple(step for step in DOING if step)
ALONE = ("started", "imported", "cuda")  # what a rank does before it needs the others
TIME_IS_UP = "the trial's time is up"
LARGE_BYTES = 8 * 1024 * 1024

# torch puts the rank before each line of a traceback, once there is a group.
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?")
# Frames of a traceback, warnings of torch's own, and what faulthandler says around its stacks.
_NOISE = re.compile(
    r"\s|\[[WI]\d|Traceback |Thread 0x|Current thread |Extension modules:|Exception raised from |frame #"
)
_EXCEPTION = re.compile(r"[\w.]*(?:Error|Exception)\b.*: \S")
MOST_SAID = 300  # characters of an error; gloo's name file, line and two addresses in less

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
        ranks: how many it starts.
        with_gpu: its ranks use GPUs.
        steps: rank -> step -> seconds.
        error: the last telling line that a rank of it wrote to standard error, or "".
        agent_error: the last error that its torchrun wrote, or "".
        timed_out: it was stopped, or a rank ended itself, because the limit was reached.
        state: how its part of the run ended: "succeeded", "failed", "stopped", "unreachable".
        exit_cause: what the supervisor says of the end, or "".
        try_this: what to do about it, where whoever noticed it knows, or "".
    """

    ranks: int = 1
    with_gpu: bool = False
    steps: dict[int, dict[str, float]] = field(default_factory=dict)
    error: str = ""
    agent_error: str = ""
    timed_out: bool = False
    state: str = ""
    exit_cause: str = ""
    try_this: str = ""

    @property
    def came_to(self) -> str:
        """The last step that every rank of the host has ended, or ""."""
        told = self.steps.values() if len(self.steps) >= self.ranks else ()
        done = [step for step in STEPS if told and all(step in of_rank for of_rank in told)]
        return done[-1] if done else ""

    @property
    def said(self) -> str:
        """Why it failed, in its own words: a rank's before torchrun's, which only repeats it."""
        return self.error or self.agent_error

    @property
    def fell_alone(self) -> bool:
        """Tell that it failed by itself, before it needed any other host: it says so, and says nothing of a network."""
        reached = {step for told in self.steps.values() for step in told}
        spoke = bool(self.said) and not _speaks_of_network(self.said)
        return self.state == "failed" and not self.timed_out and spoke and not reached - set(ALONE)

    def note_error(self, line: str, *, of_rank: bool) -> None:
        """Keep a line of standard error, if it is one that tells something."""
        text = _RANK_PREFIX.sub("", line).rstrip()
        if of_rank and text.startswith("Timeout ("):  # of faulthandler, which the trial sets
            self.timed_out = True
        elif of_rank and text and not _NOISE.match(text):
            self.error = text[:MOST_SAID]
        elif not of_rank and _EXCEPTION.match(text):
            self.agent_error = text[:MOST_SAID]


@dataclass(frozen=True)
class Trial:
    """One torchrun over some hosts.

    Attributes:
        hosts: inventory name -> how it went there.
        limit_s: after which it was stopped.
    """

    hosts: Mapping[str, HostTrial]
    limit_s: float

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
            f"torch in {slowest['imported']:.1f} s, joined in {slowest['met'] + slowest['joined']:.1f} s, 8 MiB in "
            f"{slowest['large'] * 1000:.0f} ms ({rate:.1f} Gbit/s)",
        )


def findings_of_failure(
    backend: str, trial: Trial, alone: Mapping[str, Trial], pairs: Mapping[Pair, Trial]
) -> Iterator[Finding]:
    """Name the guilty: hosts that fail by themselves, else hosts or pairs that do not come together, else all of them.

    Args:
        backend: "gloo" or "nccl".
        trial: of all hosts.
        alone: host -> its trial without the others, for those that were tried.
        pairs: (host, host) -> their trial without the others, for those that were tried.
    """
    question = QUESTIONS[backend]
    by_themselves = dict.fromkeys([*guilty_alone(trial), *(name for name, one in alone.items() if not one.succeeded)])
    for name in by_themselves:
        one = trial.hosts[name] if trial.hosts[name].fell_alone else alone[name].hosts[name]
        yield question.fail(
            name,
            f"{_how_far(one, trial.limit_s)} (without any other host)",
            wanted="all steps",
            try_this=_remedy(one, name),
        )
    if by_themselves:
        return
    blamed = blame({pair: one.succeeded for pair, one in pairs.items()})
    for name in blamed.hosts:
        with_others = {pair: one for pair, one in pairs.items() if name in pair}
        others = [other for pair in with_others for other in pair if other != name]
        yield question.fail(
            name,
            f"it comes together with none of {', '.join(others)}: {_worst(list(with_others.values()))}",
            wanted="all-reduces with every other host",
            try_this=f"on {name}: its firewall (sudo nft list ruleset), MTU (ip link) and route to the others",
        )
    for pair in blamed.pairs:
        for name in pair:  # nobody can tell from outside on which of the two
            yield question.fail(
                name,
                f"{pair[0]} and {pair[1]} do not come together: {_worst([pairs[pair]])}",
                wanted="all-reduces between the two",
                try_this="on both: the firewall (sudo nft list ruleset), the MTU (ip link) and the route to the other;"
                f" then ddp-orch preflight --deep --hosts {pair[0]},{pair[1]}",
            )
    if not blamed.hosts and not blamed.pairs:
        name, one = _farthest_from_done(trial)
        possible = len(trial.hosts) * (len(trial.hosts) - 1) // 2
        tried = f"; each alone and {len(pairs)} of {possible} pairs come through" if alone else ""
        yield question.fail(
            name,
            f"{_how_far(one, trial.limit_s)}{tried}",
            wanted="all steps",
            try_this="ddp-orch preflight --deep --hosts HOST,... with fewer of them, until it passes",
        )


def _farthest_from_done(trial: Trial) -> tuple[str, HostTrial]:
    """Return the host that tells most of a failure: one that says why, of those the one that came least far."""

    def order(name: str) -> tuple[bool, int]:
        one = trial.hosts[name]
        return not one.said, STEPS.index(one.came_to) if one.came_to else -1

    name = min(trial.hosts, key=order)
    return name, trial.hosts[name]


def _worst(trials: Sequence[Trial]) -> str:
    trial = next(one for one in trials if not one.succeeded)
    name, one = _farthest_from_done(trial)
    return f"{name} {_how_far(one, trial.limit_s)}"


def _how_far(one: HostTrial, limit_s: float) -> str:
    step = "using its GPU" if one.with_gpu and one.came_to == "imported" else DOING[one.came_to]
    if one.said:
        return f"failed at {step}: {one.said}"
    if one.timed_out:
        return f"gave no answer within {limit_s:.0f} s at {step}"
    if one.state == "unreachable":
        return f"could not be reached any more at {step}"
    return f"ended at {step}" + (f": {one.exit_cause}" if one.exit_cause else "")


def _speaks_of_network(error: str) -> bool:
    words = ("connect", "timed out", "timeout", "socket", "store", "peer", "rendezvous", "address", "nccl", "gloo")
    return any(word in error.lower() for word in words)


def _remedy(one: HostTrial, name: str) -> str:
    if one.try_this:
        return one.try_this
    if one.came_to in ("", "started"):
        slow = "; where that is only slow, a longer --deep-timeout" if one.timed_out else ""
        return f"on {name}: the interpreter of the inventory, with -c 'import torch, torchvision'{slow}"
    if one.came_to == "imported" and one.with_gpu:
        return f"on {name}: nvidia-smi; the interpreter of the inventory, with -c 'import torch; torch.ones(1).cuda()'"
    return f"on {name}: the variables of the inventory (env:) and of its login shell; ip address"

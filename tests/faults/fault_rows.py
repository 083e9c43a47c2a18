"""The fault table: what goes wrong, when, and what has to come of it. Plain data; `fault_trial.py` performs a row."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

# What the hosts that the fault did not hit may take, once it can be seen.
AFTER_FAILURE_S = 2.0
AFTER_SILENCE_S = 10.0
AFTER_INTERRUPT_S = 5.0  # a worker that obeys TERM ends within one; the rest is two hosts' scripts going down
HANG_AFTER_S = 5
AFTER_HANG_S = HANG_AFTER_S + 10.0
# Nobody fails for a rank that ended well until the others miss it: in a collective at once, in init_process_group
# never, so that the supervisors look after ten seconds.
AFTER_EARLY_END_S = 20.0
AFTER_PORT_S = 15.0  # torchrun asks for the port once it has loaded torch
# A daemon that outlives a good end is given time to finish by itself, an uploader say.
AFTER_GOOD_END_S = 10.0

ALL = ("before", "init", "collective", "outside", "checkpoint", "end")
UNMET = ("before", "init")
UNFINISHED = ALL[:-1]
STARTED = ALL[1:]
START = "start"  # between the check of the hosts and the start of the run
SUCCEEDS, FAILS, INTERRUPTED = 0, 1, 130
GONE = -9  # the controller itself is what was killed


@dataclass(frozen=True)
class Fault:
    """One way to break a run.

    Attributes:
        name: of the fault; with a moment and a victim it names a row.
        says: what happens, for the table.
        moments: where it makes sense; the first is what CI tries.
        itself: what the victim's script does, or "" where the fault comes from outside.
        victim: the rank that does it, or whose host is hit.
        any_victim: it makes sense on every host.
        cause: pattern of what follows `cause: `; {rank}, {host} and {first} (the first host) are filled in. "": the run
            has none, since it goes on, or was asked to stop.
        exit_code: of the controller.
        others_within_s: how soon the hosts that were not hit are clean.
        unmet_within_s: the same, where the ranks have not met yet; None where that makes no difference.
        habits: of the script.
        options: further words for `ddp-orch run`.
        silent: the victim's host cannot be read afterwards, so that its last lines may be lost.
        processes: of the first and the second host.
    """

    name: str
    says: str
    moments: tuple[str, ...]
    itself: str = ""
    victim: int = 1
    any_victim: bool = True
    cause: str = ""
    exit_code: int = FAILS
    others_within_s: float = AFTER_FAILURE_S
    unmet_within_s: float | None = None
    habits: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    silent: bool = False
    processes: tuple[int, int] = (1, 1)

    @property
    def survives(self) -> bool:
        """The run goes on, and ends well."""
        return self.exit_code in (SUCCEEDS, GONE)


RAISED = r"rank {rank} on {host} raised ValueError: on purpose"
SILENT = r"{host} fell silent"
THREE_DAEMONS = ("daemon", "daemon-bare", "daemon-titled")

FAULTS = (
    # --- a rank, by itself ---
    Fault("raise", "a rank raises", ("outside", *ALL[:3], *ALL[4:]), "raise", cause=RAISED),
    Fault("exit3", "a rank ends with exit code 3", ("init", "before", *ALL[2:]), "exit3",
          cause=r"rank {rank} on {host} ended with exit code 3"),
    Fault("exit0", "a rank ends early with exit code 0", ("collective", "before", "init", "outside", "checkpoint"),
          "exit0", cause=r"rank {rank} on {host} ended with exit code 0 while the others were still at work",
          unmet_within_s=AFTER_EARLY_END_S),
    Fault("segfault", "a rank segfaults", ("collective", "before", "init", *ALL[3:]), "segfault", victim=0,
          cause=r"rank {rank} on {host} was ended by SIGSEGV"),
    Fault("killed", "a rank is killed with -9", ("checkpoint", *ALL[:4], "end"), "killed", victim=0,
          cause=r"rank {rank} on {host} was ended by SIGKILL"),
    Fault("killed-of-two", "one of two ranks of a host is killed", ("before", *ALL[1:]), "killed",
          cause=r"rank {rank} on {host} was ended by SIGKILL", processes=(1, 2), any_victim=False),
    Fault("stopped", "a rank is stopped (SIGSTOP)", ("collective", "outside", "checkpoint"), "stopped",
          cause=r"rank {rank} on {host} is stopped \(SIGSTOP", others_within_s=AFTER_HANG_S,
          options=("--hang-after", f"{HANG_AFTER_S}s")),
    Fault("memory", "a host's memory runs out", ("before", *ALL[1:]), "memory",
          cause=r"(rank {rank}|torchrun|the supervisor) on {host} was killed because memory ran out"),
    # --- the processes around it ---
    Fault("agent-killed", "torchrun is killed with -9", ("collective", "before", "init", *ALL[3:]),
          cause=r"torchrun on {host} was ended by SIGKILL"),
    Fault("supervisor-killed", "the supervisor is killed with -9", ("before", *ALL[1:]),
          cause=r"the supervisor on {host} was ended by SIGKILL"),
    Fault("supervisor-killed-daemons", "the supervisor of a script with daemons is killed", ("outside",),
          cause=r"the supervisor on {host} was ended by SIGKILL", habits=THREE_DAEMONS),
    Fault("guard-killed", "the supervisor's guard is killed with -9", ("outside", "before"), exit_code=SUCCEEDS),
    Fault("controller-killed", "the controller is killed with -9", ("before", *ALL[1:]), exit_code=GONE,
          any_victim=False),
    Fault("ctrl-c", "Ctrl-C", ("collective", START, "before", "init", *ALL[3:]), exit_code=INTERRUPTED,
          others_within_s=AFTER_INTERRUPT_S, any_victim=False),
    Fault("ctrl-c-twice", "Ctrl-C twice; the script ignores TERM", ("before", *ALL[1:]), exit_code=INTERRUPTED,
          others_within_s=AFTER_INTERRUPT_S, habits=("ignores-term",), any_victim=False),
    Fault("terminal-closed", "the terminal is closed", ("before", *ALL[1:]), exit_code=GONE, any_victim=False),
    Fault("ignores-term", "a rank raises, the other ignores TERM", ("before", "outside", "checkpoint", "collective"),
          "raise", cause=RAISED, habits=("ignores-term",)),
    # --- the ways between them ---
    Fault("ssh-cut", "the SSH connection is cut", ("before", *ALL[1:]), exit_code=SUCCEEDS),
    Fault("sshd-gone", "the SSH server is gone", ("before", *ALL[1:]), exit_code=SUCCEEDS),
    Fault("cable-5s", "the cable is out for 5 s", ("collective", "outside", "checkpoint", "before"),
          exit_code=SUCCEEDS),
    Fault("cable", "the cable is out for good", ("outside", "before", "init", "collective", "checkpoint", "end"),
          cause=SILENT, others_within_s=AFTER_SILENCE_S, silent=True),
    Fault("power-other", "the power of the other host goes", ("before", *ALL[1:]), cause=SILENT,
          others_within_s=AFTER_SILENCE_S, silent=True, any_victim=False),
    Fault("power-first", "the power of the first host goes", ("collective", "before", "init", *ALL[3:]), cause=SILENT,
          victim=0, others_within_s=AFTER_SILENCE_S, silent=True, any_victim=False),
    # --- what runs out, and what is taken ---
    Fault("disk-host", "a host's disk is full", ("checkpoint", "before", "init", "collective", "outside"),
          cause=r"the disk is full on {host}"),
    Fault("disk-controller", "the controller's disk is full", ("before", "outside"), exit_code=SUCCEEDS,
          any_victim=False),
    Fault("port-taken", "the port is taken between check and start", (START,), victim=0, any_victim=False,
          cause=r"{first}: its part did not start: .*port 29500 was taken after the check, by python3",
          others_within_s=AFTER_PORT_S),
    Fault("clock", "a clock is an hour off, and a rank fails", ("collective", "before", "init", *ALL[3:]), "exit3",
          cause=r"rank {rank} on {host} ended with exit code 3"),
    Fault("clock-well", "a clock is an hour off", ("before",), exit_code=SUCCEEDS),
    Fault("two-runs", "one of two runs on the same hosts fails", ("outside", "collective", "before"), "raise",
          cause=RAISED),
    # --- what a script writes and starts ---
    Fault("flood", "a million lines at full speed", ("outside",), exit_code=SUCCEEDS, habits=("flood",)),
    Fault("odd-output", "a line without end, and bytes that are not UTF-8", ("outside",), exit_code=SUCCEEDS,
          habits=("bytes", "endless-line")),
    Fault("daemons", "daemons: plain, without environment, under another title", ("outside", "end"),
          exit_code=SUCCEEDS, habits=THREE_DAEMONS, others_within_s=AFTER_GOOD_END_S),
    Fault("daemons-raise", "a script with such daemons raises", ("outside", "collective", "checkpoint"), "raise",
          cause=RAISED, habits=THREE_DAEMONS),
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A fault at a moment.

    Attributes:
        fault: what goes wrong.
        moment: when.
        delay_s: how much later a fault from outside comes.
    """

    fault: Fault
    moment: str
    delay_s: float = 0.0

    @property
    def name(self) -> str:
        """What it is called on command lines and in results: `power-other@init`."""
        return f"{self.fault.name}@{self.moment}"

    @property
    def others_within_s(self) -> float:
        """How soon the hosts that were not hit are clean."""
        unmet_s = self.fault.unmet_within_s if self.moment in UNMET else None
        return self.fault.others_within_s if unmet_s is None else unmet_s

    @property
    def details(self) -> str:
        """What else tells it from other rows of that name."""
        on = "+".join(map(str, self.fault.processes))
        return f"rank {self.fault.victim} of {on}, {self.delay_s:.2f} s later"


def all_rows() -> list[Row]:
    """Return every sensible pair of a fault and a moment."""
    return [Row(fault, moment) for fault in FAULTS for moment in fault.moments]


def rows_for_ci() -> list[Row]:
    """Return each fault once."""
    seldom = ("supervisor-killed-daemons", "clock-well", "daemons-raise")  # variants, in the whole table
    return [Row(fault, fault.moments[0]) for fault in FAULTS if fault.name not in seldom]


def drawn(seed: int, number: int) -> Row:
    """Draw a random row: the same for the same seed and number, whatever was drawn before."""
    dice = random.Random(f"{seed}/{number}")
    fault = dice.choice(FAULTS)
    moment = dice.choice(fault.moments)
    delay_s = round(dice.random(), 2)
    if fault.any_victim:
        processes = dice.choice(((1, 1), (1, 1), (1, 2), (2, 1)))
        fault = replace(fault, processes=processes, victim=dice.randrange(sum(processes)))
    return Row(fault, moment, delay_s)

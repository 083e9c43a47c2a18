"""What a run looks like on the terminal: steps, prefixed lines, and one short last word."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

from orchestrator.cli.screen import err, out, safe, say
from orchestrator.model.run_events import (
    AGENT,
    ConnectionLost,
    CopyFailed,
    HostChanged,
    LogGap,
    LogLine,
    Prepared,
    Step,
    Stopping,
)

if TYPE_CHECKING:
    from orchestrator.launch.environment import Setting
    from orchestrator.model.run_record import HostState, RunRecord
    from orchestrator.workflows.follow_run import Outcome

# Bright enough on black and on white; a host keeps its colour for as long as the command runs.
_COLOURS = ("36", "33", "35", "32", "34", "96", "93", "95", "92", "94")
_SHOWN_SETTINGS = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "RES_OPTIONS")
INTERRUPTED, TIMED_OUT = 130, 124  # as a shell and timeout(1) say it


class RunScreen:
    """Shows the events of a run as they come."""

    def __init__(self, *, with_talk: bool = True, with_agents: bool = False) -> None:
        """Prepare to show.

        Args:
            with_talk: also show steps and states, on standard error; `logs` shows lines, and gaps in them, alone.
            with_agents: also show torchrun's own lines as they come. When a rank fails they are long and say less than
                the rank did; when none did, the last word quotes them.
        """
        self._with_agents = with_agents
        self._with_talk = with_talk
        self._colours: dict[str, str] = {}
        self._settings: dict[tuple[Setting, ...], list[str]] = {}

    def event(self, event: object) -> None:
        """Show one event."""
        if isinstance(event, LogLine):
            if event.rank != AGENT or self._with_agents:
                self._line(event)
        elif isinstance(event, LogGap):
            say(_told(event))
        elif not self._with_talk:
            return
        elif isinstance(event, Step):
            self._show_settings()
            say(event.text)
        elif isinstance(event, Prepared):
            self._settings.setdefault(event.settings, []).append(event.host)
        elif isinstance(event, HostChanged):
            self._host(event.state)
        elif isinstance(event, ConnectionLost | CopyFailed | Stopping):
            say(_told(event))
        else:
            from orchestrator.cli.preparation_screen import show_preparation

            show_preparation(event)

    def conclude(self, record: RunRecord, outcome: Outcome) -> int:
        """Say how the run ended, and return the exit code."""
        states = list(outcome.states.values())
        clean = [state for state in states if state.left_over == 0]
        left = f"{sum(state.left_over or 0 for state in states)} processes left on {len(clean)} of {len(states)} hosts"
        if outcome.succeeded:
            well = sum(state.state == "succeeded" for state in states)
            say(f"run {record.run} succeeded on {well} of {len(states)} hosts; {left}")
            say(f"  next: ddp-orch fetch {record.run}")
            return 0
        kinds = set() if any(state.state == "failed" for state in states) else {state.stop_kind for state in states}
        if outcome.stopped_for == "interrupted" or "user" in kinds:
            say(f"run {record.run} was stopped; {left}")
            return INTERRUPTED
        if "timeout" in kinds:
            why = next(state.stop_reason for state in states if state.stop_kind == "timeout")
            say(f"run {record.run} was ended by {why}; {left}")
            return TIMED_OUT
        self._failure(record, outcome)
        say(f"run {record.run} failed; {left}")
        return 1

    def _failure(self, record: RunRecord, outcome: Outcome) -> None:
        """Name the first cause, with its last words and what to type next."""
        from orchestrator.diagnosis.blame import first_cause

        cause = first_cause(list(outcome.states.values()), outcome.last_errors)
        if cause is None:
            return
        if cause.lines:
            err().rule(f"rank {cause.rank} on {cause.host}" if cause.rank != AGENT else f"torchrun on {cause.host}")
            for line in cause.lines:
                say(line)
        say(f"cause: {cause.says}")
        gave_up = next((state.gave_up for state in outcome.states.values() if state.gave_up), "")
        if gave_up and record.max_restarts:
            say(f"  not restarted: {gave_up}")
        rank = f" --rank {cause.rank}" if cause.rank != AGENT else ""
        say(f"  the whole log: ddp-orch logs {record.run}{rank}")

    def _host(self, state: HostState) -> None:
        detail = f" ({state.left_over} processes left)" if state.left_over is not None else ""
        if state.attempt and state.state == "running":
            resume = f" from {state.resume}" if state.resume else " from the start"
            detail = f" again{resume}, attempt {state.attempt} of {len(state.members)} hosts"
        why = state.cause or state.gave_up or state.waits_for
        say(f"{state.host}: {state.state}{detail}" + (f": {why}" if why else ""))

    def _line(self, line: LogLine) -> None:
        stream, console = (sys.stderr, err()) if line.is_error else (sys.stdout, out())
        who = "agent" if line.rank == AGENT else f"r{line.rank}"
        prefix = f"[{who} {line.host}]"
        if console.color_system is not None:
            colour = self._colours.setdefault(line.host, _COLOURS[len(self._colours) % len(_COLOURS)])
            prefix = f"\x1b[{colour}m{prefix}\x1b[0m"
        stream.write(f"{prefix} {safe(line.text)}\n")
        stream.flush()

    def _show_settings(self) -> None:
        """Show what each host's workers get, equal ones folded."""
        for settings, hosts in self._settings.items():
            shown = [setting for setting in settings if setting.name in _SHOWN_SETTINGS]
            names = hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts"
            for setting in shown:
                say(f"  {names}: {setting.name}={shlex.quote(setting.value)}  ({setting.why})")
        self._settings.clear()


def _told(event: ConnectionLost | LogGap | CopyFailed | Stopping) -> str:
    """Say what has happened on the way."""
    if isinstance(event, ConnectionLost):
        return f"{event.host}: no connection ({event.why}); its part goes on, next try in {event.retry_in_s:.0f} s"
    if isinstance(event, LogGap):
        return f"[r{event.rank} {event.host}] {event.missing_bytes} bytes are not kept any more (--log-limit)"
    if isinstance(event, CopyFailed):
        return f"{event.file}: {event.why}: copied here no further; the run goes on, and `ddp-orch attach` fetches it"
    more = "; Ctrl-C again kills it" if event.why == "interrupted" and event.grace_s else ""
    return f"stopping the run on all hosts ({event.why}), {event.grace_s:.0f} s to end by itself{more}"

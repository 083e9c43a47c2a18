"""Follow a run on all its hosts: log pieces and states as they come, through lost connections, to the end."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.errors import DdpOrchError, HostUnreachable
from orchestrator.logs.lines import LineAssembler
from orchestrator.logs.rank_files import files_of, rank_and_stream
from orchestrator.model.run_events import AGENT, ConnectionLost, HostChanged, LogLine, Stopping
from orchestrator.model.run_record import HostState, host_state
from orchestrator.transport.node_program import Conversation, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from orchestrator.model.run_record import HostPart, RunRecord
    from orchestrator.transport.link_pool import LinkPool

SILENCE_S = 16.0  # three missed beats of run_reader: the connection is dead, whatever TCP thinks
RETRY_FIRST_S, RETRY_MOST_S = 1.0, 10.0
GIVE_UP_S = 60.0  # a host that stays away this long is lost to the run
LAST_LINES = 40  # kept of each rank's standard error: a traceback with its message
STOP_ANSWER_S = 30.0  # beside the grace: for the supervisor to kill, scan and write
GRACE_AFTER_FAILURE_S = 5.0  # the others' state is lost anyway, but a worker may want to say its last words


@dataclass
class Outcome:
    """What became of a run.

    Attributes:
        states: host name -> how it stands there, in node_rank order.
        last_errors: rank (or AGENT) -> its last lines on standard error.
        stopped_for: why it was stopped from here, or "".
    """

    states: dict[str, HostState] = field(default_factory=dict)
    last_errors: dict[tuple[str, int], deque[str]] = field(default_factory=dict)
    stopped_for: str = ""

    @property
    def succeeded(self) -> bool:
        """Every host's part ended well."""
        return bool(self.states) and all(state.state == "succeeded" for state in self.states.values())


class RunFollower:
    """Follows one run; made for one call of `follow`."""

    def __init__(
        self,
        pool: LinkPool,
        record: RunRecord,
        *,
        on_event: Callable[[object], None],
        log_folder: Path | None = None,
    ) -> None:
        """Prepare to follow.

        Args:
            pool: links to the hosts of the run.
            record: the run.
            on_event: called in the caller's thread with LogLine, HostChanged, ConnectionLost and Stopping.
            log_folder: where copies of the log files are kept, or None.
        """
        self._pool = pool
        self._record = record
        self._on_event = on_event
        self._log_folder = log_folder
        # Bounded: a slow terminal slows the reading down, and never the training.
        self._arrived: queue.Queue[tuple[str, Message | HostState | ConnectionLost | None]] = queue.Queue(maxsize=64)
        self._lines: dict[tuple[str, str], LineAssembler] = {}
        self._closing = threading.Event()
        self._own_stop = ""
        self.outcome = Outcome(states={part.name: HostState(part.name, "starting") for part in record.hosts})

    def follow(
        self,
        *,
        ranks: Collection[int] | None = None,
        keep_on: bool = True,
        owner: bool = False,
    ) -> Outcome:
        """Read until the run has ended everywhere (or, without `keep_on`, until all that is there is read).

        Args:
            ranks: read these ranks only, and only from their hosts; None reads all, and torchrun's own words.
            keep_on: wait for more.
            owner: the run is ours: when one host fails, stop the others; Ctrl-C stops the run, a second one kills it.
        Raises:
            KeyboardInterrupt: Ctrl-C, where the run is not ours.
        """
        parts = [part for part in self._record.hosts if ranks is None or set(part.ranks) & set(ranks)]
        for part in parts:
            wanted = [rank for rank in part.ranks if ranks is None or rank in ranks]
            files = files_of(wanted, agent=ranks is None)
            self._in_thread(self._read_host, part, files, keep_on)
        open_hosts = {part.name for part in parts}
        try:
            while open_hosts:
                try:
                    host, arrived = self._arrived.get(timeout=0.5)
                    if arrived is None:
                        open_hosts.discard(host)
                        self._end_lines(host)
                    else:
                        self._take(host, arrived)
                    if owner:
                        self._stop_the_others()
                except queue.Empty:
                    continue
                except KeyboardInterrupt:
                    if not owner:
                        raise
                    self.stop("interrupted", grace_s=0.0 if self._own_stop == "interrupted" else 30.0)
        finally:
            self._closing.set()
        return self.outcome

    def stop(self, why: str, *, grace_s: float) -> None:
        """Have every host that still runs end its part; the states arrive as events."""
        self._own_stop = self.outcome.stopped_for = why
        self._on_event(Stopping(why, grace_s))
        for part in self._record.hosts:
            if not self.outcome.states[part.name].is_final:
                self._in_thread(self._stop_host, part, why, grace_s)

    # --- in the hosts' threads ---

    def _in_thread(self, task: Callable[..., None], part: HostPart, *rest: object) -> None:
        threading.Thread(target=task, args=(part, *rest), name=f"run-{part.name}", daemon=True).start()

    def _read_host(self, part: HostPart, files: list[str], keep_on: bool) -> None:  # noqa: FBT001 - a thread's target
        """Read one host's files and states, connecting anew and going on where a lost connection broke off."""
        offsets = dict.fromkeys(files, 0)
        last_heard = time.monotonic()
        wait_s = RETRY_FIRST_S
        while not self._closing.is_set():
            link = None
            try:
                link = self._pool.link(part.name)
                for message in _messages(link, part.run_dir, offsets, keep_on=keep_on):
                    last_heard, wait_s = time.monotonic(), RETRY_FIRST_S
                    self._arrived.put((part.name, message))
                break
            except (TimeoutError, HostUnreachable) as error:
                if link is not None:
                    self._pool.drop(part.name, link)
                why = error.message if isinstance(error, HostUnreachable) else f"no word for {SILENCE_S:.0f} s"
                if time.monotonic() - last_heard > GIVE_UP_S or not keep_on:
                    self._arrived.put((part.name, HostState(part.name, "unreachable", cause=why)))
                    break
                self._arrived.put((part.name, ConnectionLost(part.name, why, wait_s)))
                self._closing.wait(wait_s)
                wait_s = min(wait_s * 2, RETRY_MOST_S)
        self._arrived.put((part.name, None))

    def _stop_host(self, part: HostPart, why: str, grace_s: float) -> None:
        with contextlib.suppress(DdpOrchError):  # a host that cannot be asked shows as unreachable in its own reader
            self._arrived.put((part.name, stop_on_host(self._pool, part, why, grace_s=grace_s)))

    # --- in the caller's thread ---

    def _take(self, host: str, arrived: Message | HostState | ConnectionLost) -> None:
        if isinstance(arrived, ConnectionLost):
            self._on_event(arrived)
        elif isinstance(arrived, HostState):
            self._changed(arrived)
        elif "file" in arrived.body:
            self._keep(host, str(arrived.body["file"]), int(arrived.body["offset"]), arrived.payload)
        elif "state" in arrived.body:
            self._changed(host_state(host, arrived.body["state"], alive=bool(arrived.body["alive"])))

    def _changed(self, state: HostState) -> None:
        before = self.outcome.states[state.host]
        if before.is_final and not state.is_final:
            return  # two threads report; the end stands
        if state != before:
            self.outcome.states[state.host] = state
            self._on_event(HostChanged(state))

    def _keep(self, host: str, file: str, offset: int, piece: bytes) -> None:
        if self._log_folder is not None:
            _write_at(self._log_folder / _copy_name(host, file), offset, piece)
        rank, is_error = rank_and_stream(file)
        assembler = self._lines.setdefault((host, file), LineAssembler())
        for text in assembler.add(piece):
            self._line(LogLine(host, rank, is_error, text))

    def _end_lines(self, host: str) -> None:
        for (of_host, file), assembler in self._lines.items():
            if of_host == host:
                rank, is_error = rank_and_stream(file)
                for text in assembler.end():
                    self._line(LogLine(host, rank, is_error, text))

    def _line(self, line: LogLine) -> None:
        if line.is_error:
            self.outcome.last_errors.setdefault((line.host, line.rank), deque(maxlen=LAST_LINES)).append(line.text)
        self._on_event(line)

    def _stop_the_others(self) -> None:
        """Stop the run on all hosts when one of them has failed."""
        if self._own_stop:
            return
        states = self.outcome.states.values()
        bad = [
            state for state in states if (state.is_final and state.state != "succeeded") or state.state == "unreachable"
        ]
        if bad and not all(state.is_final for state in states):
            self.stop(f"{bad[0].host} {'does not answer' if bad[0].state == 'unreachable' else bad[0].state}",
                      grace_s=GRACE_AFTER_FAILURE_S)  # fmt: skip


def stop_on_host(pool: LinkPool, part: HostPart, why: str, *, grace_s: float) -> HostState:
    """End a run on one host and return how it stands then, after a second scan.

    Args:
        pool: links to the hosts.
        part: the host's part in the run.
        why: for the record.
        grace_s: seconds for the workers to end by themselves before they are killed.
    Raises:
        HostUnreachable: the host cannot be asked.
        DdpOrchError: it knows no such run.
    """
    with Conversation(pool.link(part.name), "run_control") as talk:
        order = {"do": "stop", "run_dir": part.run_dir, "stop": {"why": why, "grace_s": grace_s}}
        answer = talk.ask(order, timeout_s=grace_s + STOP_ANSWER_S)
    if "error" in answer:
        raise DdpOrchError(str(answer["error"]), host=part.name, try_this="ddp-orch status")
    return host_state(part.name, answer["state"], alive=False)


def _messages(link: Any, run_dir: str, offsets: dict[str, int], *, keep_on: bool) -> Any:
    """Yield what run_reader sends, moving `offsets` on as pieces come."""
    with Conversation(link, "run_reader") as talk:
        talk.send({"do": "follow", "run_dir": run_dir, "files": offsets, "follow": keep_on})
        while (message := talk.receive(SILENCE_S)) is not None:
            if "file" in message.body:
                offsets[str(message.body["file"])] = int(message.body["offset"]) + len(message.payload)
            yield message


def _copy_name(host: str, file: str) -> str:
    """Name a copy: ranks are unique in a run, torchrun's own words are one file a host."""
    rank, _ = rank_and_stream(file)
    return f"{host}.{file}" if rank == AGENT else file


def _write_at(path: Path, offset: int, piece: bytes) -> None:
    """Write a piece where it belongs; a second follower writes the same bytes to the same place."""
    import os

    # A full disk on the controller costs the copy, not the run.
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(descriptor, piece, offset)
        finally:
            os.close(descriptor)


def last_errors_by_rank(outcome: Outcome) -> Mapping[int, list[str]]:
    """Return each rank's last lines on standard error."""
    return {rank: list(lines) for (_, rank), lines in outcome.last_errors.items() if rank != AGENT}

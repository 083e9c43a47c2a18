"""Follow a run on all its hosts: log pieces and states as they come, through lost connections, to the end."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.errors import DdpOrchError, HostUnreachable
from orchestrator.logs.lines import LineAssembler
from orchestrator.logs.rank_files import copy_name, log_file
from orchestrator.model.run_events import ConnectionLost, CopyFailed, HostChanged, LogGap, LogLine, Stopping
from orchestrator.model.run_record import FINAL_STATES, HostState, host_state
from orchestrator.transport.node_program import Conversation, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from orchestrator.logs.rank_files import LogFile
    from orchestrator.model.run_record import HostPart, RunRecord
    from orchestrator.runs.log_copies import LogCopies
    from orchestrator.transport.link import Link
    from orchestrator.transport.link_pool import LinkPool
    from orchestrator.workflows.keep_run import RunKeeper

SILENCE_S = 16.0  # three missed beats of run_reader: the connection is dead, whatever TCP thinks
RETRY_FIRST_S, RETRY_MOST_S = 1.0, 10.0
GIVE_UP_S = 60.0  # a host that stays away this long is lost to the run
GIVE_UP_LAST_S = 10.0  # the same, where the run has ended on all others
STRAGGLER_S = 20.0  # until a run that may restart is stopped from here: its supervisors agree on that, if they can
LOST_AGAIN_S = 2.0  # between two looks at a host that has no supervisor
LOOK_AFTER_S = 0.3  # how late Ctrl-C is confirmed
LAST_LINES = 40  # kept of each rank's standard error: a traceback with its message
STOP_ANSWER_S = 30.0  # beside the grace: for the supervisor to kill, scan and write
GRACE_S = 30.0  # after Ctrl-C, for the workers to write a last checkpoint
GRACE_AFTER_FAILURE_S = 1.0  # as the supervisors give it among themselves


@dataclass
class Outcome:
    """What became of a run.

    Attributes:
        states: host name -> how it stands there, in node_rank order.
        last_errors: host and rank (or AGENT) -> its last lines on standard error, in its last attempt.
        stopped_for: why it was stopped from here, or "".
    """

    states: dict[str, HostState] = field(default_factory=dict)
    last_errors: dict[tuple[str, int], deque[str]] = field(default_factory=dict)
    stopped_for: str = ""

    @property
    def succeeded(self) -> bool:
        """Every host that took part in the last attempt ended well."""
        last = max(self.states.values(), key=lambda state: state.attempt, default=None)
        members = last.members if last is not None and last.members else tuple(self.states)
        return bool(members) and all(self.states[name].state == "succeeded" for name in members)


class RunFollower:
    """Follows one run; made for one call of `follow`."""

    def __init__(
        self,
        pool: LinkPool,
        record: RunRecord,
        *,
        on_event: Callable[[object], None],
        copies: LogCopies | None = None,
        keeper: RunKeeper | None = None,
    ) -> None:
        """Prepare to follow.

        Args:
            pool: links to the hosts of the run.
            record: the run.
            on_event: called in the caller's thread with LogLine, LogGap, CopyFailed, HostChanged, ConnectionLost and
                Stopping.
            copies: where copies of the log files are kept. What they hold is not read again, and no event of it comes.
            keeper: does what a run that may restart needs of a controller, or None.
        """
        self._pool = pool
        self._record = record
        self._on_event = on_event
        self._copies = copies
        self._keeper = keeper
        # Bounded: a slow terminal slows the reading down, and never the training.
        self._arrived: queue.Queue[tuple[str, Message | HostState | ConnectionLost | None]] = queue.Queue(maxsize=64)
        self._unsaid: deque[Stopping] = deque()
        self._lines: dict[tuple[str, str], LineAssembler] = {}
        self._expected: dict[tuple[str, str], int] = {}
        self._attempts: dict[tuple[str, int], int] = {}  # of the last errors
        self._silent_since: dict[str, float] = {}
        self._bad_since: float | None = None
        self._closing = threading.Event()
        self._own_stop = ""
        self.outcome = Outcome(states={part.name: HostState(part.name, "starting") for part in record.hosts})

    def follow(
        self,
        *,
        ranks: Collection[int] | None = None,
        logs: bool = True,
        keep_on: bool = True,
        owner: bool = False,
    ) -> Outcome:
        """Read until the run has ended everywhere (or, without `keep_on`, until all that is there is read).

        Args:
            ranks: read these ranks only, and only from their hosts; None reads all, and torchrun's own words.
            logs: read logs at all, and not states alone.
            keep_on: wait for more.
            owner: the run is ours: when one host fails, stop the others; Ctrl-C stops the run, a second one kills it.
        Raises:
            KeyboardInterrupt: Ctrl-C, where the run is not ours, or a third one.
        """
        moves = self._record.max_restarts > 0  # a rank may be on another host in a later attempt
        parts = [part for part in self._record.hosts if ranks is None or moves or set(part.ranks) & set(ranks)]
        for part in parts:
            order = {"ranks": sorted(ranks or ()) if ranks is not None or not logs else None,
                     "agent": logs and ranks is None, "follow": keep_on}  # fmt: skip
            self._in_thread(self._read_host, part, order)
        open_hosts = {part.name for part in parts}
        try:
            with self._stopping_on_ctrl_c() if owner else contextlib.nullcontext():
                while open_hosts:
                    with contextlib.suppress(queue.Empty):
                        host, arrived = self._arrived.get(timeout=LOOK_AFTER_S)
                        if arrived is None:
                            open_hosts.discard(host)
                            self._end_lines(host)
                        else:
                            self._take(host, arrived)
                    self._look_after(owner=owner)
        finally:
            self._closing.set()
        return self.outcome

    @contextlib.contextmanager
    def _stopping_on_ctrl_c(self) -> Iterator[None]:
        """Have Ctrl-C stop the run, and not break off what is being read, written or shown.

        It does so also while a terminal that takes nothing holds up this thread.
        """
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # started in the background, or by nohup
        if ignored or threading.current_thread() is not threading.main_thread():
            yield
            return
        heard, pressed = os.pipe()
        times = 0

        def press(*_: object) -> None:
            nonlocal times
            times += 1
            if times > 2:
                raise KeyboardInterrupt
            os.write(pressed, b"!")  # all that is safe in here: locks may be held

        def watch() -> None:
            with os.fdopen(heard, "rb", buffering=0) as presses:
                for grace_s in (GRACE_S, 0.0):
                    if not presses.read(1):
                        return
                    self._ask_to_stop("interrupted", grace_s, "user")
                    self._unsaid.append(Stopping("interrupted", grace_s))

        watcher = threading.Thread(target=watch, name="ctrl-c", daemon=True)
        watcher.start()
        before = signal.signal(signal.SIGINT, press)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            os.close(pressed)  # ends the watcher

    def stop(self, why: str, *, grace_s: float, kind: str = "user") -> None:
        """Have every host that still runs end its part; the states arrive as events.

        Args:
            why: for the record.
            grace_s: seconds for the workers to end by themselves.
            kind: "user", or "failure" where the run is stopped because a part of it has failed.
        """
        self._on_event(Stopping(why, grace_s))
        self._ask_to_stop(why, grace_s, kind)

    def _ask_to_stop(self, why: str, grace_s: float, kind: str) -> None:
        self._own_stop = self.outcome.stopped_for = why
        for part in self._record.hosts:
            if not self.outcome.states[part.name].is_final:
                self._in_thread(self._stop_host, part, why, grace_s, kind)

    # --- in the hosts' threads ---

    def _in_thread(self, task: Callable[..., None], part: HostPart, *rest: object) -> None:
        threading.Thread(target=task, args=(part, *rest), name=f"run-{part.name}", daemon=True).start()

    def _read_host(self, part: HostPart, wanted: Mapping[str, object]) -> None:
        """Read one host's files and states, connecting anew and going on where a lost connection broke off."""
        offsets, keep_on = self._offsets(part.name), wanted["follow"]
        last_heard = time.monotonic()
        wait_s = RETRY_FIRST_S
        while not self._closing.is_set():
            link = None
            try:
                link = self._pool.link(part.name)
                last: Message | None = None
                for message in _messages(link, {"run_dir": part.run_dir, **wanted}, offsets):
                    last_heard, wait_s = time.monotonic(), RETRY_FIRST_S
                    self._arrived.put((part.name, message))
                    last = message if "state" in message.body else last
                if not (keep_on and last is not None and _is_lost(last) and self._may_come_back(part.name)):
                    break
                self._closing.wait(LOST_AGAIN_S)
            except (TimeoutError, HostUnreachable) as error:
                if link is not None:
                    self._pool.drop(part.name, link)
                why = error.message if isinstance(error, HostUnreachable) else f"no word for {SILENCE_S:.0f} s"
                if self._is_over_without(part.name, time.monotonic() - last_heard) or not keep_on:
                    self._arrived.put((part.name, HostState(part.name, "unreachable", cause=why)))
                    break
                self._arrived.put((part.name, ConnectionLost(part.name, why, wait_s, last_heard)))
                self._closing.wait(wait_s)
                wait_s = min(wait_s * 2, RETRY_MOST_S)
            except DdpOrchError as error:  # no such host in this inventory, a login that is refused, ...
                self._arrived.put((part.name, HostState(part.name, "unreachable", cause=error.message)))
                break
        self._arrived.put((part.name, None))

    def _offsets(self, host: str) -> dict[str, int]:
        """Return what the copies hold of a host's files, and prepare to go on from there."""
        offsets: dict[str, int] = {}
        for name in self._copies.names(host) if self._copies is not None else ():
            copied = copy_name(host, name)
            offsets[name] = self._copies.size(copied) if self._copies is not None else 0
        return offsets

    def _may_come_back(self, host: str) -> bool:
        """Tell whether a host without a supervisor may get one again: the run may restart, and others wait for it."""
        others = [state for name, state in self.outcome.states.items() if name != host]
        return self._record.max_restarts > 0 and not all(state.is_final for state in others)

    def _is_over_without(self, host: str, silent_s: float) -> bool:
        """Tell whether a host that does not answer is lost to the run."""
        others = [state for name, state in self.outcome.states.items() if name != host]
        if others and all(state.is_final for state in others):
            return silent_s > GIVE_UP_LAST_S
        return silent_s > GIVE_UP_S and not self._may_come_back(host)

    def _stop_host(self, part: HostPart, why: str, grace_s: float, kind: str) -> None:
        with contextlib.suppress(DdpOrchError):  # a host that cannot be asked shows as unreachable in its own reader
            state = stop_on_host(self._pool, part, why, grace_s=grace_s, kind=kind)
            self._arrived.put((part.name, state))

    # --- in the caller's thread ---

    def _take(self, host: str, arrived: Message | HostState | ConnectionLost) -> None:
        if isinstance(arrived, ConnectionLost):
            self._silent_since.setdefault(host, arrived.since)
            self._on_event(arrived)
            return
        if isinstance(arrived, HostState):
            self._changed(arrived)
            return
        self._silent_since.pop(host, None)
        if "file" in arrived.body:
            self._keep(host, str(arrived.body["file"]), int(arrived.body["offset"]), arrived.payload)
        elif "state" in arrived.body:
            self._changed(host_state(host, arrived.body["state"], alive=bool(arrived.body["alive"])))

    def _changed(self, state: HostState) -> None:
        before = self.outcome.states[state.host]
        if before.state in FINAL_STATES and not state.is_final:
            return  # two threads report; the end stands
        if state != before:
            self.outcome.states[state.host] = state
            self._on_event(HostChanged(state))

    def _keep(self, host: str, name: str, offset: int, piece: bytes) -> None:
        try:
            file = log_file(name)
        except ValueError:
            return  # nothing that we asked for
        copied = copy_name(host, name)
        assembler = self._lines.get((host, name))
        if assembler is None:
            # What the copy holds has been shown, but for a line that had not ended.
            shown = self._copies.size(copied) if self._copies is not None else 0
            head = self._copies.partial_line(copied) if self._copies is not None else b""
            assembler = self._lines[host, name] = LineAssembler(head)
            self._expected[host, name] = shown
        if self._copies is not None and (why := self._copies.write(copied, offset, piece)):
            self._on_event(CopyFailed(copied, why))
        missing = offset - self._expected[host, name]
        self._expected[host, name] = offset + len(piece)
        if missing > 0:
            self._on_event(LogGap(host, file.rank, missing))
            assembler.skip_to_line_start()
        for text in assembler.add(piece):
            self._line(host, file, text)

    def _end_lines(self, host: str) -> None:
        for (of_host, name), assembler in self._lines.items():
            if of_host == host:
                for text in assembler.end():
                    self._line(host, log_file(name), text)

    def _line(self, host: str, file: LogFile, text: str) -> None:
        who = (host, file.rank)
        if file.is_error:
            if file.attempt > self._attempts.get(who, 0):
                self._attempts[who] = file.attempt
                self.outcome.last_errors.pop(who, None)
            if file.attempt == self._attempts.get(who, 0):
                self.outcome.last_errors.setdefault(who, deque(maxlen=LAST_LINES)).append(text)
        self._on_event(LogLine(host, file.rank, file.is_error, text))

    def _look_after(self, *, owner: bool) -> None:
        while self._unsaid:
            self._on_event(self._unsaid.popleft())
        if self._keeper is not None:
            self._keeper.tend(self.outcome.states, self._silent_since)
        if owner and not self._own_stop:
            self._stop_the_others()

    def _stop_the_others(self) -> None:
        """Stop the run on all hosts when one of them has failed: where the supervisors do not hear each other."""
        states = self.outcome.states.values()
        bad = [
            state for state in states if (state.is_final and state.state != "succeeded") or state.state == "unreachable"
        ]
        if not bad or all(state.is_final for state in states):
            self._bad_since = None
            return
        now = time.monotonic()
        self._bad_since = self._bad_since or now
        if self._record.max_restarts and (
            now - self._bad_since < STRAGGLER_S or not any(state.state in FINAL_STATES for state in bad)
        ):
            return
        why = f"{bad[0].host} {'does not answer' if bad[0].state == 'unreachable' else bad[0].state}"
        self.stop(why, grace_s=GRACE_AFTER_FAILURE_S, kind="failure")


def stop_on_host(pool: LinkPool, part: HostPart, why: str, *, grace_s: float, kind: str = "user") -> HostState:
    """End a run on one host and return how it stands then, after a second scan.

    Args:
        pool: links to the hosts.
        part: the host's part in the run.
        why: for the record.
        grace_s: seconds for the workers to end by themselves before they are killed.
        kind: see RunFollower.stop.
    Raises:
        HostUnreachable: the host cannot be asked.
        DdpOrchError: it knows no such run.
    """
    with Conversation(pool.link(part.name), "run_control") as talk:
        stop = {"why": why, "grace_s": grace_s, "kind": kind}
        answer = talk.ask({"do": "stop", "run_dir": part.run_dir, "stop": stop}, timeout_s=grace_s + STOP_ANSWER_S)
    if "error" in answer:
        raise DdpOrchError(str(answer["error"]), host=part.name, try_this="ddp-orch ps")
    return host_state(part.name, answer["state"], alive=False)


def _messages(link: Link, order: Mapping[str, object], offsets: dict[str, int]) -> Iterator[Message]:
    """Yield what run_reader sends, moving `offsets` on as pieces come."""
    with Conversation(link, "run_reader") as talk:
        talk.send({"offsets": offsets, **order})
        while (message := talk.receive(SILENCE_S)) is not None:
            if "file" in message.body:
                offsets[str(message.body["file"])] = int(message.body["offset"]) + len(message.payload)
            yield message


def _is_lost(message: Message) -> bool:
    """Tell whether a host said that it has no supervisor, and no final state either."""
    return not message.body["alive"] and message.body["state"].get("state") not in FINAL_STATES

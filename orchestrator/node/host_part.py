"""One host's part in a run, through all its attempts.

An attempt is one torchrun on every host; when one fails and restarts were asked for, the supervisors of all hosts agree
on the next (see agreement.py). Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time

from orchestrator.node import agreement, checkpoints, log_limit, stacks
from orchestrator.node.attempt import Attempt
from orchestrator.node.early_end import EarlyEnd
from orchestrator.node.evidence import Evidence
from orchestrator.node.reserve import RESERVES, give_room
from orchestrator.node.run_processes import start_of
from orchestrator.node.whole_files import read_json, write_whole

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from orchestrator.node.heartbeat import Heartbeats

    End = Dict[str, Any]

SCHEMA = 1
PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 15, 36  # <linux/prctl.h>
WATCHED = [signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
TICK_S = 0.2  # how late a rank's end may be seen; costs a few system calls
SETTLE_S = 5.0  # after a good end, for what the script left in the background (an uploader, say) to finish by itself
WATCHED_FOR_S = 20.0  # a controller that reads touches a file every 5 s
VOUCHED_FOR_S = 60.0
HISTORY = 20  # attempts that are remembered
LIBC = ctypes.CDLL(None)
WELL = {"kind": "ended", "why": "", "grace_s": 0}


class HostPart:
    """One run on this host, from the first attempt to the proof that nothing is left.

    The ends of an attempt are {"kind", "why", "grace_s"}, the kinds: "ended" (torchrun has, by itself), "no start",
    "failure" (here or elsewhere), "silence" (a host is gone), "hang", "timeout", "user".
    """

    def __init__(self, run_dir: str, order: Dict[str, Any], beats: Heartbeats, *, again: bool) -> None:
        """Take a run over.

        Args:
            run_dir: the run's folder here.
            order: see launch_run._order.
            beats: the way to the other hosts.
            again: an earlier supervisor of this host has gone: wait for the next attempt.
        """
        self.run_dir, self.order, self.beats, self.again = run_dir, order, beats, again
        self.names = [str(host["name"]) for host in order["hosts"]]
        self.me = str(order["host"])
        self.fail: Dict[str, Any] = {}
        self.failures: List[str] = []
        self.resumed: List[str] = []
        self.plan: Dict[str, Any] = {}
        self.evidence, self.early, self.ended_well = Evidence(run_dir), EarlyEnd(run_dir), False
        self.ends_at = time.monotonic() + (float(order["timeout_s"]) or float("inf"))
        self.looked_at, self.progress_at = 0.0, time.monotonic()
        self.sizes: Dict[str, int] = {}
        before = read_json(self.path("state.json")) if again else {}
        beats.life = int(before.get("life", 0)) + int(again)
        if again:
            beats.meet(read_json(self.path("peers.json")))
        members = before.get("members", self.names)
        self.attempt = Attempt(run_dir, order, int(before.get("attempt", 0)), members, str(before.get("resume", "")))
        self.state: Dict[str, Any] = {
            "schema": SCHEMA,
            "state": "waiting" if again else "running",
            "pid": os.getpid(),
            "pid_start": start_of(os.getpid()),
            "guard": os.getppid(),
            "guard_start": start_of(os.getppid()),
            "started_at": before.get("started_at", time.time()),
            "life": beats.life,
            "beat_port": beats.port,
            "attempt": self.attempt.number,
            "members": members,
            "resume": self.attempt.resume,
            "history": before.get("history", []),
        }

    # --- what is written down and told ---

    def path(self, *names: str) -> str:
        """Return a path in the run's folder."""
        return os.path.join(self.run_dir, *names)

    def note(self, **changes: Any) -> None:
        """Write a change of state down; on a full disk, with the room that was kept for it."""
        self.state.update(changes)
        for room in RESERVES[: 2 if self.state["state"] in agreement.FINAL else 1]:
            if self._write("state.json", self.state):
                return
            give_room(self.run_dir, room)
        self._write("state.json", self.state)

    def word(self) -> Dict[str, Any]:
        """Return what the others have to know of this host: short, since a datagram holds it."""
        state = self.state["state"]
        stop = self.state.get("stop") or {}
        return {
            "state": state,
            "attempt": self.attempt.number,
            "stop": dict(stop, why=str(stop["why"])[:200]) if stop and state != "waiting" else None,
            "fail": self.fail or None,
            "checkpoints": checkpoints.newest(self.attempt.checkpoints) if state == "waiting" else None,
            "ended": self.ended_well,
            "idle_s": round(time.monotonic() - self.progress_at, 1),
            "plan": self.plan or None,
        }

    def exchange(self) -> None:
        """Hear the others and tell them; once a second, look after the logs and the disk."""
        if select.select([0], [], [], 0)[0]:
            line = sys.stdin.buffer.readline()
            if line.startswith(b"{"):  # nothing, where the one who started us has gone
                peers = json.loads(line)["peers"]
                self.beats.meet(peers)
                self._write("peers.json", peers)  # for the supervisor that comes after this one
        self.beats.beat(self.word())
        self.beats.listen()
        if time.monotonic() - self.looked_at > 1:
            self.looked_at = time.monotonic()
            if self.evidence.disk_is_full():
                give_room(self.run_dir, RESERVES[0])
            self._look_at_logs()

    def _write(self, name: str, value: Any) -> bool:
        """Write a file of the run, if there is room."""
        try:
            write_whole(self.path(name), value)
        except OSError:
            return False
        return True

    def _look_at_logs(self) -> None:
        """See whether there is progress, and keep the logs within their bounds."""
        sizes = {}
        for name in os.listdir(self.path("logs")):
            sizes[name] = os.stat(self.path("logs", name)).st_size
            if self.order["log_limit"] and name.startswith("rank"):
                self._bound(self.path("logs", name))
        for path in (self.path("progress"), self.attempt.checkpoints):
            if os.path.exists(path):
                sizes[path] = os.stat(path).st_mtime_ns
        if sizes != self.sizes:
            self.sizes, self.progress_at = sizes, time.monotonic()

    def _bound(self, path: str) -> None:
        try:
            log_limit.bound(path, int(self.order["log_limit"]))
        except OSError as error:
            sys.stderr.write("logs are not bounded here: %s\n" % error)  # in supervisor.log, once
            self.order["log_limit"] = 0

    # --- one attempt ---

    def others(self) -> List[str]:
        """Return the other hosts that take part in this attempt."""
        return [name for name in self.attempt.members if name != self.me]

    def told_to_end(self) -> Optional[End]:
        """Return why this host has to end its part, as the others say or the silence of one does, or None."""
        silent = {name for name in self.others() if self.beats.is_dead(name)}
        return agreement.trouble(self.attempt.number, self.others(), self.beats.said, silent)

    def asked_to_end(self) -> Optional[End]:
        """Wait for a tick; return the user's wish to end the run, or None."""
        got = signal.sigtimedwait(WATCHED, TICK_S)
        self.attempt.look()
        if got is not None and got.si_signo in (signal.SIGTERM, signal.SIGINT):
            return {"kind": "user", "why": "a signal", "grace_s": 30.0, **read_json(self.path("stop.json"))}
        return None

    def watch(self) -> End:
        """Watch the attempt; return how it comes to its end."""
        while True:
            asked = self.asked_to_end()
            if asked:
                return asked
            ranks = self.attempt.ranks()
            self.ended_well = any(rank.get("exit_code") == 0 for rank in ranks.values())
            self.fail = self.attempt.failure(ranks)
            if self.fail:
                return {"kind": "failure", "why": "", "grace_s": agreement.GRACE_AFTER_FAILURE_S}
            if self.attempt.agent_exit is not None:
                return self.settle()
            self.exchange()
            end = self.told_to_end() or self.overdue(ranks)
            if end:
                return end

    def overdue(self, ranks: Dict[str, Dict[str, Any]]) -> Optional[End]:
        """Return why the run, with these ranks here, is taken for hung, or for too long, or None."""
        now = time.monotonic()
        if now > self.ends_at:
            why = "the time limit of %g s" % self.order["timeout_s"]
            return {"kind": "timeout", "why": why, "grace_s": float(self.order["grace_s"])}
        idle = [now - self.progress_at]
        for name in self.others():
            said_s = float(self.beats.said.get(name, {}).get("idle_s", 0))
            idle.append(said_s + min(self.beats.silence_s(name), 1e9))  # one that was never heard cannot tell
        if self.order["hang_after_s"] and min(idle) > self.order["hang_after_s"] and ranks:
            return {"kind": "hang", "why": "no rank made progress for %g s" % self.order["hang_after_s"], "grace_s": 0}
        ended = any(self.beats.said[name].get("ended") for name in self.others() if name in self.beats.said)
        if self.early.holds_up(ranks, elsewhere=ended):
            return {"kind": "hang", "why": "a rank ended before the others met it", "grace_s": 0}
        return None

    def settle(self) -> End:
        """After a good end: give what the script left in the background time to end, and the others theirs."""
        background_until = time.monotonic() + SETTLE_S
        while self.attempt.processes() and time.monotonic() < background_until:
            time.sleep(0.05)
            self.attempt.look()
            self.exchange()
        if not self.order["max_restarts"]:
            return WELL
        self.state["state"] = "done"  # told, not written: for whoever reads, it runs until all have ended
        done = ("done", "succeeded")
        while any(self.beats.said[name]["state"] not in done for name in self.others() if name in self.beats.said):
            end = self.asked_to_end() or self.told_to_end()
            if end:
                return end
            self.exchange()
        return WELL

    def run_attempt(self) -> End:
        """Start torchrun, see it to its end, and leave nothing of it."""
        self.fail, self.progress_at = {}, time.monotonic()
        self.early, self.ended_well = EarlyEnd(self.run_dir), False
        try:
            self.attempt.start()
        except OSError as error:
            why = "torchrun did not start: %s" % error
            self.fail = {"what": why[:200], "at": time.time()}
            self.note(cause=why, left_over=0)
            return {"kind": "no start", "why": why, "grace_s": 0}
        self.note(state="running", agent_pid=self.attempt.agent_pid, stop=None)
        if not self.attempt.number:
            answer("started", {"pid": os.getpid(), "beat_port": self.beats.port})
        end = self.watch()
        alive = {rank for rank, facts in self.attempt.ranks().items() if facts.get("exit_code") is None}
        if end["kind"] == "hang":
            self.state["hung"] = stacks.collect(self.run_dir, self.attempt.ranks())
            self.fail = {"kind": "hang", "what": end["why"], "at": time.time()}
        if end is not WELL:
            again = self.may_restart(end)
            state = "ending" if again else "failed" if self.fail else "stopping"
            self.state.update(state=state, stop=None if self.fail else end)
            self.beats.last_words(self.word())
            self._write("state.json", dict(self.state, state="stopping"))
        left = self.attempt.end(float(end["grace_s"]), self.exchange)
        ranks = self.attempt.ranks()
        for rank in alive & set(ranks):
            ranks[rank]["ended_by_us"] = end is not WELL
        self.state.update(
            ranks=ranks,
            left_over=left,
            agent_exit=self.attempt.agent_exit,
            evidence=self.evidence.found(),
            clock_offsets_s=self.beats.clock_offsets_s(),
            fail=self.fail or None,
        )
        return end

    # --- between two attempts ---

    def may_restart(self, end: End) -> bool:
        """Tell whether another attempt may follow."""
        over = end["kind"] in ("user", "timeout") or end is WELL
        over = over or (end["kind"] == "no start" and not self.attempt.number)  # then nobody has started
        return not over and self.attempt.number < int(self.order["max_restarts"])

    def next_attempt(self) -> str:
        """Wait for the others and for what they agree on; take it up and return "", or return why there is no more."""
        since = time.monotonic()
        self.note(state="waiting", waits_for="")
        self.beats.last_words(self.word())
        while True:
            asked = self.asked_to_end()
            if asked:
                self.state["stop"] = asked
                return "it was stopped"
            self.exchange()
            step = agreement.next_step(self.situation(time.monotonic() - since))
            if "go" in step:
                self.take_up(step["go"])
                return ""
            if "give_up" in step:
                return str(step["give_up"])
            if step["wait"] != self.state["waits_for"]:
                self.note(waits_for=step["wait"])

    def situation(self, waited_s: float) -> agreement.Situation:
        """Return what is known for the decision on the next attempt."""
        words = {name: word for name, word in self.beats.said.items() if not self.beats.is_dead(name)}
        words[self.me] = self.word()
        fails = [word["fail"] for word in words.values() if word.get("fail") and word["attempt"] == self.attempt.number]
        first = min(fails, key=lambda fail: float(fail["at"])) if fails else {}
        gone = read_json(self.path("vouched.json")) if age_s(self.path("vouched.json")) < VOUCHED_FOR_S else {}
        return agreement.Situation(
            me=self.me,
            hosts=self.names,
            attempt=self.attempt.number,
            words=words,
            unheard=set() if self.again else {name for name in self.others() if name not in self.beats.said},
            vouched=set(gone.get("gone", [])),
            watched=age_s(self.path("watched")) < WATCHED_FOR_S,
            waited_s=waited_s,
            min_hosts=int(self.order["min_hosts"]),
            patience_s=float(self.order["wait_for_hosts_s"]),
            max_restarts=int(self.order["max_restarts"]),
            failures=[*self.failures, str(first.get("what", ""))],
            resumed=[*self.resumed, self.attempt.resume],
        )

    def take_up(self, plan: Dict[str, Any]) -> None:
        """Prepare the next attempt as it was agreed on."""
        at = self.situation(0)
        self.failures, self.resumed, self.plan, self.again = at.failures, at.resumed, plan, False
        kept = ("attempt", "members", "resume", "ranks", "agent_exit", "fail", "stop", "evidence", "cause", "hung")
        past = {name: self.state[name] for name in kept if self.state.get(name) is not None}
        members = [self.names[index] for index in plan["members"]]
        self.attempt = Attempt(self.run_dir, self.order, int(plan["attempt"]), members, str(plan["resume"]))
        checkpoints.go_back_to(self.attempt.checkpoints, self.attempt.resume)
        for name in os.listdir(self.path("ranks")):
            os.unlink(self.path("ranks", name))
        self.state.update(
            ranks={}, agent_exit=None, fail=None, stop=None, cause=None, hung=None, left_over=None, waits_for=""
        )
        self.note(
            history=[*self.state["history"], dict(past, ended_at=time.time())][-HISTORY:],
            attempt=self.attempt.number,
            members=members,
            resume=self.attempt.resume,
            waits_for="",
        )

    # --- the whole ---

    def see_through(self) -> None:
        """See the run to its end, over all its attempts."""
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        LIBC.prctl(PR_SET_NAME, b"ddp-orch", 0, 0, 0)
        end: End = {"kind": "failure", "why": "its supervisor was killed", "grace_s": 0}
        if self.again:
            self.state.update(ranks={}, left_over=0, stop=None)
            self.fail = {"what": str(end["why"]), "at": time.time()}
            answer("started", {"pid": os.getpid(), "beat_port": self.beats.port})
        else:
            end = self.run_attempt()
        gave_up = ""
        while not gave_up and self.may_restart(end):
            gave_up = self.next_attempt()
            if not gave_up:
                end = self.run_attempt()
        if self.order["max_restarts"] and not gave_up and end["kind"] not in ("ended", "user", "timeout"):
            gave_up = "it was restarted %d times, as --max-restarts allows" % self.attempt.number
        stop = self.state.get("stop") or ({} if self.fail or end is WELL else end)
        state = "succeeded" if end is WELL else "failed" if self.fail else "stopped"
        self.note(state=state, stop=stop or None, gave_up=gave_up, waits_for="", ended_at=time.time())
        give_room(self.run_dir, *RESERVES)
        self.beats.last_words(self.word())


def age_s(path: str) -> float:
    """Return the seconds since a file was written; infinite where there is none."""
    try:
        return max(0.0, time.time() - os.stat(path).st_mtime)
    except OSError:
        return float("inf")


def answer(name: str, value: Any) -> None:
    """Send one message to whoever asked."""
    try:
        os.write(1, (json.dumps({name: value}) + "\n").encode())
    except OSError:
        pass  # the one who asked is gone; the run goes on

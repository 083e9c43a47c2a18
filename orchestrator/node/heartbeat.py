"""The supervisors of a run tell each other how they stand, so that a run ends as one also when no controller watches.

Each sends a datagram to each other one every second: datagrams, since TCP can stay silent for seconds after a short
cut. A datagram is a JSON object and its HMAC-SHA256 under a secret that only this run's supervisors know; whatever
else arrives is dropped. A peer is dead when it was heard once and then not for DEAD_AFTER_S: where a firewall drops
these datagrams nobody is ever heard, and nobody is declared dead.
Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import time

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

BEAT_S = 1.0
DEAD_AFTER_S = 7.0  # a cable out for 5 s must not end a run; a power cut must be known within 10 s
LAST_WORDS = 5  # copies of the last state: a peer that misses all would take us for dead
MAX_BYTES = 1200  # fits any path without fragments


class Heartbeats:
    """One supervisor's view of the others. Nothing here blocks.

    Attributes:
        said: host -> what it said last.
    """

    def __init__(self, run: str, me: str, secret: str) -> None:
        """Open a port of the kernel's choice.

        Args:
            run: the run's name; words of other runs are dropped.
            me: this host's name.
            secret: known to this run's supervisors alone.
        """
        self._run, self._me, self._secret = run, me, secret.encode()
        # Counts the supervisors that this host has had: the words of an earlier one are old.
        self.life = 0
        self.said: Dict[str, Dict[str, Any]] = {}
        self._peers: Dict[str, Tuple[str, int]] = {}
        self._heard: Dict[str, Tuple[int, int, float]] = {}  # life, number, when by our monotonic clock
        self._delays: Dict[str, List[float]] = {}  # ours and theirs: least receive time minus send time, by two clocks
        self._sent_at = 0.0
        self._number = 0
        try:
            self._socket = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            self._socket.bind(("::", 0))
        except OSError:  # no IPv6 on this host
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._socket.bind(("", 0))
        self._socket.setblocking(False)

    @property
    def port(self) -> int:
        """Where the others send to."""
        return int(self._socket.getsockname()[1])

    def meet(self, peers: Dict[str, Any]) -> None:
        """Learn where the others listen: host name -> [IP address, port]."""
        for name, (address, port) in peers.items():
            mapped = self._socket.family == socket.AF_INET6 and ":" not in address
            self._peers[name] = ("::ffff:" + address if mapped else address, int(port))

    def silence_s(self, host: str) -> float:
        """Return the seconds since a host was heard; infinite where it never was."""
        return time.monotonic() - self._heard[host][2] if host in self._heard else float("inf")

    def is_dead(self, host: str) -> bool:
        """Tell whether a host was heard once, and now is silent for too long."""
        return host in self._heard and self.silence_s(host) > DEAD_AFTER_S

    def clock_offsets_s(self) -> Dict[str, float]:
        """Return by how much the others' clocks are ahead of ours: half of what the two ways' least delays differ."""
        return {host: (theirs - ours) / 2 for host, (ours, theirs) in self._delays.items() if theirs < float("inf")}

    def beat(self, word: Dict[str, Any], *, at_once: bool = False) -> None:
        """Tell the others how this host stands, once a second, or now. The word must be short."""
        now = time.monotonic()
        if not at_once and now - self._sent_at < BEAT_S:
            return
        self._sent_at, self._number = now, self._number + 1
        for host, target in self._peers.items():
            delay = self._delays.get(host, [None])[0]
            body = json.dumps(
                {"run": self._run, "host": self._me, "life": self.life, "number": self._number, "port": self.port,
                 "time": time.time(), "delay": delay, "state": word}
            ).encode()  # fmt: skip
            try:
                self._socket.sendto(hmac.new(self._secret, body, hashlib.sha256).digest() + body, target)
            except OSError:
                pass  # no route at the moment: the silence will say it

    def last_words(self, word: Dict[str, Any]) -> None:
        """Tell the others a state after which there may be no more beats."""
        for _ in range(LAST_WORDS if self._peers else 0):
            self.beat(word, at_once=True)
            time.sleep(0.02)

    def listen(self) -> None:
        """Take in what has arrived."""
        while True:
            try:
                datagram = self._socket.recv(MAX_BYTES)
            except OSError:
                return
            digest, body = datagram[:32], datagram[32:]
            if hmac.compare_digest(digest, hmac.new(self._secret, body, hashlib.sha256).digest()):
                self._take(json.loads(body))

    def _take(self, word: Dict[str, Any]) -> None:
        """Believe a word that is newer than the last one of the same host."""
        host, life, number = str(word["host"]), int(word["life"]), int(word["number"])
        known = self._heard.get(host, (-1, 0, 0.0))[:2]
        if word["run"] != self._run or host not in self._peers or (life, number) <= known:
            return
        if life != self._heard.get(host, (life, 0, 0))[0]:  # a new supervisor there has a new port, maybe a new clock
            self._peers[host] = (self._peers[host][0], int(word["port"]))
            self._delays.pop(host, None)
        self._heard[host] = (life, number, time.monotonic())
        self.said[host] = word["state"]
        delays = self._delays.setdefault(host, [float("inf"), float("inf")])
        delays[0] = min(delays[0], time.time() - float(word["time"]))
        if word["delay"] is not None:
            delays[1] = float(word["delay"])

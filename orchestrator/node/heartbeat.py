"""The supervisors of a run tell each other how they stand, so that a run ends as one also when no controller watches.

Each sends a datagram to each other one every second: datagrams, since TCP can stay silent for seconds after a short
cut. A datagram is a JSON object and its HMAC-SHA256 under a secret that only this run's supervisors know; whatever
else arrives is dropped. A peer is dead when it was heard once and then not for DEAD_AFTER_S: where a firewall drops
these datagrams nobody is ever heard, and nobody is declared dead.
Written beside supervisor.py, which imports it. Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import time
from typing import Any

BEAT_S = 1.0
DEAD_AFTER_S = 7.0  # a cable out for 5 s must not end a run
LAST_WORDS = 5  # copies of the last state: a peer that misses all would take us for dead
MAX_BYTES = 1200  # fits any path without fragments


class Heartbeats:
    """One supervisor's view of the others. Nothing here blocks."""

    def __init__(self, run: str, me: str, secret: str) -> None:
        """Open a port of the kernel's choice.

        Args:
            run: the run's name; words of other runs are dropped.
            me: this host's name.
            secret: known to this run's supervisors alone.
        """
        self._run, self._me, self._secret = run, me, secret.encode()
        self._peers: dict[str, tuple[str, int]] = {}
        self._heard: dict[str, tuple[float, int, dict[str, Any]]] = {}
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

    def meet(self, peers: dict[str, Any]) -> None:
        """Learn where the others listen: host name -> [IP address, port]."""
        for name, (address, port) in peers.items():
            mapped = self._socket.family == socket.AF_INET6 and ":" not in address
            self._peers[name] = ("::ffff:" + address if mapped else address, int(port))

    def beat(self, state: dict[str, Any], *, at_once: bool = False) -> None:
        """Tell the others how this host stands, once a second, or now."""
        now = time.monotonic()
        if not at_once and now - self._sent_at < BEAT_S:
            return
        self._sent_at, self._number = now, self._number + 1
        said = {"state": state.get("state"), "stop": state.get("stop")}  # what a peer acts on, and short
        body = json.dumps({"run": self._run, "host": self._me, "number": self._number, "state": said}).encode()
        datagram = hmac.new(self._secret, body, hashlib.sha256).digest() + body
        for target in self._peers.values():
            try:
                self._socket.sendto(datagram, target)
            except OSError:
                pass  # no route at the moment: the silence will say it

    def last_words(self, state: dict[str, Any]) -> None:
        """Tell the others a state after which there are no more beats."""
        for _ in range(LAST_WORDS if self._peers else 0):
            self.beat(state, at_once=True)
            time.sleep(0.02)

    def listen(self) -> None:
        """Take in what has arrived."""
        while True:
            try:
                datagram = self._socket.recv(MAX_BYTES)
            except OSError:
                return
            digest, body = datagram[:32], datagram[32:]
            if not hmac.compare_digest(digest, hmac.new(self._secret, body, hashlib.sha256).digest()):
                continue
            word = json.loads(body)
            host, number = str(word["host"]), int(word["number"])
            if word["run"] == self._run and host in self._peers and number > self._heard.get(host, (0, 0, {}))[1]:
                self._heard[host] = (time.monotonic(), number, word["state"])

    def trouble(self) -> dict[str, Any] | None:
        """Return why this host has to end its part, and the seconds it may take, or None."""
        now = time.monotonic()
        for host, (at, _, state) in self._heard.items():
            if state.get("state") in ("failed", "stopping", "stopped"):
                stop = state.get("stop") or {}
                why = stop.get("why") or "%s failed" % host
                return {"why": why, "grace_s": float(stop.get("grace_s", 0)) if stop else 2.0}
            if state.get("state") != "succeeded" and now - at > DEAD_AFTER_S:
                return {"why": "no word from %s for %.0f s" % (host, DEAD_AFTER_S), "grace_s": 2.0}
        return None

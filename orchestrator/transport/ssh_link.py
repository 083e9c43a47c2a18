"""A host behind SSH. Fabric makes the connection; long output is read from Paramiko's channels.

`Connection.run()` joins everything received again for each new piece: 18 MB of log take 44 s of CPU. It is not used.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import random
import re
import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

import fabric
import paramiko

from orchestrator.errors import HostUnreachable
from orchestrator.transport.host_keys import HostKeyCheck, prefer_types
from orchestrator.transport.link import STDERR_KEPT_BYTES
from orchestrator.transport.logins import Logins
from orchestrator.transport.ssh_config import parse_jump, resolve, resolve_host
from orchestrator.transport.ssh_errors import CONNECT_ERRORS, is_worth_a_retry, unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.model.host import Host
    from orchestrator.transport.ssh_config import SshTarget

READ_BYTES = 64 * 1024
MAX_HANDSHAKES = 8  # at once through one door: a default sshd drops some of more than 10 (MaxStartups 10:30:100)
RETRIES = 5
QUICK_REFUSAL_S = 3.0  # a busy sshd closes at once; one that stays silent will be silent again
MAX_JUMPS = 8  # a ProxyJump that leads to itself would not end
DEAD_AFTER_MS = 20_000  # unacknowledged this long, the kernel gives the connection up (its own default is 15 minutes)

# Paramiko's threads log what they raise; the same comes to us as exceptions.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class SshChannel:
    """A command behind SSH (see `link.Channel`)."""

    def __init__(self, channel: paramiko.Channel, host: str) -> None:
        self._channel = channel
        self._host = host
        self._stderr = b""

    def read(self, timeout_s: float) -> bytes:
        """See `link.Channel.read`."""
        deadline = time.monotonic() + timeout_s
        while True:
            # Short slices: standard error shares the window, and must be emptied while we wait.
            self._channel.settimeout(min(max(deadline - time.monotonic(), 0.001), 0.5))
            try:
                piece = self._channel.recv(READ_BYTES)
            except TimeoutError:
                self._keep_stderr()
                if time.monotonic() >= deadline:
                    raise
                continue
            self._keep_stderr()
            if not piece and self._cut_off():
                raise self._lost()
            return piece

    def write(self, data: bytes) -> None:
        """See `link.Channel.write`."""
        view = memoryview(data)
        while view:
            try:
                view = view[self._channel.send(bytes(view[:READ_BYTES])) :]
            except TimeoutError:
                continue  # the reader's timeout; a dead connection raises OSError
            except OSError as error:
                if not self._alive():
                    raise self._lost() from error
                raise BrokenPipeError from error

    def close_input(self) -> None:
        """See `link.Channel.close_input`."""
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()

    def stderr_tail(self) -> bytes:
        """See `link.Channel.stderr_tail`."""
        self._keep_stderr()
        return self._stderr

    def wait(self, timeout_s: float) -> int | None:
        """See `link.Channel.wait`; SSH does not carry signal numbers, so any signal is -1."""
        if not self._channel.status_event.wait(timeout_s):
            return None
        status = self._channel.exit_status
        return None if status < 0 and not self._alive() else status

    def close(self) -> None:
        """See `link.Channel.close`."""
        self._channel.close()

    def _keep_stderr(self) -> None:
        while self._channel.recv_stderr_ready():
            piece = self._channel.recv_stderr(READ_BYTES)
            if not piece:
                break
            self._stderr = (self._stderr + piece)[-STDERR_KEPT_BYTES:]

    def _cut_off(self) -> bool:
        """Tell, at the end of the output, a connection that broke from a command that ended.

        Paramiko shows both as an end, and fills in the exit status -1, which is also what a signal leaves.
        """
        if self._channel.status_event.wait(1.0) and self._channel.exit_status >= 0:
            return False
        end = time.monotonic() + 0.5  # Paramiko closes the channels first, and the transport then
        while self._alive() and time.monotonic() < end:
            time.sleep(0.01)
        return not self._alive()

    def _alive(self) -> bool:
        transport = self._channel.get_transport()
        return bool(transport and transport.is_active())

    def _lost(self) -> HostUnreachable:
        return HostUnreachable("the SSH connection was lost", host=self._host, reason="lost")


class SshLink:
    """A `link.Link` over one SSH connection; each command gets a channel of its own."""

    def __init__(self, host: Host, connection: fabric.Connection) -> None:
        self._host = host
        self._connection = connection

    @property
    def host(self) -> Host:
        """The inventory's entry for the host."""
        return self._host

    def open(self, command: str) -> SshChannel:
        """See `link.Link.open`."""
        try:
            channel = self._connection.transport.open_session(timeout=20)
            channel.exec_command(command)
        except CONNECT_ERRORS as error:
            raise HostUnreachable(
                f"the SSH connection takes no further command: {error or type(error).__name__}",
                host=self._host.name,
                reason="lost",
            ) from error
        return SshChannel(channel, self._host.name)

    def close(self) -> None:
        """See `link.Link.close`."""
        _close(self._connection)


class SshConnector:
    """Makes SSH connections; jump hosts are shared, and each door sees a few handshakes at a time."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        accept_new_host_keys: bool = False,
        password: Callable[[], str] | None = None,
    ) -> None:
        """Prepare to connect.

        Args:
            environ: the caller's environment (see `ssh_config.resolve`).
            accept_new_host_keys: write unknown host keys to known_hosts; changed ones are refused all the same.
            password: asks the user for the password, at most once; None where nobody may be asked.
        """
        self._environ = environ
        self._accept_new = accept_new_host_keys
        self._password = _one_at_a_time(password) if password else None
        self._lock = threading.Lock()
        self._doors: dict[str, threading.Semaphore] = {}
        self._jump_locks: dict[tuple[str, ...], threading.Lock] = {}
        self._jumps: dict[tuple[str, ...], fabric.Connection] = {}

    def connect(self, host: Host) -> SshLink:
        """Open a connection to an inventory host.

        Raises:
            HostUnreachable: with the reason and what to do about it.
        """
        target = resolve_host(host, self._environ)
        return SshLink(host, self._open(host.name, target, self._gateway(host.name, target)))

    def host_key(self, host: Host) -> tuple[SshTarget, HostKeyCheck, paramiko.PKey]:
        """Ask a host for its key, without logging in.

        Returns:
            where it was asked, what known_hosts says of it, and the key it shows.

        Raises:
            HostUnreachable: it cannot be asked.
        """
        target = resolve_host(host, self._environ)
        check = HostKeyCheck(host.name, target, accept_new=False)
        gateway = self._gateway(host.name, target)
        logins = Logins(target, None)
        try:
            if gateway is not None:
                sock: Any = _connection(target, gateway).open_gateway()
            elif target.proxy_command:
                sock = _proxy(target)
            else:
                sock = socket.create_connection((target.hostname, target.port), target.connect_timeout_s)
            with contextlib.closing(paramiko.Transport(sock)) as transport:
                prefer_types(transport, check.wanted_types())
                transport.start_client(timeout=target.connect_timeout_s)
                return target, check, transport.get_remote_server_key()
        except CONNECT_ERRORS as error:
            raise unreachable(error, host=host.name, target=target, logins=logins) from error

    def close(self) -> None:
        """Close the shared connections to jump hosts."""
        with self._lock:
            for connection in self._jumps.values():
                _close(connection)
            self._jumps.clear()

    def _gateway(self, host: str, target: SshTarget, depth: int = 0) -> fabric.Connection | None:
        """Return the open connection to the last jump host, shared by all that go through it, or None."""
        if not target.jumps:
            return None
        if depth >= MAX_JUMPS:
            raise HostUnreachable(
                "its jump hosts lead in a circle", host=host, reason="jump", try_this="ssh -G " + host
            )
        with self._lock:
            lock = self._jump_locks.setdefault(target.jumps, threading.Lock())
        with lock:
            opened = self._jumps.get(target.jumps)
            if opened is None or not opened.is_connected:
                opened = self._open_jump(host, target.jumps, depth)
                self._jumps[target.jumps] = opened
        return opened

    def _open_jump(self, host: str, jumps: tuple[str, ...], depth: int) -> fabric.Connection:
        """Open the last of `jumps` through those before it; the first one goes by its own configuration."""
        name, user, port = parse_jump(jumps[-1])
        target = resolve(name, user=user, port=port, host=host, environ=self._environ)
        if len(jumps) > 1:
            from dataclasses import replace

            target = replace(target, jumps=jumps[:-1], proxy_command="")
        try:
            return self._open(host, target, self._gateway(host, target, depth + 1))
        except HostUnreachable as error:
            error_of_jump = f"its jump host {name} cannot be passed: {error.message}"
            raise HostUnreachable(error_of_jump, host=host, reason="jump", try_this=error.try_this) from error

    def _open(self, host: str, target: SshTarget, gateway: fabric.Connection | None) -> fabric.Connection:
        with self._lock:
            door = target.jumps[0] if target.jumps else f"{target.proxy_command or target.hostname}:{target.port}"
            handshakes = self._doors.setdefault(door, threading.Semaphore(MAX_HANDSHAKES))
        for attempt in range(RETRIES):
            began = time.monotonic()
            check = HostKeyCheck(host, target, accept_new=self._accept_new)
            logins = Logins(target, self._password)
            connection = _connection(target, gateway)
            connection.connect_kwargs.update(
                auth_strategy=logins,
                banner_timeout=target.connect_timeout_s,
                auth_timeout=max(target.connect_timeout_s, 20.0),  # a server that looks up our name answers late
                transport_factory=functools.partial(_transport, check.wanted_types()),
            )
            connection.client.set_missing_host_key_policy(check)
            try:
                with handshakes:
                    if gateway is None and target.proxy_command:
                        connection.connect_kwargs["sock"] = _proxy(target)
                    connection.open()
            except CONNECT_ERRORS as error:
                _close(connection)
                quick = time.monotonic() - began < QUICK_REFUSAL_S
                if quick and attempt + 1 < RETRIES and is_worth_a_retry(error):
                    time.sleep(random.uniform(0.1, 0.5) * 2**attempt)  # noqa: S311 - jitter, not a secret
                    continue
                raise unreachable(error, host=host, target=target, logins=logins) from error
            except HostUnreachable:
                _close(connection)
                raise
            connection.transport.set_keepalive(target.keepalive_s)
            return connection
        raise AssertionError  # the last attempt returns or raises


def _connection(target: SshTarget, gateway: fabric.Connection | None) -> fabric.Connection:
    # An empty SSH configuration: everything that OpenSSH's says is in the target already.
    config = fabric.Config(ssh_config=paramiko.SSHConfig())
    return fabric.Connection(
        target.hostname, user=target.user, port=target.port, config=config, gateway=gateway,
        connect_timeout=target.connect_timeout_s,
    )  # fmt: skip


class _Proxy(socket.socket):
    """Our end of a ProxyCommand. Paramiko's own class kills a process that has ended already, in a thread."""

    process: subprocess.Popen[bytes]


def _proxy(target: SshTarget) -> _Proxy:
    """Start a ProxyCommand with one end of a pair of sockets as its standard streams, and return the other end.

    Source:
        ssh_config(5), ProxyCommand and TOKENS; `ssh -G` leaves %h, %p and %r to be filled in.
    """
    tokens = {"%%": "%", "%h": target.hostname, "%p": str(target.port), "%r": target.user}
    command = re.sub(r"%[%hpr]", lambda match: tokens[match.group()], target.proxy_command)
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(["/bin/sh", "-c", f"exec {command}"], stdin=theirs.fileno(), stdout=theirs.fileno())
    proxy = _Proxy(fileno=ours.detach())
    proxy.process = process
    return proxy


def _close(connection: fabric.Connection) -> None:
    """Close a connection; its ProxyCommand, if any, sees the end of its input and ends."""
    transport = connection.client.get_transport()
    sock = connection.connect_kwargs.get("sock")
    connection.close()
    if isinstance(sock, _Proxy):
        sock.close()
        if transport is not None:
            transport.join(2)
        try:
            sock.process.wait(2)
        except subprocess.TimeoutExpired:
            sock.process.kill()
            sock.process.wait()


def _transport(wanted_types: list[str], sock: Any, **options: Any) -> paramiko.Transport:
    is_tcp = isinstance(sock, socket.socket) and sock.family in (socket.AF_INET, socket.AF_INET6)
    if is_tcp and hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux alone has it
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS)
    transport = paramiko.Transport(sock, **options)
    prefer_types(transport, wanted_types)
    return transport


def _one_at_a_time(ask: Callable[[], str]) -> Callable[[], str]:
    """Let several hosts' threads share one question: the first asks, the others get its answer."""
    lock = threading.Lock()
    answers: list[str] = []

    def once() -> str:
        with lock:
            if not answers:
                answers.append(ask())
            return answers[0]

    return once

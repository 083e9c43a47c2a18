"""SSH with a real OpenSSH server on a loopback port, a real agent, and OpenSSH's own configuration."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.errors import HostUnreachable
from orchestrator.model.host import Host
from orchestrator.transport.command_line import command_line
from orchestrator.transport.connect import Connector
from orchestrator.transport.fan_out import on_all_hosts, successes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
pytestmark = pytest.mark.skipif(SSHD is None or not shutil.which("ssh"), reason="needs OpenSSH's server and client")


def keygen(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)], check=True)
    return path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def public(path: Path) -> str:
    return " ".join(path.with_name(path.name + ".pub").read_text().split()[:2])


@dataclass
class Sshd:
    """A server on a loopback port, and a client's configuration that leaves the user's own alone."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def known(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def config(self) -> Path:
        return self.folder / "config"

    def know(self, *lines: str) -> None:
        self.known.write_text("".join(line + "\n" for line in lines))

    @property
    def name(self) -> str:
        return f"[127.0.0.1]:{self.port}"

    def host(self, **more: Any) -> Host:
        plain = {"name": "a", "address": "127.0.0.1", "ssh": "127.0.0.1", "port": self.port}
        return Host(**{**plain, "key": str(self.folder / "key"), "python": sys.executable, **more})

    def say(self, host: Host, **options: Any) -> str:
        """Connect, run one command and return what it printed."""
        connector = Connector(environ=self.environ, **options)
        try:
            link = connector.connect(host)
            channel = link.open(command_line([sys.executable, "-c", "print('hello')"]))
            text = b""
            while piece := channel.read(10):
                text += piece
            assert channel.wait(5) == 0
            link.close()
            return text.decode()
        finally:
            connector.close()

    def refusal(self, host: Host, **options: Any) -> HostUnreachable:
        with pytest.raises(HostUnreachable) as caught:
            self.say(host, **options)
        assert caught.value.host == host.name
        return caught.value


def serve(folder: Path, *options: str) -> Sshd:
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    if not (folder / "hostkey").exists():
        keygen(folder / "hostkey")
        keygen(folder / "hostkey_rsa", "rsa")
        keygen(folder / "key")
        (folder / "authorized").write_text((folder / "key.pub").read_text())
    lines = [
        f"Port {port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {folder}/hostkey",
        f"HostKey {folder}/hostkey_rsa",
        f"PidFile {folder}/pid",
        f"AuthorizedKeysFile {folder}/authorized",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "StrictModes no",
        "UsePAM no",
        "LogLevel QUIET",
        *options,
    ]
    (folder / "sshd_config").write_text("\n".join(lines) + "\n")
    Path("/run/sshd").mkdir(exist_ok=True)
    assert SSHD is not None
    process = subprocess.Popen([SSHD, "-D", "-f", str(folder / "sshd_config")], start_new_session=True)
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.02)
    (folder / "config").write_text(f"Host *\n  UserKnownHostsFile {folder}/known_hosts\n  HashKnownHosts no\n")
    server = Sshd(folder, port, process)
    server.environ = {**os.environ, "DDP_ORCH_SSH_CONFIG": str(folder / "config"), "SSH_AUTH_SOCK": ""}
    server.know(f"{server.name} {public(folder / 'hostkey')}")
    return server


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Sshd]]:
    servers: list[Sshd] = []

    def start_one(*options: str, name: str = "a") -> Sshd:
        servers.append(serve(tmp_path / name, *options))
        return servers[-1]

    yield start_one
    for server in servers:
        server.process.terminate()
        server.process.wait()


def test_a_known_host_is_reached(start: Callable[..., Sshd]) -> None:
    server = start()
    assert server.say(server.host()) == "hello\n"


# --- host keys ---


def test_an_unknown_host_key_is_refused_and_named(start: Callable[..., Sshd]) -> None:
    server = start()
    server.know()
    error = server.refusal(server.host())
    shown = subprocess.run(
        ["ssh-keygen", "-lf", str(server.folder / "hostkey.pub")], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    assert error.reason == "host_key_unknown"
    assert shown in error.message
    assert "ddp-orch trust" in error.try_this


def test_a_changed_host_key_is_refused_even_where_new_ones_are_accepted(start: Callable[..., Sshd]) -> None:
    server = start()
    server.know(f"{server.name} {public(server.folder / 'key')}")
    error = server.refusal(server.host(), accept_new_host_keys=True)
    assert error.reason == "host_key_changed"
    assert f"ssh-keygen -R '{server.name}' -f {server.known}" in error.try_this


def test_a_new_key_is_written_as_openssh_would_and_is_known_from_then_on(start: Callable[..., Sshd]) -> None:
    server = start()
    server.known.write_text("other ssh-ed25519 AAAA")  # without a line end, as editors leave it
    assert server.say(server.host(), accept_new_host_keys=True) == "hello\n"
    assert server.known.read_text() == f"other ssh-ed25519 AAAA\n{server.name} {public(server.folder / 'hostkey')}\n"
    assert server.say(server.host()) == "hello\n"
    strict = ["ssh", "-F", str(server.config), "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes"]
    argv = [*strict, "-i", str(server.folder / "key"), "-p", str(server.port), "127.0.0.1", "echo", "hello"]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "hello\n"


def test_hashed_names_are_understood(start: Callable[..., Sshd]) -> None:
    server = start()
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(server.known)], check=True, capture_output=True)
    assert "127.0.0.1" not in server.known.read_text()
    assert server.say(server.host()) == "hello\n"


def test_a_host_is_asked_for_the_kind_of_key_that_is_known(start: Callable[..., Sshd]) -> None:
    server = start()
    server.know(f"{server.name} {public(server.folder / 'hostkey_rsa')}")
    assert server.say(server.host()) == "hello\n"


def test_a_host_between_two_keys_may_show_either(start: Callable[..., Sshd]) -> None:
    server = start()
    server.know(*(f"{server.name} {public(server.folder / name)}" for name in ("key", "hostkey")))
    assert server.say(server.host()) == "hello\n"


def test_a_revoked_key_is_refused_wherever_else_it_is_listed(start: Callable[..., Sshd]) -> None:
    server = start()
    key = public(server.folder / "hostkey")
    server.know(f"{server.name} {key}", f"@revoked * {key}")
    assert server.refusal(server.host()).reason == "host_key_revoked"


def test_a_host_key_alias_is_looked_up_instead_of_the_address(start: Callable[..., Sshd]) -> None:
    server = start()
    server.config.write_text(server.config.read_text() + "  HostKeyAlias node-seven\n")
    server.know(f"node-seven {public(server.folder / 'hostkey')}")
    assert server.say(server.host()) == "hello\n"


# --- logins ---


def test_a_key_that_is_not_accepted_is_named(start: Callable[..., Sshd]) -> None:
    server = start()
    other = keygen(server.folder / "other")
    server.config.write_text(server.config.read_text() + "  IdentityFile none\n")
    error = server.refusal(server.host(key=str(other)))
    assert error.reason == "key_refused"
    assert str(other) in error.message
    assert f"ssh-copy-id -p {server.port}" in error.try_this


def test_a_locked_key_is_named_and_a_passphrase_opens_it(start: Callable[..., Sshd]) -> None:
    server = start()
    locked = keygen(server.folder / "locked", passphrase="sesame")
    (server.folder / "authorized").write_text(locked.with_suffix(".pub").read_text())
    server.config.write_text(server.config.read_text() + "  IdentityFile none\n")
    error = server.refusal(server.host(key=str(locked)))
    assert error.reason == "key_locked"
    assert error.try_this == f"ssh-add {locked}, or --ask-pass"
    assert server.say(server.host(key=str(locked)), password=lambda: "sesame") == "hello\n"


def test_without_any_key_the_way_to_one_is_told(start: Callable[..., Sshd]) -> None:
    server = start()
    server.config.write_text(server.config.read_text() + "  IdentityFile none\n")
    error = server.refusal(server.host(key=None))
    assert error.reason == "no_key"
    assert error.try_this.startswith("ssh-keygen -t ed25519; ssh-copy-id")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[dict[str, str]]:
    path = tmp_path / "agent.sock"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    while not path.exists():
        time.sleep(0.02)
    yield {"SSH_AUTH_SOCK": str(path)}
    process.terminate()
    process.wait()


def test_keys_of_the_agent_are_offered(start: Callable[..., Sshd], agent: dict[str, str]) -> None:
    server = start()
    environ = {**os.environ, **agent}
    subprocess.run(["ssh-add", "-q", str(server.folder / "key")], check=True, env=environ)
    server.config.write_text(server.config.read_text() + "  IdentityFile none\n")
    server.environ.update(agent)
    assert server.say(server.host(key=None)) == "hello\n"


def test_identities_only_keeps_the_agents_other_keys_back(start: Callable[..., Sshd], agent: dict[str, str]) -> None:
    server = start()
    environ = {**os.environ, **agent}
    for number in range(8):  # more than a server lets try
        subprocess.run(["ssh-add", "-q", str(keygen(server.folder / f"k{number}"))], check=True, env=environ)
    locked = keygen(server.folder / "locked", passphrase="sesame")
    (server.folder / "authorized").write_text(locked.with_suffix(".pub").read_text())
    ask = server.folder / "ask"
    ask.write_text("#!/bin/sh\necho sesame\n")
    ask.chmod(0o700)
    add = ["setsid", "ssh-add", "-q", str(locked)]
    askpass = {**environ, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0"}
    subprocess.run(add, check=True, env=askpass, stdin=subprocess.DEVNULL)
    server.config.write_text(server.config.read_text() + f"  IdentitiesOnly yes\n  IdentityFile {locked}\n")
    server.environ.update(agent)
    assert server.say(server.host(key=None)) == "hello\n"


# --- OpenSSH's configuration ---


def test_an_alias_from_an_included_file_is_resolved(start: Callable[..., Sshd]) -> None:
    server = start()
    (server.folder / "more").write_text(
        f"Host gpu-seven\n  HostName 127.0.0.1\n  Port {server.port}\n  IdentityFile {server.folder}/key\n"
    )
    server.config.write_text(f"Include {server.folder}/more\n{server.config.read_text()}")
    assert server.say(server.host(ssh="gpu-seven", port=None, key=None)) == "hello\n"


def test_jump_hosts_are_passed_in_the_order_openssh_passes_them(start: Callable[..., Sshd]) -> None:
    inner = start(name="inner")
    # The first hop may forward to the second one only, the second only to the host.
    second = start(f"PermitOpen 127.0.0.1:{inner.port}", name="second")
    first = start(f"PermitOpen 127.0.0.1:{second.port}", name="first")
    for hop in (first, second):
        (hop.folder / "authorized").write_text((inner.folder / "key.pub").read_text())
    inner.know(*(f"{server.name} {public(server.folder / 'hostkey')}" for server in (inner, first, second)))
    inner.config.write_text(
        f"Host target\n  HostName 127.0.0.1\n  Port {inner.port}\n  ProxyJump first,second\n"
        f"Host first\n  HostName 127.0.0.1\n  Port {first.port}\n"
        f"Host second\n  HostName 127.0.0.1\n  Port {second.port}\n"
        f"Host *\n  IdentityFile {inner.folder}/key\n" + inner.config.read_text().partition("\n")[2]
    )
    assert inner.say(inner.host(ssh="target", port=None, key=None)) == "hello\n"
    inner.config.write_text(inner.config.read_text().replace("first,second", "second,first"))
    assert inner.refusal(inner.host(ssh="target", port=None, key=None)).reason == "jump"


def test_no_jump_host_is_none_and_a_proxy_command_is_filled_in(start: Callable[..., Sshd]) -> None:
    server = start()
    server.config.write_text(server.config.read_text() + "  ProxyJump none\n")
    assert server.say(server.host()) == "hello\n"
    relay = "import socket,sys,threading,shutil;s=socket.create_connection((sys.argv[1],int(sys.argv[2])))"
    copy = "threading.Thread(target=lambda:[s.sendall(b) for b in iter(lambda:sys.stdin.buffer.raw.read(65536),b'')])"
    back = "[(sys.stdout.buffer.write(b),sys.stdout.buffer.flush()) for b in iter(lambda:s.recv(65536),b'')]"
    (server.folder / "relay.py").write_text(f"{relay}\n{copy}.start()\n{back}\n")
    proxied = f"  ProxyCommand {sys.executable} {server.folder}/relay.py %h %p\n"
    server.config.write_text(server.config.read_text().replace("  ProxyJump none\n", proxied))
    assert server.say(server.host()) == "hello\n"


# --- servers that are busy, silent, or not there ---


def test_a_default_server_takes_thirty_at_once(start: Callable[..., Sshd]) -> None:
    server = start("MaxStartups 10:30:100")
    connector = Connector(environ=server.environ)
    hosts = [replace(server.host(), name=f"n{number}") for number in range(30)]
    links = on_all_hosts({host.name: lambda host=host: connector.connect(host) for host in hosts}, deadline_s=60)  # type: ignore[misc]
    assert len(successes(links)) == 30
    for link in successes(links).values():
        link.close()


def test_nobody_listening_is_refused(start: Callable[..., Sshd]) -> None:
    server = start()
    error = server.refusal(server.host(port=free_port()))
    assert error.reason == "refused"
    assert "nothing listens on 127.0.0.1 port" in error.message


def test_a_port_that_is_no_ssh_server_is_told(start: Callable[..., Sshd]) -> None:
    server = start()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server.config.write_text(server.config.read_text() + "  ConnectTimeout 1\n")
        error = server.refusal(server.host(port=silent.getsockname()[1]))
    assert error.reason == "banner"


def test_an_unknown_name_is_told(start: Callable[..., Sshd]) -> None:
    server = start()
    assert server.refusal(server.host(ssh="no-such-host.invalid")).reason == "name"


def test_long_output_is_read_in_linear_time(start: Callable[..., Sshd]) -> None:
    server = start()
    link = Connector(environ=server.environ).connect(server.host())

    def seconds(mebibytes: int) -> float:
        started = time.process_time()
        channel = link.open(command_line(["head", "-c", str(mebibytes << 20), "/dev/zero"]))
        total = 0
        while piece := channel.read(30):
            total += len(piece)
        assert total == mebibytes << 20
        return time.process_time() - started

    seconds(1)
    assert seconds(32) < 16 * 4 * max(seconds(2), 0.005)  # quadratic would be 256 times
    link.close()


def test_a_connection_that_is_cut_is_an_error_and_no_end_of_output(start: Callable[..., Sshd]) -> None:
    server = start()
    link = Connector(environ=server.environ).connect(server.host())
    channel = link.open(command_line(["sh", "-c", "echo $PPID; exec sleep 60"]))
    session = int(channel.read(10))
    # The server's process for this session: parent of the command's shell, or of its parent.
    stat = Path(f"/proc/{session}/stat").read_text()
    assert "sshd" in stat
    os.kill(session, signal.SIGKILL)
    with pytest.raises(HostUnreachable) as caught:
        channel.read(10)
    assert caught.value.reason == "lost"
    link.close()

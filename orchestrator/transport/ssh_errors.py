"""Why a host cannot be reached or logged into, in a sentence, with what to do about it."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

import paramiko

from orchestrator.errors import HostUnreachable

if TYPE_CHECKING:
    from orchestrator.transport.logins import Logins
    from orchestrator.transport.ssh_config import SshTarget

# What Paramiko and Fabric raise while a connection is made.
CONNECT_ERRORS = (OSError, EOFError, paramiko.SSHException)


def is_worth_a_retry(error: BaseException) -> bool:
    """Tell a server that is only busy: sshd drops connections at random when too many arrive at once (MaxStartups)."""
    busy = isinstance(error, EOFError | ConnectionResetError | BrokenPipeError)
    return busy or "protocol banner" in str(error) or "Connection reset" in str(error)


def unreachable(error: BaseException, *, host: str, target: SshTarget, logins: Logins) -> HostUnreachable:
    """Turn what was raised while connecting into the error that the user sees.

    Args:
        error: one of CONNECT_ERRORS.
        host: inventory name.
        target: what was dialled.
        logins: what was offered there.
    """
    if isinstance(error, paramiko.AuthenticationException):
        return _refused_login(error, host, target, logins)
    where = f"{target.hostname} port {target.port}"
    ssh_itself = f"ssh -v -p {target.port} {target.user}@{target.hostname} true"
    reason, message, try_this = "protocol", f"SSH to {where} failed: {error or type(error).__name__}", ssh_itself
    number = _errno(error)
    if isinstance(error, socket.gaierror):
        reason, message = "name", f"the name {target.hostname} is not known here ({error.strerror})"
        try_this = f"getent hosts {target.hostname}; or write an IP address into the inventory"
    elif isinstance(error, TimeoutError) or number == errno.ETIMEDOUT:
        reason, message = "timeout", f"no answer from {where} within {target.connect_timeout_s:.0f} s"
        try_this = f"ping {target.hostname}; is it switched on, in this network, and not behind a firewall that drops?"
    elif number == errno.ECONNREFUSED:
        reason, message = "refused", f"nothing listens on {where}, or a firewall rejects it"
        try_this = "on the host: systemctl status ssh; a different port goes into the inventory (port:)"
    elif number in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN):
        reason, message = "no_route", f"no route to {where}: the host is down, or in another network"
        try_this = f"ip route get {target.hostname}; ping {target.hostname}"
    elif isinstance(error, paramiko.ChannelException):
        reason, message = "jump", f"the jump host does not connect to {where}: {error.text}"
        try_this = (
            f"on the jump host: nc -vz {target.hostname} {target.port}; and AllowTcpForwarding in its sshd_config"
        )
    elif is_worth_a_retry(error) or "No existing session" in str(error):  # Paramiko's words for silence after TCP
        reason, message = "banner", f"{where} takes connections, but does not answer as an SSH server"
        try_this = f"{ssh_itself}; a busy sshd refuses logins at random: raise MaxStartups in its sshd_config"
    return HostUnreachable(message, host=host, reason=reason, try_this=try_this)


def _errno(error: BaseException) -> int | None:
    """Return the errno behind an error; Paramiko hides one per address tried."""
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        return next((inner.errno for inner in error.errors.values() if isinstance(inner, OSError)), None)
    return error.errno if isinstance(error, OSError) else None


def _refused_login(
    error: paramiko.AuthenticationException, host: str, target: SshTarget, logins: Logins
) -> HostUnreachable:
    account = f"{target.user}@{target.hostname}"
    notes = [f"{file} is locked by a passphrase" for file in logins.locked]
    notes += [f"not usable: {text}" for text in logins.unreadable]
    copy_key = f"ssh-copy-id -p {target.port} {account}; or name the key and the user in the inventory (key:, user:)"
    if logins.locked and not [label for label in logins.offered if label != "password"]:
        reason, message = "key_locked", f"no usable key for {account}"
        copy_key = f"ssh-add {logins.locked[0]}, or --ask-pass"
    elif not logins.offered:
        reason, message = "no_key", f"there is no key to offer for {account}"
        copy_key = f"ssh-keygen -t ed25519; {copy_key}"
    elif logins.offered == ["password"]:
        reason, message = "password", f"the password was not accepted for {account}"
    else:
        reason = "key_refused"
        message = f"none of {len(logins.offered)} logins was accepted for {account} ({', '.join(logins.offered)})"
    allowed = {kind for result in getattr(error, "result", ()) for kind in getattr(result.result, "allowed_types", ())}
    if allowed and "publickey" not in allowed and "password" not in logins.offered:
        reason, message = "password_only", f"{account} can log in by {', '.join(sorted(allowed))} only"
        copy_key = "--ask-pass"
    return HostUnreachable("; ".join([message, *notes]), host=host, reason=reason, try_this=copy_key)

"""What may stand in each kind of text: names, addresses, users, paths, variables.

Each check returns the text, or raises ValueError with what is wrong and what was expected. What ends up in a file
name, a table, a log line or a proxy command is limited to characters that are harmless there.
"""

from __future__ import annotations

import ipaddress
import re

from orchestrator.inventory_file.document import shown
from orchestrator.inventory_file.ranges import expand

MAX_NAME_LENGTH = 128  # a host's name becomes part of file names, of which 255 bytes is the limit
MAX_ADDRESS_LENGTH = 253  # a name in DNS (RFC 1035)
MAX_ENV_BYTES = 131_071  # Linux starts no program with a longer variable (MAX_ARG_STRLEN), name and = included

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_USER = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._@+\\-]*[A-Za-z0-9._@+-])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

# Variables that a worker gets from elsewhere -> who sets them. The first fitting line counts.
_RESERVED = (
    (re.compile(r"MASTER_ADDR"), "ddp-orch sets it to the first host's address"),
    (re.compile(r"MASTER_PORT"), "ddp-orch sets it from rendezvous.port"),
    (re.compile(r"((LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME)"), "torchrun sets it in each process"),
    (re.compile(r"TORCHELASTIC_.*"), "torchrun sets it in each process"),
    (re.compile(r"PET_.*"), "torchrun would take it as one of its options, which ddp-orch gives"),
    (re.compile(r"DDP_ORCH_BACKEND"), "ddp-orch sets it; use the option --backend"),
    (re.compile(r"DDP_ORCH_.*"), "ddp-orch sets these"),
)


def host_names(text: str) -> str:
    """A host's name, or a range of names."""
    for name in expand(text):
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{shown(text)}, expected letters, digits, '.', '_' and '-', not beginning with '.' or '-'"
            )
        if len(name) > MAX_NAME_LENGTH:
            raise ValueError(f"{shown(text)} is too long, expected at most {MAX_NAME_LENGTH} characters")
    return text


def addresses(text: str) -> str:
    """An IP address or host name by which other hosts reach a host, or a range of them."""
    if "@" in text:
        user, _, rest = text.rpartition("@")
        raise ValueError(
            f"{shown(text)}, expected {shown(rest)} here and the user on a line of its own: user: {shown(user)}"
        )
    for address in _expanded(text):
        if is_ip(address) and ipaddress.ip_address(address).is_unspecified:
            raise ValueError(f"{shown(text)} stands for every address of a machine, expected the one that others reach")
        _check_address(address, text)
    return text


def ssh_destinations(text: str) -> str:
    """What SSH dials: an alias, a name or an address, with `user@` before it if need be; or a range of them."""
    name, at, rest = text.rpartition("@")
    if at:
        user(name)
    for destination in _expanded(rest):
        _check_address(destination, text)
    return text


def user(text: str) -> str:
    """A login name."""
    if not _USER.fullmatch(text):
        raise ValueError(f"{shown(text)}, expected a login name (no spaces, no shell characters, no '-' in front)")
    return text


def program(text: str) -> str:
    """An interpreter: a command to look for on the PATH, or a path."""
    if "/" in text or text.startswith("~"):
        return path(text)
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+-]*", text):
        raise ValueError(
            f"{shown(text)}, expected one program without arguments, such as python3.11 or ~/venv/bin/python"
        )
    return text


def path(text: str) -> str:
    """A path on a host: absolute, or below the login user's home."""
    _no_control(text)
    if text.startswith(("$HOME/", "${HOME}/")):
        raise ValueError(f"{shown(text)}, expected ~/ in place of $HOME (variables are not filled in)")
    if text != "~" and not text.startswith(("/", "~/")):
        raise ValueError(f"{shown(text)}, expected a path that begins with / or ~/ (the login user's home)")
    return text


def conda(text: str) -> str:
    """A conda environment: its name, or its path."""
    if "/" in text or text.startswith("~"):
        return path(text)
    if not _NAME.fullmatch(text):
        raise ValueError(f"{shown(text)}, expected the name or the path of a conda environment")
    return text


def key_file(text: str) -> str:
    """A private key's file on the controller; whether it is there is asked later."""
    _no_control(text)
    if text.endswith(".pub"):
        raise ValueError(f"{shown(text)} is the public half, expected the private key: {shown(text[:-4])}")
    return text


def variable(name: str) -> str:
    """The name of an environment variable that is the user's to set."""
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f"{shown(name)} cannot be a variable's name, expected letters, digits and '_'")
    for pattern, owner in _RESERVED:
        if pattern.fullmatch(name):
            raise ValueError(f"{name} cannot be set here: {owner}")
    return name


def variable_value(text: str) -> str:
    """What an environment variable may hold; never repeated in a message, as it may be a secret."""
    if re.search(r"[\x00\ud800-\udfff]", text):
        raise ValueError("the value holds a NUL or half a character, expected text")
    if len(text.encode()) > MAX_ENV_BYTES // 2:
        raise ValueError(f"a value of {len(text.encode())} bytes, expected at most {MAX_ENV_BYTES // 2}")
    return text


def is_ip(text: str) -> bool:
    """Whether a text is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_loopback(address: str) -> bool:
    """Whether an address reaches only the machine that uses it."""
    if is_ip(address):
        return ipaddress.ip_address(address).is_loopback
    return address.lower().rstrip(".") in {"localhost", "localhost.localdomain", "ip6-localhost"}


def _expanded(text: str) -> tuple[str, ...]:
    if text.startswith("[") and is_ip(text[1:].partition("]")[0]):  # [fe80::1]:22, as in URLs
        raise ValueError(
            f"{shown(text)}, expected an IPv6 address without brackets: {shown(text[1:].partition(']')[0])}"
        )
    return expand(text)


def _check_address(address: str, written: str) -> None:
    if is_ip(address) and re.fullmatch(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?", address):
        return
    if "://" in address:
        raise ValueError(f"{shown(written)} is a URL, expected an address such as 192.168.20.43")
    host, slash, _ = address.partition("/")
    if slash:
        raise ValueError(f"{shown(written)}, expected one address without a prefix length: {shown(host)}")
    host, colon, port = address.partition(":")
    if colon and port.isdigit():
        raise ValueError(
            f'{shown(written)}, expected {shown(host)} here and the port on a line of its own: "port: {port[:5]}"'
        )
    if re.fullmatch(r"[0-9.]+", address):
        raise ValueError(f"{shown(written)} is not an IPv4 address, expected four numbers from 0 to 255")
    if not _NAME.fullmatch(address):
        raise ValueError(f"{shown(written)}, expected an IP address or a host name")
    if len(address) > MAX_ADDRESS_LENGTH:
        raise ValueError(f"{shown(written)} is too long, expected at most {MAX_ADDRESS_LENGTH} characters")


def _no_control(text: str) -> None:
    if not text:
        raise ValueError("is empty")
    if _CONTROL.search(text):
        raise ValueError(f"{shown(text)} holds a control character, expected plain text")

"""A document to hosts: defaults filled in, ranges written out, and what does not go together refused."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.inventory_file import words
from orchestrator.inventory_file.document import START, Document, Path, Place, Surprise, shown
from orchestrator.inventory_file.ranges import MAX_HOSTS, expand
from orchestrator.inventory_file.schema import HostEntry, InventoryFile, Settings
from orchestrator.inventory_file.validate import validate
from orchestrator.model.host import DEFAULT_PYTHON, DEFAULT_WORKDIR, Host, Inventory

if TYPE_CHECKING:
    from pathlib import Path as FilePath

LOCAL_ADDRESS = "127.0.0.1"
_INTERPRETERS = ("python", "venv", "conda")
_SSH_ONLY = ("ssh", "user", "port", "key")


@dataclass(frozen=True)
class _Identity:
    """What one host is called, by whom: one of those that an entry with a range stands for."""

    name: str
    address: str
    ssh: str
    user: str | None


@dataclass(frozen=True)
class PlacedHost:
    """A host, where its entry stands, and whether that was free of problems."""

    host: Host
    place: Place
    sound: bool


def build_inventory(document: Document, folder: FilePath, source: str) -> tuple[Inventory, list[PlacedHost]]:
    """Make an inventory of a document; what is wrong is added to the document's problems.

    Args:
        document: the file's content.
        folder: what relative key files are relative to.
        source: the file, as the user named it.

    Returns:
        The inventory, complete only if the document has no problems afterwards; and each host with its place, so
        that the hosts can be compared.
    """
    file = validate(InventoryFile, document.data, document, ())
    _exclusive(file.defaults, document, ("defaults",))
    if isinstance(document.data, dict) and "hosts" not in document.data:
        document.problems.add(START, "hosts: missing, expected a list of hosts, one a line, each after '- '")
    placed: list[PlacedHost] = []
    for index, raw in enumerate(file.hosts):
        if document.problems.full:
            break
        placed += _Entry(file, document, ("hosts", index), raw, folder).hosts()
        if len(placed) > MAX_HOSTS:
            place = document.place(("hosts", index))
            document.problems.add(place, f"more than {MAX_HOSTS} hosts up to here, expected fewer")
            break
    hosts = tuple(item.host for item in placed)
    return Inventory(hosts=hosts, rendezvous_port=file.rendezvous.port, source=source), placed


class _Entry:
    """One entry of `hosts` on its way to one host or more."""

    def __init__(self, file: InventoryFile, document: Document, path: Path, raw: object, folder: FilePath) -> None:
        self._file = file
        self._document = document
        self._problems = document.problems
        self._path = path
        self._folder = folder
        self._known_problems = len(document.problems.found)
        if isinstance(raw, (str, int, Surprise)):  # a bare string is an SSH alias
            document.values |= {(*path, "ssh"): document.place(path)}
            raw = {"ssh": raw}
        self._own = validate(HostEntry, raw, document, path)

    def hosts(self) -> list[PlacedHost]:
        self._exclusive_keys()
        connection = self._own.connection or self._file.defaults.connection or "ssh"
        local = connection == "local"
        gpus = self._gpus()
        env = {**self._file.env, **self._file.defaults.env, **self._own.env}
        if isinstance(gpus, tuple) and "CUDA_VISIBLE_DEVICES" in env:
            self._visible_devices_twice()
        identities = self._identities(local=local)
        key = None if local else self._key()
        own, defaults = self._own, self._file.defaults
        hosts = [
            Host(
                name=identity.name,
                address=identity.address,
                ssh=identity.ssh,
                connection=connection,
                user=None if local else identity.user or own.user or defaults.user,
                port=None if local else own.port or defaults.port,
                key=key,
                python=self._python(local=local),
                workdir=own.workdir or defaults.workdir or DEFAULT_WORKDIR,
                env=env,
                gpus=gpus,
                processes=1 if gpus else own.processes or defaults.processes or 1,
            )
            for identity in identities
        ]
        sound = len(self._problems.found) == self._known_problems
        return [PlacedHost(host, self._document.place(self._path), sound) for host in hosts]

    def _exclusive_keys(self) -> None:
        _exclusive(self._own, self._document, self._path)
        if (self._own.connection or self._file.defaults.connection) == "local":
            for key in self._own.model_fields_set.intersection(_SSH_ONLY):
                if (*self._path, key) in self._document.keys:
                    place = self._document.key_place((*self._path, key))
                    self._problems.add(place, f"{key} has no meaning with connection: local, expected to be left out")

    def _identities(self, *, local: bool) -> list[_Identity]:
        own = self._own
        given = {"name": own.name, "address": own.address, "ssh": own.ssh}
        written_out = {key: expand(text) for key, text in given.items() if text is not None}
        if not written_out:
            if len(self._problems.found) == self._known_problems:
                expected = "name: local-0" if local else "address: 192.168.20.43 (or ssh: ALIAS)"
                self._problems.add(self._document.place(self._path), f"a host that nothing names, expected {expected}")
            return []
        if len({len(names) for names in written_out.values()}) > 1:
            counts = " and ".join(f"{key} for {len(names)}" for key, names in written_out.items())
            self._problems.add(self._document.place(self._path), f"{counts} hosts, expected ranges of the same length")
            return []
        rows = zip(*written_out.values(), strict=True)
        return [self._identity(dict(zip(written_out, row, strict=True)), local=local) for row in rows]

    def _identity(self, texts: dict[str, str], *, local: bool) -> _Identity:
        user, at, destination = texts.get("ssh", "").rpartition("@")
        if at and self._own.user is not None:
            place = self._document.key_place((*self._path, "user"))
            self._problems.add(place, f"user beside ssh: {shown(texts['ssh'])}, expected the user in one place")
        if local:
            address = texts.get("address", LOCAL_ADDRESS)
        else:  # an address that SSH dials is the host's address; what an alias means, only SSH knows
            address = texts.get("address", destination if words.is_ip(destination) else "")
        name = texts.get("name") or _name_from(texts.get("address") or destination)
        return _Identity(name, address, destination or texts.get("address") or name, user or None)

    def _python(self, *, local: bool) -> str:
        for settings in (self._own, self._file.defaults):
            if settings.python is not None:
                return settings.python
            if settings.venv is not None:
                return f"{settings.venv.rstrip('/')}/bin/python"
            if settings.conda is not None:
                is_path = settings.conda.startswith(("/", "~"))
                return f"{settings.conda.rstrip('/')}/bin/python" if is_path else f"conda:{settings.conda}"
        # On this machine, the interpreter that a person means is the one that they started ddp-orch with.
        return sys.executable if local and sys.executable else DEFAULT_PYTHON

    def _gpus(self) -> int | tuple[int, ...]:
        for settings in (self._own, self._file.defaults):
            if settings.gpus is not None:
                return tuple(settings.gpus) if isinstance(settings.gpus, list) else settings.gpus
            if settings.processes is not None:
                return 0
        return 1

    def _key(self) -> str | None:
        own = self._own.key is not None
        text = self._own.key if own else self._file.defaults.key
        if text is None:
            return None
        file = os.path.abspath(self._folder / os.path.expanduser(text))  # noqa: PTH100, PTH111 - Path's raise for "~nobody"
        if not os.path.isfile(file):  # noqa: PTH113 - Path's raises for a name that is too long
            place = self._document.place((*self._path, "key") if own else ("defaults", "key"))
            kind = "a folder" if os.path.isdir(file) else "no such file"  # noqa: PTH112 - as above
            self._problems.add(place, f"key: {kind}: {shown(file, len(file))}, expected a private key on this machine")
        return file

    def _visible_devices_twice(self) -> None:
        for path in ((*self._path, "env"), ("defaults", "env"), ("env",)):
            place = self._document.keys.get((*path, "CUDA_VISIBLE_DEVICES"))
            if place is not None:
                text = "CUDA_VISIBLE_DEVICES beside a list of gpus, which sets it; expected one of them"
                self._problems.add(place, text)
                return


def _exclusive(settings: Settings, document: Document, path: Path) -> None:
    """Add problems for keys of one mapping that exclude each other."""
    interpreters = sorted(
        (document.key_place((*path, key)), key) for key in settings.model_fields_set.intersection(_INTERPRETERS)
    )
    for place, key in interpreters[1:]:
        document.problems.add(place, f"{key} beside {interpreters[0][1]}, expected one of python, venv and conda")
    if settings.processes is not None and settings.gpus:
        place = document.key_place((*path, "processes"))
        document.problems.add(place, "processes beside gpus, expected one of them (with GPUs, each gets one process)")


def _name_from(address: str) -> str:
    """A host's name where only its address is known; colons of IPv6 would be at odds with file names."""
    return address.replace(":", "-").replace("%", "-").strip("-") or "localhost"

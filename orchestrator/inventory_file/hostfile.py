"""Host files of MPI and DeepSpeed to a `Document`.

One host a line: `gpu01 slots=4` (DeepSpeed, Open MPI), `gpu01:4` (MPICH) or `gpu01`; `#` begins a comment.
Source: https://www.deepspeed.ai/getting-started/#resource-configuration-multi-node and Open MPI's mpirun(1).
"""

from __future__ import annotations

import re

from orchestrator.inventory_file.document import START, Document, Place, shown

# A host may be user@host and hold ranges: bob@gpu[01-08].
_HOST = r"(?P<host>[A-Za-z0-9_][A-Za-z0-9_.@-]*(?:\[[0-9,-]+\][A-Za-z0-9_.-]*)*)"
_COUNT = r"[0-9]{1,9}"
_LINE = re.compile(
    rf"{_HOST}(?::(?P<colon>{_COUNT})|\s+slots\s*=\s*(?P<slots>{_COUNT})(?:\s+max[-_]slots\s*=\s*{_COUNT})?)?"
)
_SLOTS = re.compile(r"[^\s:]+\s+(?:max[-_])?slots\s*=")


def looks_like_hostfile(text: str) -> bool:
    """Whether a file is a host file: each line is a host, or a line has `slots=` after its first word."""
    lines = [content for _, _, content in _lines(text)]
    return bool(lines) and (all(map(_LINE.fullmatch, lines)) or any(map(_SLOTS.match, lines)))


def read_hostfile(text: str) -> Document:
    """Read a host file: each line becomes a host of an inventory, its slots the `gpus`."""
    hosts: list[object] = []
    document = Document(data={"hosts": hosts}, values={("hosts",): START})
    for number, column, content in _lines(text):
        place = Place(number, column)
        match = _LINE.fullmatch(content)
        if match is None:
            document.problems.add(place, f"{shown(content)}, expected HOST slots=COUNT, such as: gpu01 slots=4")
            continue
        path = ("hosts", len(hosts))
        document.values |= {path: place, (*path, "ssh"): place}
        host: dict[str, object] = {"ssh": match["host"]}
        slots = match["colon"] or match["slots"]
        if slots is not None:
            place = Place(number, column + match.start("colon" if match["colon"] else "slots"))
            if int(slots) == 0:
                document.problems.add(place, "0 slots, expected at least 1 (one process a GPU)")
            host["gpus"] = int(slots)
            document.values |= {(*path, "gpus"): place}
        hosts.append(host)
    return document


def _lines(text: str) -> list[tuple[int, int, str]]:
    """Line number, column of the first character, and content, of each line that says something."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        content = line.partition("#")[0]
        if content.strip():
            found.append((number, len(content) - len(content.lstrip()) + 1, content.strip()))
    return found

"""Open an inventory, whatever its form, and tell everything that is wrong with it at once."""

from __future__ import annotations

import codecs
import difflib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import InventoryError
from orchestrator.inventory_file.document import START, Problems, control_characters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.model.host import Inventory

DEFAULT_INVENTORY = "inventory/lab.yaml"
INVENTORY_VARIABLE = "DDP_ORCH_INVENTORY"
MAX_FILE_BYTES = 1024 * 1024  # 1024 hosts with ten lines each take a third of this
MAX_PROBLEMS_TOLD = 50  # what fits on a screen or two

_NAME_ANOTHER = f"name the inventory with -i FILE or {INVENTORY_VARIABLE}=FILE (default: {DEFAULT_INVENTORY})"
_KEYS = "an inventory with the keys hosts, defaults, env and rendezvous"


def choose_inventory_path(option: str | None, environ: Mapping[str, str]) -> Path:
    """The inventory that is meant: `-i`, else the variable DDP_ORCH_INVENTORY, else inventory/lab.yaml.

    Args:
        option: what `-i` says, or None.
        environ: the caller's environment; an empty variable counts as none.
    """
    meant = option if option is not None else environ.get(INVENTORY_VARIABLE) or DEFAULT_INVENTORY
    return Path(os.path.expanduser(meant))  # noqa: PTH111 - Path's raises for "~nobody"


def load_inventory(path: Path) -> Inventory:
    """Read an inventory: YAML, or a host file (`host slots=4`) of MPI or DeepSpeed.

    Args:
        path: the file, as the user named it.

    Raises:
        InventoryError: with every problem, as `file:line:column: what, what was expected`, in the file's order;
            without line and column where the file cannot be read at all.
    """
    # Here, because pydantic and yaml take longer to import than many a command takes to run.
    from orchestrator.inventory_file.build import build_inventory
    from orchestrator.inventory_file.compare import compare_hosts
    from orchestrator.inventory_file.hostfile import looks_like_hostfile, read_hostfile
    from orchestrator.inventory_file.yaml_document import read_yaml

    text = _read(path)
    problems = Problems()
    control_characters(text, problems)
    if problems.found:
        raise _error(path, problems)
    document = read_hostfile(text) if looks_like_hostfile(text) else read_yaml(text)
    problems = document.problems
    if not isinstance(document.data, dict):
        if not problems.found:
            problems.add(START, _no_mapping(document.data, text))
        raise _error(path, problems)
    inventory, placed = build_inventory(document, path.parent, str(path))
    compare_hosts(placed, problems)
    if problems.found:
        raise _error(path, problems)
    return inventory


def _no_mapping(data: object, text: str) -> str:
    if isinstance(data, list):
        return f"a list, expected {_KEYS}; put hosts: above the list"
    has_content = any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())
    return f'no line of the form "key: value", expected {_KEYS}' if has_content else f"an empty file, expected {_KEYS}"


def _error(path: Path, problems: Problems) -> InventoryError:
    told = [f"{path}:{place.line}:{place.column}: {text}" for place, text in sorted(problems.found)]
    if len(told) > MAX_PROBLEMS_TOLD:
        more = f"{'at least ' if problems.full else ''}{len(told) - MAX_PROBLEMS_TOLD}"
        told[MAX_PROBLEMS_TOLD:] = [f"{path}: and {more} more problems"]
    return InventoryError(told)


def _read(path: Path) -> str:
    """The file's text, without a byte order mark and with line ends as Unix has them."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise InventoryError([f"{path}: a folder, expected a file"], try_this=_others(path, path))
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise InventoryError([f"{path}: no such file"], try_this=_others(path.parent, path)) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise InventoryError([f"{path}: cannot be read: {reason}"], try_this=_NAME_ANOTHER) from error
    if len(data) > MAX_FILE_BYTES:
        raise InventoryError([f"{path}: more than {MAX_FILE_BYTES // 1024} KiB, expected {_KEYS}"])
    return _decode(path, data)


def _decode(path: Path, data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InventoryError([f"{path}:1:1: UTF-16 text, expected UTF-8; save the file again as UTF-8"])
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, len(before.rpartition(b"\n")[2].decode()) + 1
        what = f"the byte 0x{data[error.start]:02x} is not UTF-8 text, expected the file saved as UTF-8"
        raise InventoryError([f"{path}:{line}:{column}: {what}"]) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _others(folder: Path, wanted: Path) -> str:
    """What to try in place of a file that is not there."""
    try:
        names = sorted(item.name for item in folder.iterdir() if item.suffix in {".yaml", ".yml"})
    except OSError:
        return _NAME_ANOTHER
    close = difflib.get_close_matches(wanted.name, names, n=1) or names[:3]
    if not close:
        return _NAME_ANOTHER
    return f"did you mean {' or '.join(str(folder / name) for name in close)}? {_NAME_ANOTHER}"

"""The direction of imports: you may only look down, and some libraries live in one room (see docs/source-code.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "orchestrator"

FLOOR = {
    "cli": 5,
    "workflows": 4,
    "preflight": 3,
    "launch": 3,
    "runs": 3,
    "diagnosis": 3,
    "inventory_file": 3,
    "sync": 3,
    "logs": 3,
    "lab": 3,
    "transport": 2,
    "model": 1,
    "errors": 1,
}
# Rooms whose neighbours on the same floor they may know, with the reason.
NEIGHBOURS = {
    ("model", "errors"): "plain data may raise plain errors",
}
# Library -> the rooms that may import it.
ONLY_IN = {
    "fabric": {"transport"},
    "invoke": {"transport"},
    "paramiko": {"transport"},
    "cryptography": {"transport"},
    "yaml": {"inventory_file"},
    "pydantic": {"inventory_file"},
    "pathspec": {"sync"},
    "click": {"cli"},
    "rich": {"cli"},
    "torch": set(),
    "torchvision": set(),
    "worker": set(),
}


def imports_of(path: Path) -> set[str]:
    """Every module a file names in an import, except those for type checking alone."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if not {"bundled_worker", "trial"} & set(path.parts))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_only_looks_down(path: Path) -> None:
    room = room_of(path)
    for name in imports_of(path):
        library = name.split(".")[0]
        assert room in ONLY_IN.get(library, {room}), f"{library} is imported outside {ONLY_IN[library]}"
        if library != "orchestrator" or room in {"__init__", "__main__"} or name == "orchestrator":
            continue
        other = name.split(".")[1]
        if "node" in (room, other):  # programs for hosts, which are sent as text: a world of its own
            assert room == other
            continue
        below = FLOOR[other] < FLOOR[room]
        assert other == room or below or (room, other) in NEIGHBOURS, f"{room} may not know {other}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "node").glob("*.py")), ids=lambda path: path.name)
def test_a_node_program_needs_nothing_but_python_3_8(path: Path) -> None:
    import sys

    source = path.read_text()
    ast.parse(source, feature_version=(3, 8))
    assert "orchestrator.node import (" not in source  # what travels with it is found line by line
    foreign = {name for name in imports_of(path) if not name.startswith("orchestrator.node")}
    assert {name.split(".")[0] for name in foreign} <= sys.stdlib_module_names
    assert len(source.splitlines()) <= 400


@pytest.mark.parametrize("path", sorted((ROOT / "worker").glob("*.py")), ids=lambda path: path.name)
def test_the_worker_knows_nothing_of_the_orchestrator(path: Path) -> None:
    assert not any(name.split(".")[0] == "orchestrator" for name in imports_of(path))

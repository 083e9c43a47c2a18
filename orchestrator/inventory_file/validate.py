"""Data against the schema, and what does not fit in plain words."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.inventory_file.document import REPORTED, Document, Path, Surprise, shown
from orchestrator.inventory_file.ranges import MAX_HOSTS
from orchestrator.inventory_file.schema import GPU_FORMS, HostEntry, InventoryFile, Rendezvous

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_Model = TypeVar("_Model", bound=BaseModel)

_EXPECTED = {
    name: field.description or ""
    for model in (InventoryFile, Rendezvous, HostEntry)
    for name, field in model.model_fields.items()
}

_FORMS: dict[type, str] = {list: "a list", dict: "a mapping"}
_EMPTY_FORMS: dict[type, str] = {
    list: "a list with nothing in it",
    dict: "a mapping with nothing in it",
    str: "empty text",
}

# What other tools call it -> what it is called here.
_SYNONYMS = {
    "nodes": "hosts",
    "workers": "hosts",
    "vars": "defaults",
    "host": "address",
    "hostname": "address",
    "ip": "address",
    "internal_ip": "address",
    "ansible_host": "address",
    "ansible_user": "user",
    "ansible_port": "port",
    "ansible_ssh_private_key_file": "key",
    "ansible_connection": "connection",
    "ansible_python_interpreter": "python",
    "username": "user",
    "login": "user",
    "key_file": "key",
    "identity_file": "key",
    "identityfile": "key",
    "ssh_key": "key",
    "interpreter": "python",
    "virtualenv": "venv",
    "conda_env": "conda",
    "dir": "workdir",
    "path": "workdir",
    "environment": "env",
    "slots": "gpus",
    "num_gpus": "gpus",
    "devices": "gpus",
    "nproc": "processes",
    "nproc_per_node": "processes",
}


def validate(model: type[_Model], data: object, document: Document, path: Path) -> _Model:
    """Make a model of a piece of a document; what does not fit becomes a problem and is left out.

    Args:
        model: one whose fields all have defaults.
        data: the piece.
        document: the whole, for places; receives the problems.
        path: where the piece stands in it.

    Returns:
        The model, of the parts that fit.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True)
    for detail in details:
        if document.problems.full:
            break
        _explain(model, detail, document, path)
    if not isinstance(data, dict):
        return model()
    return validate(model, _without(data, details), document, path)


def _without(data: dict[str, Any], details: list[ErrorDetails]) -> dict[str, Any]:
    """The data without the keys, or the keys one level further in, that were complained about."""
    kept = {key: dict(value) if isinstance(value, dict) else value for key, value in data.items()}
    for detail in details:
        first, second = [*detail["loc"], ""][:2]
        inner = data[str(first)]
        if isinstance(inner, dict) and second in inner:
            kept.get(str(first), {}).pop(second, None)
        else:
            kept.pop(str(first), None)
    return kept


def _explain(model: type[BaseModel], detail: ErrorDetails, document: Document, base: Path) -> None:
    path = document.known_path((*base, *(part for part in detail["loc"] if part not in GPU_FORMS)))
    kind, value = detail["type"], detail["input"]
    if isinstance(value, Surprise) and value.reading == REPORTED:
        return
    if kind == "extra_forbidden":
        key = str(detail["loc"][-1])
        document.problems.add(document.key_place(path), f"unknown key {shown(key)}, {_did_you_mean(model, key, path)}")
    elif kind == "value_error" and detail["loc"][-1:] == ("[key]",):
        document.problems.add(document.key_place(path), f"env: {_reason(detail)}")
    elif kind == "value_error":
        document.problems.add(document.place(path), f"{label(document, path)}: {_reason(detail)}")
    else:
        text = f"{label(document, path)}: {_what_stands_there(kind, value, path)}"
        document.problems.add(document.place(path), text)


def label(document: Document, path: Path) -> str:
    """What a message calls a value: its key, with `rendezvous.` or `env.` before it."""
    if path not in document.keys and path[-1:] == ("ssh",):
        return "host"  # a bare string or a line of a host file
    keys = [part for part in path if isinstance(part, str)]
    inside = len(keys) > 1 and keys[0] in {"hosts", "defaults"}
    return shown(".".join(keys[1:] if inside else keys))[1:-1]


def _reason(detail: ErrorDetails) -> str:
    return detail["msg"].removeprefix("Value error, ")


def _did_you_mean(model: type[BaseModel], key: str, path: Path) -> str:
    fields = list(_fields(model, path))
    synonym = _SYNONYMS.get(key.lower().replace("-", "_"), "")
    close = [synonym] if synonym in fields else difflib.get_close_matches(key.lower()[:40], fields, n=1)
    return f"did you mean {shown(close[0])}?" if close else f"expected one of: {', '.join(fields)}"


def _fields(model: type[BaseModel], path: Path) -> dict[str, Any]:
    """The keys that may stand beside the last one of a path."""
    inside = {
        "defaults": InventoryFile.model_fields["defaults"],
        "rendezvous": InventoryFile.model_fields["rendezvous"],
    }
    field = inside.get(str(path[-2])) if len(path) > 1 and model is InventoryFile else None
    nested = field.annotation if field else model
    return dict(nested.model_fields) if nested is not None else {}


def _what_stands_there(kind: str, value: object, path: Path) -> str:
    key = next(str(part) for part in reversed(path) if part in _EXPECTED)
    in_env = "env" in path[:-1]
    expected = "text" if in_env else "a host" if key == "hosts" != path[-1] else _EXPECTED[key]
    single = value.text if isinstance(value, Surprise) else isinstance(value, (str, int))
    if key == "env" and single and not in_env:
        return f"a single value, expected {expected}"  # not repeated: it may be a secret
    if isinstance(value, Surprise):
        return _surprise(value, expected, wants_text=kind == "string_type", secret=in_env)
    if isinstance(value, int) and kind == "string_type":
        return f'YAML reads {value} as a number; write "{value}" in quotes'
    if isinstance(value, str) and kind == "int_type" and value.isascii() and value.isdigit():
        return f"{shown(value)} in quotes is text, expected {expected}"
    if kind == "too_long" and isinstance(value, list):
        return f"{len(value)} of them, expected at most {MAX_HOSTS}"
    form = (_FORMS if value else _EMPTY_FORMS).get(type(value), shown(str(value))[1:-1])
    return f"{form}, expected {expected}"


def _surprise(value: Surprise, expected: str, *, wants_text: bool, secret: bool) -> str:
    if not value.text:
        return f"nothing stands here, expected {expected}"
    if not wants_text:
        return f"YAML reads {shown(value.text)[1:-1]} as {value.reading}, expected {expected}"
    if secret and value.reading not in {"true", "false", "nothing"}:
        return "YAML reads this value as a number or date, not as written; write it in quotes"
    return f"YAML reads {shown(value.text)[1:-1]} as {value.reading}; write {shown(value.text)} in quotes"

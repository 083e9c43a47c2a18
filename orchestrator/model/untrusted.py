"""Reading what a host sent: JSON whose fields may be missing, or of another type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

LARGEST = 2**63  # also leaves out infinity


def text(body: Mapping[str, Any], key: str) -> str:
    """Return a text field, "" when it is none."""
    value = body.get(key)
    return value if isinstance(value, str) else ""


def number(body: Mapping[str, Any], key: str) -> float:
    """Return a number field, 0 when it is none, or too large for any quantity of ours."""
    value = body.get(key)
    return value if isinstance(value, int | float) and abs(value) < LARGEST else 0


def mapping(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object field, an empty one when it is none."""
    value = body.get(key)
    return value if isinstance(value, dict) else {}


def mappings(body: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return a list of objects, without what is none."""
    value = body.get(key)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def texts(body: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return a list of texts, without what is none."""
    value = body.get(key)
    return tuple(entry for entry in value if isinstance(entry, str)) if isinstance(value, list) else ()


def whole_numbers(body: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """Return a list of whole numbers, without what is none."""
    value = body.get(key)
    return tuple(entry for entry in value if isinstance(entry, int)) if isinstance(value, list) else ()


def texts_by_name(body: Mapping[str, Any], key: str) -> Mapping[str, str]:
    """Return an object of texts, without what is none."""
    return {name: value for name, value in mapping(body, key).items() if isinstance(value, str)}

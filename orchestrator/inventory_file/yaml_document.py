"""YAML text to a `Document`.

Built from PyYAML's events, not its composed nodes: those follow aliases (also endless and exploding ones), recurse as
deep as the file wants, and drop the first of two equal keys. Events cost nothing that the text does not hold.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

import yaml
from yaml.constructor import SafeConstructor
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from yaml.nodes import ScalarNode
from yaml.resolver import Resolver

from orchestrator.inventory_file.document import REPORTED, START, Document, Path, Place, Surprise, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

# Where PyYAML was built without libyaml, its Python loader does the same, about ten times slower.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_DEPTH = 16  # an inventory needs 4; a deeper file would only exhaust the stack
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = (None, "!", _TAG + "str", _TAG + "seq", _TAG + "map")
_DECIMAL = re.compile(r"0|-?[1-9][0-9]{0,17}")  # the integers that every YAML reader and every person reads alike
_MAX_COMPUTED_LENGTH = 40  # characters of an odd number whose value is worth computing for a message

# Words of PyYAML and libyaml -> ours. The first fitting line counts.
_SYNTAX = (
    (
        "mapping values are not allowed",
        'a ": " too many, or a wrong indentation; put a value that holds ": " in quotes',
    ),
    ("could not find expected ':'", 'no ": " after this key, expected "key: value"'),
    ("block end", "the indentation does not fit the lines above"),
    ("did not find expected key", "the indentation does not fit the lines above"),
    ("did not find expected '-' indicator", 'the indentation does not fit the lines above, or "- " is missing'),
    ("expected ',' or ']'", 'a list in [ ] goes wrong here; put names that hold "[" in quotes'),
    ("expected ',' or '}'", "a mapping in { } goes wrong here"),
    ("unexpected end of stream", "the file ends inside a quoted text, expected the closing quote"),
    ("node content", "a value is missing here, or begins with a character that needs quotes"),
    ("escape", r"an unknown escape in a double-quoted text; use single quotes, or write \\ for a backslash"),
    ("end of stream", "the file ends too early; a bracket or quote is still open"),
    ("nesting depth", "nested too deep, expected the keys of an inventory"),
    ("tag", "a YAML tag (!...) is not understood here"),
    ("alias", "a YAML alias or anchor is not understood here; put what hosts share under defaults:"),
    ("anchor", "a YAML alias or anchor is not understood here; put what hosts share under defaults:"),
)


class _TooDeepError(Exception):
    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place


def read_yaml(text: str) -> Document:
    """Read YAML with the place of every piece.

    Args:
        text: free of control characters.

    Returns:
        The document; with problems in it for wrong syntax, equal keys, aliases, tags and a second document. `data` is
        None after a syntax error.
    """
    reader = _Reader(text)
    try:
        reader.read()
    except yaml.MarkedYAMLError as error:
        reader.document.data = None
        reader.document.problems.add(_place(error), _in_plain_words(error, text, _place(error)))
    except yaml.YAMLError as error:
        reader.document.data = None
        reader.document.problems.add(START, f"not YAML: {error}".splitlines()[0])
    except (ValueError, OverflowError):  # PyYAML's Python loader, for an escape that stands for no character
        reader.document.data = None
        reader.document.problems.add(START, "an escape in a double-quoted text that stands for no character")
    except _TooDeepError as error:
        reader.document.data = None
        reader.document.problems.add(
            error.place, f"nested more than {_MAX_DEPTH} deep, expected the keys of an inventory"
        )
    return reader.document


class _Reader:
    """Turns the event stream into data, depth first."""

    def __init__(self, text: str) -> None:
        self.document = Document()
        self._events: Iterator[Event] = yaml.parse(text, Loader=_LOADER)
        self._resolver = Resolver()

    def read(self) -> None:
        documents = 0
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self.document.problems.add(_place(event), "a second document (---), expected one inventory a file")
                    return
            elif isinstance(event, NodeEvent):
                self.document.data = self._value(event, ())
            elif isinstance(event, StreamEndEvent):
                return

    def _value(self, event: Event, path: Path) -> object:
        place = _place(event)
        self.document.values[path] = place
        if len(path) > _MAX_DEPTH:
            raise _TooDeepError(place)
        if isinstance(event, AliasEvent):
            name = shown(f"*{event.anchor}")
            self.document.problems.add(
                place, f"the YAML alias {name} is not read here; put what hosts share under defaults:"
            )
            return Surprise(f"*{event.anchor}", REPORTED)
        tag = cast("str | None", getattr(event, "tag", None))
        if tag not in _PLAIN_TAGS:
            self.document.problems.add(
                place, f"the YAML tag {shown(str(tag).replace(_TAG, '!!'))} is not read here; leave it out"
            )
        if isinstance(event, MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, SequenceStartEvent):
            return self._sequence(path)
        scalar = cast("ScalarEvent", event)
        return self._scalar(scalar) if tag in _PLAIN_TAGS else Surprise(scalar.value, REPORTED)

    def _sequence(self, path: Path) -> list[object]:
        items: list[object] = []
        for event in self._events:
            if isinstance(event, SequenceEndEvent):
                break
            items.append(self._value(event, (*path, len(items))))
        return items

    def _mapping(self, path: Path) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for event in self._events:
            if isinstance(event, MappingEndEvent):
                break
            key = self._key(event, path)
            key_path = (*path, key or "")
            if key is None or key in mapping:
                if key is not None:
                    first = self.document.keys[key_path].line
                    text = f"the key {shown(key)} stands twice, first in line {first}"
                    self.document.problems.add(_place(event), text)
                self._value(next(self._events), (*path, ""))  # read past it; no key of an inventory is ""
            else:
                self.document.keys[key_path] = _place(event)
                mapping[key] = self._value(next(self._events), key_path)
        return mapping

    def _key(self, event: Event, path: Path) -> str | None:
        value = self._value(event, (*path, ""))
        if isinstance(value, str):
            return value
        if isinstance(value, Surprise) and value.reading == REPORTED:
            return None
        if isinstance(value, (int, Surprise)):
            surprise = value if isinstance(value, Surprise) else Surprise(str(value), "a number")
            text = f'YAML reads the key {surprise.text} as {surprise.reading}; write "{surprise.text}" in quotes'
            text = "nothing stands before the colon, expected a key" if not surprise.text else text
            text = "the merge key <<; put what hosts share under defaults:" if surprise.text == "<<" else text
            self.document.problems.add(_place(event), text)
        else:
            self.document.problems.add(_place(event), "a list or mapping as a key, expected a word")
        return None

    def _scalar(self, event: ScalarEvent) -> object:
        text = event.value
        explicit = event.tag if event.tag != "!" else _TAG + "str"
        tag = explicit or cast("str", self._resolver.resolve(ScalarNode, text, event.implicit))  # type: ignore[no-untyped-call]  # so in the stubs
        tag = tag.removeprefix(_TAG)
        if tag == "int" and _DECIMAL.fullmatch(text):
            return int(text)
        return Surprise(text, reading) if (reading := _reading(tag, text)) else text


def _place(event: Event | yaml.MarkedYAMLError) -> Place:
    mark = event.start_mark if isinstance(event, Event) else event.problem_mark or event.context_mark
    return Place(mark.line + 1, mark.column + 1) if mark else START


def _reading(tag: str, text: str) -> str:
    """What YAML 1.1 makes of a scalar without quotes, or "" for text."""
    if tag == "bool":
        return "true" if text.lower() in {"yes", "true", "on"} else "false"
    if tag == "int" and len(text) <= _MAX_COMPUTED_LENGTH:
        try:
            return f"the number {SafeConstructor().construct_yaml_int(ScalarNode(_TAG + 'int', text))}"
        except ValueError:
            return "a number"
    return {"null": "nothing", "int": "a number", "float": "a number", "timestamp": "a date", "merge": "a merge"}.get(
        tag, "a value to compute" if tag == "value" else ""
    )


def _in_plain_words(error: yaml.MarkedYAMLError, text: str, place: Place) -> str:
    """A syntax error, told to somebody who does not know how YAML is parsed."""
    lines = text.split("\n")
    line = lines[place.line - 1] if place.line <= len(lines) else ""
    rest = line[place.column - 1 :]
    problem = error.problem or error.context or "unreadable"
    if rest.startswith("\t") or re.match(r" *\t", line):
        return "a tab in the indentation, expected spaces"
    if "cannot start any token" in problem and rest:
        return f'{shown(rest[0])} cannot begin a value, expected quotes around it: "{rest[0]}..."'
    if rest.startswith(":") and "mapping values" not in problem:
        return "nothing stands before the colon, expected a key"
    words = next((ours for theirs, ours in _SYNTAX if theirs in problem), f"not YAML: {problem}")
    if "end of stream" in problem and error.context_mark is not None:
        words += f" (opened in line {error.context_mark.line + 1})"
    return words

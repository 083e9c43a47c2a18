"""Reads logs and notes down what the table of signatures, or a traceback, knows of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, BinaryIO

from orchestrator.diagnosis.explanation import Evidence
from orchestrator.diagnosis.line_labels import Label, label_of
from orchestrator.diagnosis.log_scan import LogScan, shape_of
from orchestrator.diagnosis.signatures.all_signatures import SIGNATURES
from orchestrator.diagnosis.signatures.innocent import INNOCENT
from orchestrator.diagnosis.signatures.signature import Kind
from orchestrator.diagnosis.tracebacks import START, Raised, TracebackReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.diagnosis.signatures.signature import Signature

MOST_UNUSUAL = 5  # of one log
MOST_RAISED = 64  # of one log
MOST_SHAPES = 5_000  # that are remembered: of 4 KiB at most, mostly of 100 bytes
MOST_LOOKS = 2000  # at lines of one shape, in one log; later ones are counted as what these were
SHOWN_CHARACTERS = 400
_BOX = {"host": "  host      : ", "rank": "(local_rank: "}
_BOX_HOST = re.compile(r"^\s{1,8}host {1,8}: (?P<host>[\w.-]{1,100})\s*$")
_BOX_RANK = re.compile(r"^\s{1,8}rank {1,8}: (?P<rank>\d{1,6}) \(local_rank: \d{1,4}\)")
_SLOT_RANK = re.compile(r"[\[( ][Rr]ank (?P<rank>\d{1,6})[\]:,]")
_TROUBLE_WORDS = ("ERROR", "Error", "Exception", "FATAL", "Fatal", "CRITICAL", "WARN", "error:")
_ERROR = re.compile(
    r"\b(?:ERROR|FATAL|CRITICAL|Fatal)\b|[A-Za-z]Error\b|[a-z]Exception\b|(?:^|: )error: |^\[?E\d{4} "
    r"|^\[E [A-Z]\w{1,40}\.cpp"
)
_WARNS = re.compile(r"\bWARN(?:ING)?\b")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_ESCAPE = re.compile("\x1b\\[[0-9;?]{0,40}[A-Za-z]")


@dataclass(frozen=True)
class LogSource:
    """A log to read.

    Attributes:
        name: what it is called to the user.
        stream: its bytes.
        host: inventory name, "" where it is not known.
        rank: whose it is, None where it is not known or of several.
    """

    name: str
    stream: BinaryIO
    host: str = ""
    rank: int | None = None


@dataclass
class Sighting:
    """The lines of one log that one signature, or one exception, stands for.

    Attributes:
        signature: None for an exception that no signature knows.
        raised: the exception, None for a signature's line.
        ended_traceback: the line was the exception of a traceback.
        only_warned: so far its lines were warnings, or others that healthy runs print.
    """

    signature: Signature | None
    evidence: Evidence
    order: int
    at: float | None = None
    groups: dict[str, str] = field(default_factory=dict)
    raised: Raised | None = None
    ended_traceback: bool = False
    only_warned: bool = True
    count: int = 1
    last_line: int = 0

    @property
    def kind(self) -> Kind:
        """What it can be for an explanation."""
        if self.signature is None:
            return Kind.PRIMARY
        warned = self.signature.kind is Kind.PRIMARY and self.only_warned
        return Kind.CONTRIBUTING if warned else self.signature.kind

    def shown(self) -> Evidence:
        """Return its first line, with the count."""
        one = self.evidence
        return Evidence(one.source, one.line, one.text, one.host, one.rank, self.count, self.last_line)


@dataclass
class Reading:
    """What was seen in all logs, in the order of arrival.

    Attributes:
        unusual: lines that look like trouble and that nothing here knows.
        errors: how many of them are more than warnings.
    """

    sightings: list[Sighting] = field(default_factory=list)
    unusual: list[Evidence] = field(default_factory=list)
    errors: int = 0


def harmless(text: str) -> str:
    """Make a log's text harmless on a terminal, and short."""
    plain = _CONTROL.sub(_spelt, _ESCAPE.sub("", text)).strip()
    return plain if len(plain) <= SHOWN_CHARACTERS else plain[:SHOWN_CHARACTERS] + "..."


def _spelt(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


class LogReader:
    """Reads one log after the other into one Reading."""

    def __init__(self, reading: Reading) -> None:
        """Begin with the whole table."""
        self.reading = reading
        literals = {literal for signature in SIGNATURES for literal in signature.literals}
        self._scan = LogScan({*literals, START, *_BOX.values(), *_TROUBLE_WORDS})
        self._of_shape: dict[bytes, tuple[Signature, ...]] = {}

    def read(self, source: LogSource) -> None:
        """Read a log to its end."""
        _OneLog(self, source).read()

    def scan(self) -> LogScan:
        """Return what finds the lines."""
        return self._scan

    def signatures_for(self, shape: bytes) -> tuple[Signature, ...]:
        """Return the signatures of which a line of this shape holds a literal, its digits left out."""
        found = self._of_shape.get(shape)
        if found is None:
            if len(self._of_shape) > MOST_SHAPES:
                self._of_shape.clear()
            found = tuple(signature for signature, literals in _literals() if any(one in shape for one in literals))
            self._of_shape[shape] = found
        return found


@cache
def _literals() -> tuple[tuple[Signature, tuple[bytes, ...]], ...]:
    return tuple((one, tuple(shape_of(literal.encode()) for literal in one.literals)) for one in SIGNATURES)


@dataclass
class _Looks:
    """How often a shape came in one log, and what its lines were."""

    count: int = 0
    matched: list[Sighting] = field(default_factory=list)


class _OneLog:
    """What is remembered while one log is read."""

    def __init__(self, reader: LogReader, source: LogSource) -> None:
        self._reader, self._source = reader, source
        self._reading = reader.reading
        self._seen: dict[str, Sighting] = {}
        self._looks: dict[bytes, _Looks] = {}
        self._tracebacks = TracebackReader()
        self._last_raised: dict[object, Sighting] = {}
        self._raised = self._unusual = 0
        self._box_host: str = ""
        self._box_rank: int | None = None

    def read(self) -> None:
        scan = self._reader.scan()
        scan.follow = 0
        for number, raw in scan.candidates(self._source.stream):
            self._line(number, raw)
            if self._tracebacks.is_open(number):
                scan.follow = max(scan.follow, 1)

    def _line(self, number: int, raw: bytes) -> None:
        shape = shape_of(raw)
        if len(self._looks) > MOST_SHAPES:
            self._looks.clear()
        looks = self._looks.setdefault(shape, _Looks())
        looks.count += 1
        if looks.count > MOST_LOOKS and not self._tracebacks.is_open(number):
            for one in looks.matched:
                one.count, one.last_line = one.count + 1, number
            return
        signatures = self._reader.signatures_for(shape)
        text = _ESCAPE.sub("", raw.decode(errors="replace"))
        label, rest = label_of(text)
        self._box(rest)
        speaker = (label.rank, label.local_rank, label.host)
        ended = self._tracebacks.add(speaker, number, rest)
        if self._tracebacks.is_code(speaker, rest):
            return
        innocent = is_innocent(text)
        asked = [one for one in signatures if not innocent or one.warned or one.kind is not Kind.PRIMARY]
        matched = [found for one in asked if (found := self._matched(one, number, text, rest, label))]
        for sighting in matched:
            sighting.only_warned = sighting.only_warned and innocent
        if ended is not None:
            self._exception(ended, matched, speaker, number, rest, label)
        elif not matched and not innocent:
            self._note_unusual(number, rest, label)
        looks.matched = matched or looks.matched

    def _box(self, rest: str) -> None:
        """Remember whose box of torchrun's report this is."""
        host, rank = _BOX_HOST.match(rest), _BOX_RANK.match(rest)
        if host:
            self._box_host, self._box_rank = host["host"], None
        if rank:
            self._box_rank = int(rank["rank"])

    def _matched(self, signature: Signature, number: int, text: str, rest: str, label: Label) -> Sighting | None:
        found = _compiled(signature.pattern).search(rest) or _compiled(signature.pattern).search(text)
        if found is None:
            return None
        groups = {name.rstrip("0123456789"): value for name, value in found.groupdict().items() if value}
        seen = self._seen.get(signature.id)
        if seen is not None:
            seen.count, seen.last_line = seen.count + 1, number
            for name, value in groups.items():
                seen.groups.setdefault(name, value)
            return seen
        evidence = self._evidence(number, rest, label)
        seen = Sighting(signature, evidence, len(self._reading.sightings), label.at, groups, last_line=number)
        self._seen[signature.id] = seen
        self._reading.sightings.append(seen)
        return seen

    def _exception(  # noqa: PLR0917 - private, called once
        self, ended: tuple[Raised, bool], matched: list[Sighting], speaker: object, number: int, rest: str, label: Label
    ) -> None:
        """Note down an exception; one that came of another takes its place, and one that a signature knows is that."""
        raised, follows = ended
        before = self._last_raised.pop(speaker, None)
        if follows and before is not None:
            self._reading.sightings.remove(before)
        for sighting in matched:
            sighting.ended_traceback = True
            sighting.raised = sighting.raised or raised
        if matched or self._raised >= MOST_RAISED:
            return
        self._raised += 1
        evidence = self._evidence(number, rest, label)
        order = len(self._reading.sightings)
        sighting = Sighting(
            None, evidence, order, label.at, raised=raised, ended_traceback=True, only_warned=False, last_line=number
        )
        self._last_raised[speaker] = sighting
        self._reading.sightings.append(sighting)

    def _note_unusual(self, number: int, rest: str, label: Label) -> None:
        is_error = _ERROR.search(rest) is not None
        if not is_error and not _WARNS.search(rest):
            return
        self._reading.errors += is_error
        if self._unusual < MOST_UNUSUAL:
            self._unusual += 1
            self._reading.unusual.append(self._evidence(number, rest, label))

    def _evidence(self, number: int, rest: str, label: Label) -> Evidence:
        in_box = rest.startswith("  ") and self._box_rank is not None
        slot = _SLOT_RANK.search(rest[:200])
        said = (label.rank, self._box_rank if in_box else None, int(slot["rank"]) if slot else None, self._source.rank)
        rank = next((one for one in said if one is not None), None)
        host = label.host or (self._box_host if in_box else "") or self._source.host
        return Evidence(self._source.name, number, harmless(rest), host, rank, 1, number)


def is_innocent(text: str) -> bool:
    """Tell whether a line is known from healthy runs."""
    return any(words in text for words in INNOCENT)


def read_logs(sources: Iterable[LogSource]) -> Reading:
    """Read all logs, one after the other."""
    reading = Reading()
    reader = LogReader(reading)
    for source in sources:
        reader.read(source)
    return reading

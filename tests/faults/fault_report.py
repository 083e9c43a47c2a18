"""Results of many trials: a file that a rerun goes on with, and the table of docs/faults.md."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fault_rows import FAULTS, Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

BEGIN, END = "<!-- the table: scripts/faults --table -->", "<!-- end of the table -->"
OTHERS = ("by hand", "torchrunx", "DeepSpeed")


class Results:
    """One JSON document a line, each under a key; the last of a key stands. A line that was cut short is none."""

    def __init__(self, path: Path) -> None:
        """Read what is there."""
        self._path = path
        self.by_key: dict[str, dict[str, Any]] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                body = json.loads(line)
            except ValueError:
                continue
            self.by_key[body["key"]] = body

    def add(self, key: str, body: Mapping[str, Any]) -> None:
        """Write one down."""
        self.by_key[key] = {"key": key, **body}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        broken = self._path.exists() and not self._path.read_bytes().endswith(b"\n") and self._path.stat().st_size
        with self._path.open("a") as stream:
            stream.write(("\n" if broken else "") + json.dumps(self.by_key[key]) + "\n")

    def missing(self, keys: Iterable[str], *, failed_too: bool = False) -> list[str]:
        """Return those of `keys` that have no result, or, with `failed_too`, none that is well."""
        return [key for key in keys if key not in self.by_key or (failed_too and self.by_key[key].get("wrong"))]


def as_line(body: Mapping[str, Any]) -> str:
    """Return one result for a terminal."""
    verdict = "; ".join(body["wrong"]) or "ok"
    times = f"others {_seconds(body['others_s'])}, hit {_seconds(body['hit_s'])}, end {_seconds(body['controller_s'])}"
    return f"{body['row']} ({body['details']}): {times}; cause: {body['cause'] or '-'}; {body['wall_s']} s: {verdict}"


def summary(bodies: Iterable[Mapping[str, Any]]) -> str:
    """Return how many were well, and the sums that have to be 0."""
    all_of = list(bodies)
    bad = [body for body in all_of if body["wrong"]]
    left, lost = sum(len(body["left"]) for body in all_of), sum(body["lost"] + body["doubled"] for body in all_of)
    written = sum(body["written"] for body in all_of)
    return (
        f"{len(all_of) - len(bad)} of {len(all_of)} as they have to be; {left} processes left; "
        f"{lost} of {written} lines lost or doubled; {sum(body['wall_s'] for body in all_of) / 60:.0f} minutes"
    )


def write_table(docs: Path, results: Results, others: Mapping[str, Results]) -> None:
    """Put the table between its marks in docs/faults.md."""
    text = docs.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    docs.write_text(f"{before}{BEGIN}\n\n{table(results, others)}\n{END}{after}")


def table(results: Results, others: Mapping[str, Results]) -> str:
    """Return the table: one line a fault, the slowest of its moments, and what others take."""
    head = ["what goes wrong", "when", "the run", "others clean", "hit host clean", "left", "lines lost", *OTHERS]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for fault in FAULTS:
        rows = [f"{fault.name}@{moment}" for moment in fault.moments]
        done = [body for body in results.by_key.values() if body["row"] in rows]
        if done:
            cells = _cells(fault, done) + [_other(others.get(name), fault.name) for name in OTHERS]
            lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _cells(fault: Fault, done: list[dict[str, Any]]) -> list[str]:
    bad = [body for body in done if body["wrong"]]
    when = f"{len(done)} moments" if len(done) > 1 else done[0]["row"].split("@")[1]
    ends = "goes on to its end" if fault.survives else "is stopped" if not fault.cause else "ends"
    if fault.cause:
        named = next((body["cause"] for body in done if not body["wrong"]), done[0]["cause"])
        ends += f": `{named[:90]}`"
    if bad:
        ends += f" (**{len(bad)} not as it has to be**: {', '.join(body['row'].split('@')[1] for body in bad)})"
    lost = sum(body["lost"] + body["doubled"] for body in done)
    return [
        fault.says,
        when,
        ends,
        "-" if fault.survives else _slowest(done, lambda body: body["others_s"]),
        "-" if fault.survives else _slowest(done, lambda body: body["hit_s"]),
        str(sum(len(body["left"]) for body in done)),
        f"{lost} of {sum(body['written'] for body in done)}",
    ]


def _slowest(done: list[dict[str, Any]], of: Callable[[dict[str, Any]], float | None]) -> str:
    values = [of(body) for body in done]
    return "never" if None in values else _seconds(max(value for value in values if value is not None))


def _other(results: Results | None, fault: str) -> str:
    body = results.by_key.get(fault) if results else None
    if body is None:
        return ""
    if body["clean_s"] is None:
        return f"not within {body['cap_s']:.0f} s: {len(body['left'])} left"
    return _seconds(body["clean_s"])


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"

"""Whatever a file holds, an inventory or an InventoryError comes of it, and soon."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import InventoryError
from orchestrator.inventory_file import load_inventory, yaml_document
from orchestrator.inventory_file.schema import HostEntry, InventoryFile

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS = [path.read_text() for path in sorted((Path(__file__).parents[2] / "inventory").glob("*.yaml"))]
PIECES = [
    *("no", "22:22", "0123", "~", "- ", ": ", "[", "]", "{", "}", "&a ", "*a", "<<: ", "!!int ", "!x ", "|\n", ">\n"),
    *(
        '"',
        "'",
        '"\\ud800"',
        '"\\UFFFFFFFF"',
        "\t",
        "\n",
        "---\n",
        "...\n",
        "%YAML 9.9\n",
        "@",
        "`",
        "#",
        "? ",
        "\u2028",
    ),
    *("a slots=4\n", "[1-99999]", "\ufeff", "9" * 5000, "1:" * 40 + "1", "0x_", "0b", "1e999", ".inf", "=", "user@"),
]
KEYS = [
    *InventoryFile.model_fields,
    *HostEntry.model_fields,
    "nmae",
    "<<",
    "",
    "a count of GPUs",
    "[key]",
    "RANK",
    "\x1b",
]
SCALARS = [
    *(
        "a",
        "10.0.0.1",
        "gpu[1-3]",
        "~/x",
        "no",
        "ssh",
        "local",
        "bob@a",
        "[::1]:22",
        "",
        "\x00",
        "\x1b@b",
        "g[\x1b]",
        "a\nb",
        "$HOME/x",
    ),
    *(0, 1, 2, -1, 29500, 65536, 10**30, 0.5, True, None),
]
# Trees of the schema's keys, each mostly in a wrong place.
TREES = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
HOSTS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(SCALARS) | TREES, max_size=4) | TREES


@pytest.fixture(scope="class", params=["CSafeLoader", "SafeLoader"])
def loader(request: pytest.FixtureRequest) -> Iterator[str]:
    """PyYAML with and without libyaml."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml_document, "_LOADER", getattr(yaml, request.param))
        yield request.param


def check(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    problems: tuple[str, ...] = ()
    try:
        names = [host.name for host in load_inventory(file).hosts]
    except InventoryError as error:
        problems, names = error.problems, []
    assert bool(problems) != bool(names)
    assert len(set(names)) == len(names)
    assert all(problem.startswith(f"{file}:") and problem.isprintable() for problem in problems)


@pytest.mark.usefixtures("loader")
class TestAnyInput:
    quick = settings(
        max_examples=200, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
    )

    @quick
    @given(data=st.binary(max_size=200))
    def test_random_bytes(self, tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
        check(tmp_path_factory.getbasetemp() / "bytes", data)

    @quick
    @given(data=st.text(alphabet=st.sampled_from("hosts:-[]{}&*!|>'\"%@#,?\n \t01a"), max_size=60))
    def test_random_text_of_yamls_own_characters(self, tmp_path_factory: pytest.TempPathFactory, data: str) -> None:
        check(tmp_path_factory.getbasetemp() / "text", data.encode())

    @quick
    @given(top=st.dictionaries(st.sampled_from(KEYS), TREES, max_size=3), hosts=st.lists(HOSTS, max_size=4))
    def test_the_schemas_keys_with_any_values(
        self, tmp_path_factory: pytest.TempPathFactory, top: dict[str, object], hosts: list[object]
    ) -> None:
        text = yaml.safe_dump({**top, "hosts": hosts})
        check(tmp_path_factory.getbasetemp() / "tree", text.encode())

    @quick
    @given(
        text=st.sampled_from(SEEDS),
        cuts=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(PIECES)), min_size=1, max_size=4),
    )
    def test_mutated_inventories(
        self, tmp_path_factory: pytest.TempPathFactory, text: str, cuts: list[tuple[float, int, str]]
    ) -> None:
        for where, length, piece in cuts:
            start = int(where * len(text))
            text = text[:start] + piece + text[start + length :]
        check(tmp_path_factory.getbasetemp() / "mutated", text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "hosts: " + "[" * 12 + "a" + "]" * 12,
        "a: &a [x, x]\n" + "".join(f"k{n}: &k{n} [*a, *a, *a]\n" for n in range(2000)),
        "hosts: &h [*h]",
        "hosts:\n- 1" + ":1" * 100_000,
        "hosts:\n" + "- {a: 1, b: 2}\n" * 15_000,
        "".join(f"k{number}: 1\n" for number in range(15_000)),
        "hosts:\n" + "- gpu[1-1024]\n" * 500,
        "hosts:\n- " + "[1-2]" * 100_000,
        "hosts: ['" + "a" * 200_000 + "']",
    ],
    ids=["deep", "rather deep", "laughs", "endless", "sexagesimal", "hosts", "keys", "ranges", "product", "long"],
)
def test_files_made_to_exhaust_are_refused_soon(tmp_path: Path, text: str) -> None:
    start = time.monotonic()
    check(tmp_path / "lab.yaml", text.encode())
    assert time.monotonic() - start < 5.0  # each takes well under 1 s on an idle machine

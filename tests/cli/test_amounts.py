from __future__ import annotations

import click
import pytest

from orchestrator.cli.amounts import seconds, size_bytes, size_text


@pytest.mark.parametrize(
    ("typed", "amount"), [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("7d", 604800), (" 2W ", 1209600), ("0s", 0)]
)
def test_times_are_read_as_people_write_them(typed: str, amount: int) -> None:
    assert seconds(typed) == amount


@pytest.mark.parametrize(
    ("typed", "amount"),
    [("20GB", 20 * 10**9), ("1.5 tb", 15 * 10**11), ("1GiB", 1 << 30), ("5M", 5000000), ("7", 7)],
)
def test_sizes_are_read_as_people_write_them(typed: str, amount: int) -> None:
    assert size_bytes(typed) == amount


@pytest.mark.parametrize("typed", ["", "7", "d", "-1d", "1e3s", "7 days", "٣d", "inf", "1d 2h", "9" * 99 + "d"])
def test_what_is_no_time_is_refused_with_an_example(typed: str) -> None:
    with pytest.raises(click.BadParameter, match="write it like 7d"):
        seconds(typed)


def test_a_size_without_a_unit_is_bytes_and_other_words_are_refused() -> None:
    with pytest.raises(click.BadParameter, match="write it like 20GB"):
        size_bytes("20 giga")


def test_sizes_are_shown_short() -> None:
    assert [size_text(size) for size in (0, 999, 1000, 12_345_678, 2e9, 3e15)] == [
        "0 B",
        "999 B",
        "1 kB",
        "12.3 MB",
        "2.0 GB",
        "3000.0 TB",
    ]

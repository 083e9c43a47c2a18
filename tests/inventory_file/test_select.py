from __future__ import annotations

import pytest

from orchestrator.errors import UsageError
from orchestrator.inventory_file import select_hosts
from orchestrator.model.host import Host, Inventory

LAB = Inventory(
    hosts=(
        *(Host(name=f"gpu{number:02d}", address=f"10.0.0.{number}", ssh=f"gpu{number:02d}") for number in range(1, 11)),
        Host(name="big", address="10.0.0.99", ssh="bastion"),
    ),
    source="lab.yaml",
)


def names(hosts: list[str], exclude: list[str]) -> list[str]:
    return [host.name for host in select_hosts(LAB, hosts, exclude).hosts]


def test_without_options_every_host_is_meant() -> None:
    assert select_hosts(LAB, [], []) == LAB


@pytest.mark.parametrize(
    ("hosts", "exclude", "expected"),
    [
        (["gpu03,gpu01"], [], ["gpu01", "gpu03"]),
        (["big", "gpu02"], [], ["gpu02", "big"]),
        (["gpu[02-03,05], big"], [], ["gpu02", "gpu03", "gpu05", "big"]),
        (["gpu*"], ["gpu[03-10]"], ["gpu01", "gpu02"]),
        (["gpu0?"], ["gpu0[1-8]"], ["gpu09"]),
        ([], ["gpu*"], ["big"]),
        (["10.0.0.4"], [], ["gpu04"]),
        (["bastion"], [], ["big"]),
    ],
)
def test_names_lists_ranges_and_wildcards_choose_hosts_in_inventory_order(
    hosts: list[str], exclude: list[str], expected: list[str]
) -> None:
    assert names(hosts, exclude) == expected


@pytest.mark.parametrize(
    ("hosts", "exclude", "message", "try_this"),
    [
        (["gpo01"], [], "--hosts: no host is called 'gpo01'", "did you mean gpu01?"),
        ([], ["gpu11"], "--exclude: no host is called 'gpu11'", "did you mean gpu10?"),
        (["cpu*"], [], "--hosts: no host is called 'cpu*'", "the hosts of lab.yaml: gpu01"),
        (
            ["x"],
            [],
            "--hosts: no host is called 'x'",
            "the hosts of lab.yaml: gpu01, gpu02, gpu03",
        ),
        ([""], [], "--hosts '' names no host", "the hosts of lab.yaml: gpu01"),
        (["big"], ["big"], "--exclude leaves no host", "the hosts of lab.yaml: gpu01"),
        (["gpu[1-"], [], "--hosts gpu[1-: a bracket without its partner, expected a range such as gpu[01-08]", ""),
        (["gpu[1-9999999]"], [], "--hosts gpu[1-9999999]: a range of more than 1024 hosts, expected fewer", ""),
    ],
)
def test_what_fits_no_host_is_a_usage_error(hosts: list[str], exclude: list[str], message: str, try_this: str) -> None:
    with pytest.raises(UsageError) as caught:
        select_hosts(LAB, hosts, exclude)
    assert caught.value.message == message
    assert caught.value.try_this.startswith(try_this)

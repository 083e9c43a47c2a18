"""What an inventory means: defaults, ranges, interpreters, devices, variables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from orchestrator.inventory_file import load_inventory
from orchestrator.model.host import Host

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.model.host import Inventory


def load(tmp_path: Path, text: str, name: str = "lab.yaml") -> Inventory:
    file = tmp_path / name
    file.write_text(text)
    return load_inventory(file)


def only_host(tmp_path: Path, text: str) -> Host:
    [host] = load(tmp_path, text).hosts
    return host


def test_an_address_is_name_address_and_what_ssh_dials(tmp_path: Path) -> None:
    inventory = load(tmp_path, "rendezvous: {port: 29501}\nhosts:\n- {address: 192.168.20.43, gpus: 1}\n")
    assert inventory.hosts == (
        Host(name="192.168.20.43", address="192.168.20.43", ssh="192.168.20.43", gpus=1, processes=1),
    )
    assert inventory.rendezvous_port == 29501
    assert inventory.source == str(tmp_path / "lab.yaml")


def test_every_key_of_a_host_arrives(tmp_path: Path) -> None:
    (tmp_path / "id").touch()
    text = """\
hosts:
  - name: big
    address: 10.0.0.1
    ssh: big.example.org
    user: bob
    port: 2222
    key: id
    python: /opt/my python/bin/python3
    workdir: ~/it's here
    env: {A: "x\\ny"}
    gpus: [3, 1]
"""
    host = only_host(tmp_path, text)
    assert host == Host(
        name="big",
        address="10.0.0.1",
        ssh="big.example.org",
        user="bob",
        port=2222,
        key=str(tmp_path / "id"),
        python="/opt/my python/bin/python3",
        workdir="~/it's here",
        env={"A": "x\ny"},
        gpus=(3, 1),
    )
    assert host.nproc == 2


def test_a_bare_string_is_an_ssh_alias_whose_address_only_ssh_knows(tmp_path: Path) -> None:
    assert only_host(tmp_path, "hosts: [gpu01]") == Host(name="gpu01", address="", ssh="gpu01", gpus=1)
    assert only_host(tmp_path, "hosts: [bob@gpu01]") == Host(name="gpu01", address="", ssh="gpu01", user="bob", gpus=1)
    assert only_host(tmp_path, "hosts: [10.0.0.5]") == Host(name="10.0.0.5", address="10.0.0.5", ssh="10.0.0.5", gpus=1)


@pytest.mark.parametrize(
    ("written", "name"), [("fd00::43", "fd00--43"), ('"fe80::1%eth0"', "fe80--1-eth0"), ("'2001:db8::'", "2001-db8")]
)
def test_ipv6_addresses_get_names_without_colons(tmp_path: Path, written: str, name: str) -> None:
    host = only_host(tmp_path, f"hosts:\n- address: {written}\n")
    assert (host.name, host.address, host.ssh) == (name, written.strip("\"'"), written.strip("\"'"))


def test_ranges_run_in_step_and_keep_their_zeros(tmp_path: Path) -> None:
    text = "hosts:\n- name: gpu[08-10]\n  address: 10.0.0.[1,5-6]\n- node[1,3]\n"
    assert [(host.name, host.address) for host in load(tmp_path, text).hosts] == [
        *(("gpu08", "10.0.0.1"), ("gpu09", "10.0.0.5"), ("gpu10", "10.0.0.6"), ("node1", ""), ("node3", "")),
    ]


def test_a_host_overrides_the_defaults(tmp_path: Path) -> None:
    text = """\
defaults: {user: bob, port: 2222, python: python3.11, workdir: /data, gpus: 4}
hosts:
  - a
  - {name: b, user: eve, port: 22, venv: ~/v/, workdir: ~/w, gpus: 0}
"""
    first, second = load(tmp_path, text).hosts
    assert (first.user, first.port, first.python, first.workdir, first.gpus) == ("bob", 2222, "python3.11", "/data", 4)
    assert (second.user, second.port, second.python, second.workdir) == ("eve", 22, "~/v/bin/python", "~/w")
    assert (second.gpus, second.processes) == (0, 1)


@pytest.mark.parametrize(
    ("defaults", "own", "gpus", "processes"),
    [
        ("", "", 1, 1),
        ("", "processes: 3", 0, 3),
        ("", "gpus: 0", 0, 1),
        ("", "gpus: 0, processes: 2", 0, 2),
        ("gpus: 4", "processes: 2", 0, 2),
        ("processes: 2", "", 0, 2),
        ("processes: 2", "gpus: 4", 4, 1),
        ("processes: 2", "gpus: 0", 0, 2),
        ("gpus: [0, 1]", "", (0, 1), 1),
    ],
)
def test_gpus_are_one_unless_said_otherwise_and_processes_mean_none(
    tmp_path: Path, defaults: str, own: str, gpus: int | tuple[int, ...], processes: int
) -> None:
    host = only_host(tmp_path, f"defaults: {{{defaults}}}\nhosts:\n- {{name: a, {own}}}")
    assert (host.gpus, host.processes) == (gpus, processes)


@pytest.mark.parametrize(
    ("written", "python"),
    [
        ("venv: /opt/v", "/opt/v/bin/python"),
        ("conda: ~/miniconda3/envs/ddp", "~/miniconda3/envs/ddp/bin/python"),
        ("conda: ddp", "conda:ddp"),
        ("gpus: 1", "python3"),
    ],
)
def test_environments_become_interpreters(tmp_path: Path, written: str, python: str) -> None:
    assert only_host(tmp_path, f"hosts:\n- {{name: a, {written}}}").python == python
    assert only_host(tmp_path, f"defaults: {{{written}}}\nhosts: [a]").python == python


def test_the_nearest_variable_wins_and_numbers_stay_as_written(tmp_path: Path) -> None:
    text = """\
env: {A: top, B: top, C: top, NCCL_IB_DISABLE: 1, FRACTION: 0.50, NEGATIVE: -1, EXPONENT: 1e5, WORD: "no"}
defaults:
  env: {B: defaults, C: defaults}
hosts:
  - name: a
    env: {C: host}
"""
    assert only_host(tmp_path, text).env == {
        "A": "top",
        "B": "defaults",
        "C": "host",
        "NCCL_IB_DISABLE": "1",
        "FRACTION": "0.50",
        "NEGATIVE": "-1",
        "EXPONENT": "1e5",
        "WORD": "no",
    }


def test_local_hosts_share_an_address_and_run_this_interpreter(tmp_path: Path) -> None:
    text = "defaults: {connection: local, user: bob}\nhosts: [{name: a}, {name: b}, {name: c, python: python3}]"
    first, second, third = load(tmp_path, text).hosts
    assert (first.connection, first.address, first.user, first.port, first.key) == (
        "local",
        "127.0.0.1",
        None,
        None,
        None,
    )
    assert second.address == first.address
    assert (first.python, third.python) == (sys.executable, "python3")


def test_a_local_host_with_an_address_may_stand_beside_others(tmp_path: Path) -> None:
    text = "hosts: [{name: here, connection: local, address: 10.0.0.1}, gpu02]"
    assert [host.address for host in load(tmp_path, text).hosts] == ["10.0.0.1", ""]


def test_one_gateway_with_several_ports_is_several_hosts(tmp_path: Path) -> None:
    text = "hosts: [{name: a, ssh: gate, port: 1}, {name: b, ssh: gate, port: 2}]"
    assert [host.port for host in load(tmp_path, text).hosts] == [1, 2]


def test_keys_whose_lines_are_all_commented_out_are_empty(tmp_path: Path) -> None:
    assert len(load(tmp_path, "defaults:\n  # user: bob\nenv:\nrendezvous:\nhosts: [a]\n").hosts) == 1


def test_a_key_below_home_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "id").touch()
    assert only_host(tmp_path, "hosts: [{name: a, key: ~/id}]").key == str(tmp_path / "id")


def test_variables_are_not_in_a_hosts_repr(tmp_path: Path) -> None:
    assert "hunter2" not in repr(load(tmp_path, "env: {TOKEN: hunter2}\nhosts: [a]"))


def test_a_thousand_hosts_load(tmp_path: Path) -> None:
    assert len(load(tmp_path, "hosts: ['gpu[0001-1024]']").hosts) == 1024

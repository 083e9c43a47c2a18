"""NCCL's own lines about what it uses, against what the replay of its rules says."""

from __future__ import annotations

import re

import pytest

from orchestrator.model.facts import Interface
from orchestrator.model.network_choice import nccl_choice, nccl_names


def interface(name: str, *networks: str, running: bool = True) -> Interface:
    return Interface(name, "", up=True, running=running, mtu=1500, speed_mbit=None, networks=networks)


LO = interface("lo", "127.0.0.1/8", "::1/128")
DOCKER = interface("docker0", "172.17.0.1/16", "fe80::42:1/64")
VIRBR = interface("virbr0", "192.168.122.1/24")
# What NCCL printed (public threads), the interfaces of such a host in the kernel's order, and NCCL_SOCKET_IFNAME.
LINES = (
    (
        "NET/Socket : Using [0]bond0:10.0.0.1<0> [1]br-0123456789ab:172.19.0.1<0> [2]veth012345:fe80::1%veth012345<0>",
        (LO, interface("bond0", "10.0.0.1/16"), DOCKER, interface("br-0123456789ab", "172.19.0.1/16"),
         interface("veth012345", "fe80::1/64"), VIRBR),
        "",
    ),
    (
        "NET/Socket : Using [0]eno1:10.0.0.1<0> [1]veth0123456:fe80::1%veth0123456<0>",
        (LO, interface("veth0123456", "fe80::1/64"), interface("eno1", "10.0.0.1/24", "fe80::9/64"), DOCKER),
        "",
    ),
    (
        "NCCL INFO NET/Socket : Using [0]enp37s0f0:192.168.5.1<0>",
        (LO, interface("enp37s0f0", "192.168.5.1/20"), interface("enp37s0f1", "192.168.5.2/20")),
        "=enp37s0f0",
    ),
    ("Bootstrap : Using lo:127.0.0.1<0>", (interface("lo", "127.0.0.1/8", "10.8.0.1/32"), interface("eth0")), ""),
    (
        "NET/Socket : Using [0]ib0:10.1.0.1<0> [1]ib1:10.1.0.2<0>",
        (LO, interface("eth0", "10.0.0.1/24"), interface("ib0", "10.1.0.1/16"), interface("ib1", "10.1.0.2/16")),
        "",
    ),
    ("Bootstrap : Using docker0:172.17.0.1<0>", (LO, interface("eth0", running=False), DOCKER, VIRBR), ""),
    (
        "NET/Socket : Using [0]eth0:10.0.0.1<0> [1]tailscale0:100.70.0.1<0>",
        (LO, interface("eth0", "10.0.0.1/24"), interface("wlan0", "10.0.9.1/24", running=False),
         interface("tailscale0", "100.70.0.1/32")),
        "^docker,lo",
    ),
)  # fmt: skip


@pytest.mark.parametrize(("line", "interfaces", "setting"), LINES, ids=[line for line, _, _ in LINES])
def test_the_replay_gives_what_nccl_said(line: str, interfaces: tuple[Interface, ...], setting: str) -> None:
    said = re.findall(r"(?:\[\d+\]|Using )([\w-]+):([0-9a-f.:]+)(?:%\S+)?<0>", line)
    chosen = nccl_choice(interfaces, setting)
    assert said
    assert [(name, address) for name, address in chosen][: len(said)] == said
    assert len(chosen) == len(said) or line.startswith("Bootstrap")  # which names the first alone


def test_a_seventeenth_interface_is_not_used() -> None:
    many = [interface(f"eth{number}", f"10.{number}.0.1/24") for number in range(20)]
    assert len(nccl_choice(many)) == 16


def test_a_family_leaves_the_others_out() -> None:
    both = (interface("eth0", "10.0.0.1/24", "fd00::1/64"),)
    assert nccl_choice(both, family="AF_INET6") == [("eth0", "fd00::1")]


@pytest.mark.parametrize(
    ("setting", "taken"),
    [("eth", ["eth0", "eth1"]), ("=eth0", ["eth0"]), ("^eth0", ["eth1", "ib0"]), ("^=eth", ["eth0", "eth1", "ib0"]),
     ("eth1,ib", ["eth1", "ib0"]), ("=eth0:7", ["eth0"])],
)  # fmt: skip
def test_a_setting_is_read_as_nccl_reads_it(setting: str, taken: list[str]) -> None:
    assert [name for name in ("eth0", "eth1", "ib0") if nccl_names(setting, name)] == taken

"""What is said about each slip: where it is, what stands there, what was expected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from orchestrator.errors import InventoryError
from orchestrator.inventory_file import load_inventory, yaml_document

if TYPE_CHECKING:
    from pathlib import Path

GPUS = "expected a count (gpus: 2) or a list of GPU indices (gpus: [0, 1])"
PORT = "expected a port number from 1 to 65535"
KEYS = "expected an inventory with the keys hosts, defaults, env and rendezvous"
HOST_KEYS = "connection, user, port, key, python, venv, conda, workdir, env, gpus, processes, name, address, ssh"
SHARED = "put what hosts share under defaults:"


def problems(tmp_path: Path, text: str | bytes) -> list[str]:
    """What is said about an inventory, each without the file's name."""
    file = tmp_path / "lab.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InventoryError) as caught:
        load_inventory(file)
    assert all(problem.startswith(f"{file}:") for problem in caught.value.problems)
    return [problem.removeprefix(f"{file}:") for problem in caught.value.problems]


def host(*lines: str) -> str:
    """An inventory of one host: `name: a` in line 2, what is given from line 3, column 5."""
    return "\n".join(["hosts:", "  - name: a", *(f"    {line}" for line in lines), ""])


KEY_CASES = [
    (host("prot: 22"), '3:5: unknown key "prot", did you mean "port"?'),
    (host("Port: 22"), '3:5: unknown key "Port", did you mean "port"?'),
    (host("hostname: b"), '3:5: unknown key "hostname", did you mean "address"?'),
    (host("colour: red"), f'3:5: unknown key "colour", expected one of: {HOST_KEYS}'),
    ("nodes: [a]\nhosts: [a]", '1:1: unknown key "nodes", did you mean "hosts"?'),
    ("defaults:\n  gpu: 1\nhosts: [a]", '2:3: unknown key "gpu", did you mean "gpus"?'),
    ("rendezvous:\n  prt: 1\nhosts: [a]", '2:3: unknown key "prt", did you mean "port"?'),
    (host("gpus: 1", "gpus: 2"), '4:5: the key "gpus" stands twice, first in line 3'),
    ("hosts: [a]\nhosts: [b]", '2:1: the key "hosts" stands twice, first in line 1'),
    ("env: {A: b, A: c}\nhosts: [a]", '1:13: the key "A" stands twice, first in line 1'),
    (host("no: 1"), '3:5: YAML reads the key no as false; write "no" in quotes'),
    (host("? [b]", ": 1"), "3:7: a list or mapping as a key, expected a word"),
    (host("<<: {gpus: 1}"), f"3:5: the merge key <<; {SHARED}"),
    ("hosts: [{: 1, name: a}]", "1:10: nothing stands before the colon, expected a key"),
]

YAML_CASES = [
    ("hosts:\n  - name: no", '2:11: name: YAML reads no as false; write "no" in quotes'),
    ("hosts:\n  - name: On", '2:11: name: YAML reads On as true; write "On" in quotes'),
    ("hosts:\n  - name: ~", '2:11: name: YAML reads ~ as nothing; write "~" in quotes'),
    ("hosts:\n  - name:", "2:10: name: nothing stands here, expected a name such as gpu01"),
    ("hosts:\n  - name: 43", '2:11: name: YAML reads 43 as a number; write "43" in quotes'),
    ("hosts:\n  - name: 0123", '2:11: name: YAML reads 0123 as the number 83; write "0123" in quotes'),
    ("hosts:\n  - name: 1_0", '2:11: name: YAML reads 1_0 as the number 10; write "1_0" in quotes'),
    ("hosts:\n  - name: 22:22", '2:11: name: YAML reads 22:22 as the number 1342; write "22:22" in quotes'),
    ("hosts:\n  - name: 1.5", '2:11: name: YAML reads 1.5 as a number; write "1.5" in quotes'),
    ("hosts:\n  - name: 2026-12-01", '2:11: name: YAML reads 2026-12-01 as a date; write "2026-12-01" in quotes'),
    ("hosts:\n  - no", '2:5: host: YAML reads no as false; write "no" in quotes'),
    (host("port: 22:22"), f"3:11: port: YAML reads 22:22 as the number 1342, {PORT}"),
    (host("port: 022"), f"3:11: port: YAML reads 022 as the number 18, {PORT}"),
    (host("gpus: yes"), f"3:11: gpus: YAML reads yes as true, {GPUS}"),
    (host("gpus: 1.0"), f"3:11: gpus: YAML reads 1.0 as a number, {GPUS}"),
    (host('gpus: "2"'), f'3:11: gpus: "2" in quotes is text, {GPUS}'),
    (host("gpus: !count 2"), '3:11: the YAML tag "!count" is not read here; leave it out'),
    (host("gpus: !!int"), '3:11: the YAML tag "!!int" is not read here; leave it out'),
    (host("user: &u bob", "workdir: *u"), f'4:14: the YAML alias "*u" is not read here; {SHARED}'),
    ("env: &a\n  A: *a\nhosts: [a]", f'2:6: the YAML alias "*a" is not read here; {SHARED}'),
    ("hosts: [a]\n---\nhosts: [b]", "2:1: a second document (---), expected one inventory a file"),
]

SYNTAX_CASES = [
    ("hosts:\n\t- a", "2:1: a tab in the indentation, expected spaces"),
    ("hosts:\n  - name: @a", '2:11: "@" cannot begin a value, expected quotes around it: "@..."'),
    (
        "hosts:\n  - name: a: b",
        '2:12: a ": " too many, or a wrong indentation; put a value that holds ": " in quotes',
    ),
    ("hosts: [gpu[01-02]]", '1:12: a list in [ ] goes wrong here; put names that hold "[" in quotes'),
    ('hosts:\n  - "a\n', "3:1: the file ends inside a quoted text, expected the closing quote (opened in line 2)"),
    (
        'hosts:\n  - name: "a\\q"',
        "2:13: an unknown escape in a double-quoted text; use single quotes, or write \\\\ for a backslash",
    ),
]

VALUE_CASES = [
    (host("gpus: two"), f"3:11: gpus: two, {GPUS}"),
    (host("gpus: -1"), f"3:11: gpus: -1, {GPUS}"),
    (host("gpus: [0, -1]"), f"3:15: gpus: -1, {GPUS}"),
    (host("gpus: [0, two]"), f"3:15: gpus: two, {GPUS}"),
    (host("gpus: [2, 3, 2]"), "3:11: gpus: the index 2 stands twice, expected each GPU once"),
    (host("gpus: []"), f"3:11: gpus: a list with nothing in it, {GPUS}"),
    (host("gpus: {count: 1}"), f"3:11: gpus: a mapping, {GPUS}"),
    (host("processes: 0"), "3:16: processes: 0, expected a count of processes from 1 to 1024"),
    (host("port: 0"), f"3:11: port: 0, {PORT}"),
    (host("port: 65536"), f"3:11: port: 65536, {PORT}"),
    (host('connection: ""'), "3:17: connection: empty text, expected ssh or local"),
    ("rendezvous: 29500\nhosts: [a]", "1:13: rendezvous: 29500, expected port: 29500 on a line below"),
    ("rendezvous: {port: -1}\nhosts: [a]", f"1:20: rendezvous.port: -1, {PORT}"),
    (host("connection: telnet"), "3:17: connection: telnet, expected ssh or local"),
    (host("user: root; reboot"), '3:11: user: "root; reboot", expected a login name (no spaces, no shell characters,'),
    (host("user: -oProxyCommand"), '3:11: user: "-oProxyCommand", expected a login name'),
    (host("user: [bob]"), "3:11: user: a list, expected a login name"),
    (host("python: python3 -u"), '3:13: python: "python3 -u", expected one program without arguments'),
    (host("python: venv/bin/python"), '3:13: python: "venv/bin/python", expected a path that begins with / or ~/'),
    (host("venv: $HOME/v"), '3:11: venv: "$HOME/v", expected ~/ in place of $HOME (variables are not filled in)'),
    (host("workdir: runs"), '3:14: workdir: "runs", expected a path that begins with / or ~/ (the login user\'s home)'),
    (host('workdir: ""'), "3:14: workdir: is empty"),
    (host('workdir: "/a\\nb"'), '3:14: workdir: "/a\\nb" holds a control character, expected plain text'),
    (host("conda: my env"), '3:12: conda: "my env", expected the name or the path of a conda environment'),
    (host("key: k.pub"), '3:10: key: "k.pub" is the public half, expected the private key: "k"'),
    ("hosts:", "1:7: hosts: nothing stands here, expected a list of hosts, one a line, each after '- '"),
    ("hosts: []", "1:8: hosts: a list with nothing in it, expected a list of hosts, one a line, each after '- '"),
    ("hosts: {a: {}}", "1:8: hosts: a mapping, expected a list of hosts, one a line, each after '- '"),
    ("env: {}", "1:1: hosts: missing, expected a list of hosts, one a line, each after '- '"),
    ("hosts:\n  - [a]", "2:5: hosts: a list, expected a host"),
    ("hosts:\n  - gpus: 1", "2:5: a host that nothing names, expected address: 192.168.20.43 (or ssh: ALIAS)"),
    ("- a\n- b", f"1:1: a list, {KEYS}; put hosts: above the list"),
    ("gpu 01", f'1:1: no line of the form "key: value", {KEYS}'),
    ("", f"1:1: an empty file, {KEYS}"),
    ("# nothing\n", f"1:1: an empty file, {KEYS}"),
]

ADDRESS = "expected an IP address or a host name"
NAME_CASES = [
    ("hosts: ['a b']", f'1:9: host: "a b", {ADDRESS}'),
    ("hosts: ['-oProxyCommand=reboot']", f'1:9: host: "-oProxyCommand=reboot", {ADDRESS}'),
    ("hosts: ['a;reboot']", f'1:9: host: "a;reboot", {ADDRESS}'),
    ("hosts: ['bob;x@a']", '1:9: host: "bob;x", expected a login name'),
    ('hosts: ["a\\e[31mb"]', "1:9: host: a bracket without its partner, expected a range such as gpu[01-08]"),
    ('hosts: ["a\\x07b"]', f'1:9: host: "a\\x07b", {ADDRESS}'),
    ("hosts: [{name: ../a}]", '1:16: name: "../a", expected letters, digits, '),
    ("hosts: [{name: 'a b'}]", '1:16: name: "a b", expected letters, digits, '),
    (f"hosts: [{{name: {'a' * 129}}}]", f'1:16: name: "{"a" * 37}..." is too long, expected at most 128 characters'),
    ("hosts: ['gpu[1-2000]']", "1:9: host: a range of more than 1024 hosts, expected fewer"),
    ("hosts: ['gpu[1-99][1-99]']", "1:9: host: a range of more than 1024 hosts, expected fewer"),
    ("hosts: ['gpu[1:8]']", '1:9: host: "[1:8]" is not a range, expected numbers such as [1-8]'),
    ("hosts: ['gpu[8-1]']", "1:9: host: the range 8-1 runs backwards, expected 1-8"),
    ("hosts:\n- {address: 10.0.0.1/24}", '2:13: address: "10.0.0.1/24", expected one address without a prefix length'),
    (
        "hosts:\n- address: 10.0.0.1:22",
        '2:12: address: "10.0.0.1:22", expected "10.0.0.1" here and the port on a line of its own: "port: 22"',
    ),
    ("hosts:\n- address: 10.0.0.256", '2:12: address: "10.0.0.256" is not an IPv4 address, expected four numbers'),
    ("hosts:\n- address: 0.0.0.0", '2:12: address: "0.0.0.0" stands for every address of a machine'),
    ("hosts:\n- address: bob@a", '2:12: address: "bob@a", expected "a" here and the user on a line of'),
    ("hosts:\n- address: ssh://a", '2:12: address: "ssh://a" is a URL, expected an address such as 192.168.20.43'),
    ('hosts:\n- address: "[::1]:22"', '2:12: address: "[::1]:22", expected an IPv6 address without brackets: "::1"'),
]

ENV_CASES = [
    ("env: {A: yes}\nhosts: [a]", '1:10: env.A: YAML reads yes as true; write "yes" in quotes'),
    ("env: {A: }\nhosts: [a]", "1:10: env.A: nothing stands here, expected text"),
    ("env: {A: [1]}\nhosts: [a]", "1:10: env.A: a list, expected text"),
    ("env: {A-B: c}\nhosts: [a]", "1:7: env: \"A-B\" cannot be a variable's name, expected letters, digits and '_'"),
    ("env: {RANK: 0}\nhosts: [a]", "1:7: env: RANK cannot be set here: torchrun sets it in each process"),
    (
        "env: {MASTER_PORT: 1}\nhosts: [a]",
        "1:7: env: MASTER_PORT cannot be set here: ddp-orch sets it from rendezvous.port",
    ),
    (host("env:", "  PET_NNODES: 3"), "4:7: env: PET_NNODES cannot be set here: torchrun would take it as one of its"),
    (
        "defaults: {env: {DDP_ORCH_BACKEND: gloo}}\nhosts: [a]",
        "1:18: env: DDP_ORCH_BACKEND cannot be set here: ddp-orch",
    ),
    (host("env:", "  - A=1"), "4:7: env: a list, expected lines of the form NAME: value"),
    ('env: {A: "\\0"}\nhosts: [a]', "1:10: env.A: the value holds a NUL or half a character, expected text"),
    (
        host("gpus: [1]", "env:", "  CUDA_VISIBLE_DEVICES: 3"),
        "5:7: CUDA_VISIBLE_DEVICES beside a list of gpus, which sets it; expected one of them",
    ),
]

TOGETHER_CASES = [
    (host("python: python3", "venv: ~/v"), "4:5: venv beside python, expected one of python, venv and conda"),
    (
        host("gpus: 1", "processes: 2"),
        "4:5: processes beside gpus, expected one of them (with GPUs, each gets one process)",
    ),
    (host("ssh: bob@b", "user: eve"), '4:5: user beside ssh: "bob@b", expected the user in one place'),
    (host("connection: local", "port: 22"), "4:5: port has no meaning with connection: local, expected to be left out"),
    ("hosts:\n- connection: local", "2:3: a host that nothing names, expected name: local-0"),
    (
        "hosts:\n- {name: 'gpu[01-08]', address: '10.0.0.[21-22]'}",
        "2:3: name for 8 and address for 2 hosts, expected ranges of the same length",
    ),
    ("hosts: [a, b, a]", '1:15: the host "a" stands twice, first in line 1, expected different names'),
    ("hosts: [a, A]", '1:12: the host "A" stands twice, first in line 1, expected different names'),
    ("hosts: ['gpu[1-3]', gpu2]", '1:21: the host "gpu2" stands twice, first in line 1, expected different names'),
    (
        "hosts:\n- {name: a, address: 10.0.0.1}\n- {name: b, address: 10.0.0.1, port: 2222}",
        '3:3: the same machine as "a" in line 2, expected each once; gpus: or processes: starts several',
    ),
    (
        "hosts:\n- {name: a, ssh: x}\n- {name: b, ssh: x}",
        '3:3: the same machine as "a" in line 2, expected each once; gpus: or processes: starts several',
    ),
    (
        "hosts:\n- {name: here, connection: local}\n- gpu01",
        '2:3: the other hosts cannot reach "here" at 127.0.0.1, expected address: with its address on their network',
    ),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [*KEY_CASES, *YAML_CASES, *SYNTAX_CASES, *VALUE_CASES, *NAME_CASES, *ENV_CASES, *TOGETHER_CASES],
)
def test_a_slip_is_told_with_its_place_and_what_was_expected(tmp_path: Path, text: str, expected: str) -> None:
    found = problems(tmp_path, text)
    assert [problem[: len(expected)] for problem in found] == [expected]


@pytest.mark.parametrize("text", [text for text, _ in SYNTAX_CASES])
def test_wrong_syntax_is_told_without_libyaml_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    with_libyaml = problems(tmp_path, text)
    monkeypatch.setattr(yaml_document, "_LOADER", yaml.SafeLoader)
    [problem] = problems(tmp_path, text)
    assert problem.partition(": ")[2] == with_libyaml[0].partition(": ")[2]


def test_all_problems_come_at_once_in_the_files_order(tmp_path: Path) -> None:
    text = """\
defaults:
  prot: 22
rendezvous:
  port: 22:22
env:
  RANK: 0
hosts:
  - name: no
    address: 10.0.0.1
  - address: 10.0.0.2
    gpus: two
    color: red
  - address: 10.0.0.2
    user: a b
"""
    assert [problem.partition(": ")[0] for problem in problems(tmp_path, text)] == [
        *("2:3", "4:9", "6:3", "8:11", "11:11", "12:5", "13:5", "14:11"),
    ]


def test_one_bad_key_does_not_make_a_host_seem_nameless_or_twice(tmp_path: Path) -> None:
    text = "hosts:\n- {nmae: a}\n- {address: 10.0.0.1, port: x}\n- {name: b, address: 10.0.0.1}"
    assert problems(tmp_path, text) == ['2:4: unknown key "nmae", did you mean "name"?', f"3:29: port: x, {PORT}"]


def test_a_bad_key_in_defaults_is_told_once_for_all_hosts(tmp_path: Path) -> None:
    text = "defaults:\n  key: nowhere\nhosts: [a, b, c]"
    expected = f'2:8: key: no such file: "{tmp_path}/nowhere", expected a private key on this machine'
    assert problems(tmp_path, text) == [expected]


def test_a_key_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    expected = f'3:10: key: a folder: "{tmp_path}", expected a private key on this machine'
    assert problems(tmp_path, host("key: .")) == [expected]


def test_keys_of_local_hosts_are_not_looked_for(tmp_path: Path) -> None:
    text = "defaults: {key: nowhere, connection: local}\nhosts: [{name: a}, {name: a}]"
    assert [problem[:20] for problem in problems(tmp_path, text)] == ['2:20: the host "a" s']


def test_fifty_problems_are_told_and_the_rest_counted(tmp_path: Path) -> None:
    found = problems(tmp_path, "hosts: [a]\n" + "".join(f"k{number}: 1\n" for number in range(60)))
    assert len(found) == 51
    assert found[-1] == " and 10 more problems"


def test_a_secret_in_env_is_never_repeated(tmp_path: Path) -> None:
    text = "env:\n  PIN: 0042\n  DAY: 2026-12-01\n  LONG: 12345678901234567890\nhosts: [a]\n"
    found = problems(tmp_path, text)
    assert found == [
        f"{place}: YAML reads this value as a number or date, not as written; write it in quotes"
        for place in ("2:8: env.PIN", "3:8: env.DAY", "4:9: env.LONG")
    ]
    assert problems(tmp_path, "env: TOKEN=abc\nhosts: [a]") == [
        "1:6: env: a single value, expected lines of the form NAME: value"
    ]


def test_control_characters_are_shown_as_codes(tmp_path: Path) -> None:
    assert problems(tmp_path, "hosts:\n  - a\x1b[31m\n") == ["2:6: the control character U+001B, expected plain text"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"hosts:\n  - g\xc3\xa4\xff", "2:7: the byte 0xff is not UTF-8 text, expected the file saved as UTF-8"),
        ("hosts: [a]".encode("utf-16"), "1:1: UTF-16 text, expected UTF-8; save the file again as UTF-8"),
        (b"\xef\xbb\xbfhosts:\r\n- a\r\n- {nmae: x}\r\n", '3:4: unknown key "nmae", did you mean "name"?'),
    ],
)
def test_what_windows_saves_keeps_its_places(tmp_path: Path, data: bytes, expected: str) -> None:
    assert problems(tmp_path, data) == [expected]

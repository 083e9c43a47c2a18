"""The keys of an inventory file and what each may hold.

Each field's description is what messages say was expected. Every field is optional here: what belongs together is
asked in `build.py`, where the defaults are known too.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from orchestrator.inventory_file import words
from orchestrator.inventory_file.document import Surprise
from orchestrator.inventory_file.ranges import MAX_HOSTS
from orchestrator.model.host import DEFAULT_RENDEZVOUS_PORT

GPU_FORMS = ("a count of GPUs", "a list of GPUs")  # pydantic adds these to an error's path
MAX_PROCESSES = 1024  # of one host; beyond any machine, so a slip of the finger


def _nothing_is_an_empty_mapping(value: object) -> object:
    """`env:` with all its lines commented out."""
    return {} if isinstance(value, Surprise) and not value.text else value


def _number_as_written(value: object) -> object:
    """`NCCL_IB_DISABLE: 1` and `FRACTION: 0.50` mean these characters."""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Surprise) and re.fullmatch(r"-?(0|[1-9][0-9]*)\.[0-9]+", value.text):
        return value.text
    return value


def _distinct(indices: list[int]) -> list[int]:
    if len(set(indices)) != len(indices):
        again = next(index for index in indices if indices.count(index) > 1)
        raise ValueError(f"the index {again} stands twice, expected each GPU once")
    return indices


Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=0, le=MAX_PROCESSES)]
Indices = Annotated[list[Annotated[int, Field(ge=0, lt=MAX_PROCESSES)]], Field(min_length=1), AfterValidator(_distinct)]
Env = Annotated[
    dict[
        Annotated[str, AfterValidator(words.variable)],
        Annotated[str, BeforeValidator(_number_as_written), AfterValidator(words.variable_value)],
    ],
    BeforeValidator(_nothing_is_an_empty_mapping),
]


def _gpus_form(value: object) -> str:
    return GPU_FORMS[isinstance(value, list)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class Settings(_Strict):
    """What `defaults` may hold, and each host too."""

    connection: Literal["ssh", "local"] | None = Field(default=None, description="ssh or local")
    user: Annotated[str, AfterValidator(words.user)] | None = Field(default=None, description="a login name")
    port: Port | None = Field(default=None, description="a port number from 1 to 65535")
    key: Annotated[str, AfterValidator(words.key_file)] | None = Field(
        default=None, description="the path of a private key"
    )
    python: Annotated[str, AfterValidator(words.program)] | None = Field(
        default=None, description="an interpreter such as python3 or ~/venv/bin/python"
    )
    venv: Annotated[str, AfterValidator(words.path)] | None = Field(
        default=None, description="the path of a virtual environment on the host"
    )
    conda: Annotated[str, AfterValidator(words.conda)] | None = Field(
        default=None, description="the name or the path of a conda environment"
    )
    workdir: Annotated[str, AfterValidator(words.path)] | None = Field(
        default=None, description="a folder on the host such as ~/ddp-orch"
    )
    env: Env = Field(default={}, description="lines of the form NAME: value")
    gpus: (
        Annotated[
            Annotated[Count, Tag(GPU_FORMS[0])] | Annotated[Indices, Tag(GPU_FORMS[1])], Discriminator(_gpus_form)
        ]
        | None
    ) = Field(default=None, description="a count (gpus: 2) or a list of GPU indices (gpus: [0, 1])")
    processes: Annotated[int, Field(ge=1, le=MAX_PROCESSES)] | None = Field(
        default=None, description=f"a count of processes from 1 to {MAX_PROCESSES}"
    )


class HostEntry(Settings):
    """One entry of `hosts`: a host, or several by a range."""

    name: Annotated[str, AfterValidator(words.host_names)] | None = Field(
        default=None, description="a name such as gpu01"
    )
    address: Annotated[str, AfterValidator(words.addresses)] | None = Field(
        default=None, description="an IP address or a host name"
    )
    ssh: Annotated[str, AfterValidator(words.ssh_destinations)] | None = Field(
        default=None, description="an SSH alias, a host name or an IP address"
    )


class Rendezvous(_Strict):
    """Where the hosts meet."""

    port: Port = Field(default=DEFAULT_RENDEZVOUS_PORT, description="a port number from 1 to 65535")


class InventoryFile(_Strict):
    """The top of the file. Hosts are validated one by one, so that one bad host hides no other."""

    defaults: Annotated[Settings, BeforeValidator(_nothing_is_an_empty_mapping)] = Field(
        default=Settings(), description="settings for all hosts, one a line"
    )
    rendezvous: Annotated[Rendezvous, BeforeValidator(_nothing_is_an_empty_mapping)] = Field(
        default=Rendezvous(), description="port: 29500 on a line below"
    )
    env: Env = Field(default={}, description="lines of the form NAME: value")
    hosts: Annotated[list[Any], Field(min_length=1, max_length=MAX_HOSTS)] = Field(
        default=[], description="a list of hosts, one a line, each after '- '"
    )

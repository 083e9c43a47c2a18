from __future__ import annotations

import pytest

from orchestrator.errors import UsageError
from orchestrator.launch.ranks import make_plan
from orchestrator.launch.torchrun import agent_command, typed_command
from orchestrator.model.host import Host, Inventory


def host(name: str, **more: object) -> Host:
    return Host(name=name, address=f"10.0.0.{name[-1]}", ssh=name, **more)  # type: ignore[arg-type]


def test_uneven_hosts_still_get_gapless_ranks() -> None:
    plan = make_plan(Inventory((host("a1", gpus=1), host("b2", gpus=2))), run="r", backend=None)
    assert [(slot.rank, slot.host, slot.node_rank, slot.local_rank, slot.device) for slot in plan.slots] == [
        (0, "a1", 0, 0, "cuda:0"),
        (1, "b2", 1, 0, "cuda:0"),
        (2, "b2", 1, 1, "cuda:1"),
    ]
    assert [list(launch.ranks) for launch in plan.launches] == [[0], [1, 2]]


def test_chosen_gpus_keep_their_numbers_beside_what_the_process_sees() -> None:
    plan = make_plan(Inventory((host("a1", gpus=(2, 3)),)), run="r", backend=None)
    assert [(slot.device, slot.gpu) for slot in plan.slots] == [("cuda:0", 2), ("cuda:1", 3)]


def test_nccl_is_the_default_only_where_every_process_has_a_gpu() -> None:
    assert make_plan(Inventory((host("a1", gpus=1),)), run="r", backend=None).backend == "nccl"
    assert make_plan(Inventory((host("a1", gpus=1), host("b2"))), run="r", backend=None).backend == "gloo"


def test_nccl_without_gpus_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="the nccl backend needs a GPU for every process, and b2 gives none"):
        make_plan(Inventory((host("a1", gpus=1), host("b2"))), run="r", backend="nccl")


def test_the_typed_command_is_the_one_of_torchruns_manual() -> None:
    plan = make_plan(Inventory((host("a1", gpus=1), host("b2", gpus=1))), run="123", backend="gloo")
    assert typed_command(plan, plan.launches[1], ["ddp_demo.py", "--lr", "0.1"]) == [
        "torchrun",
        "--nproc_per_node=1",
        "--nnodes=2",
        "--node_rank=1",
        "--rdzv_id=123",
        "--master_addr=10.0.0.1",
        "--master_port=29500",
        "ddp_demo.py",
        "--lr",
        "0.1",
    ]


def test_hosts_start_the_same_rendezvous_with_their_own_node_rank() -> None:
    plan = make_plan(Inventory((host("a1"), host("b2", processes=2)), rendezvous_port=4321), run="x", backend="gloo")
    first, second = (agent_command(plan, launch, "/py", "/w/runs/x/h") for launch in plan.launches)
    assert first[0:3] == ["/py", "-m", "torch.distributed.run"]
    assert {word.split("=")[0]: word.partition("=")[2] for word in second if word.startswith("--")} == {
        "--nproc_per_node": "2",
        "--nnodes": "2",
        "--node_rank": "1",
        "--rdzv_id": "x",
        "--master_addr": "10.0.0.1",
        "--master_port": "4321",
        "--rdzv_conf": "timeout=300",
        "--log_dir": "/w/runs/x/h/torchrun",
    }
    differing = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
    assert differing == [("--nproc_per_node=1", "--nproc_per_node=2"), ("--node_rank=0", "--node_rank=1")]

from __future__ import annotations

from dataclasses import replace

from orchestrator.launch.environment import HostSituation, settings_for
from orchestrator.launch.ranks import make_plan
from orchestrator.model.host import Host, Inventory

QUIET = HostSituation(
    interface="eth0",
    login_env={},
    cpu_count=8,
    processes_sharing_cpus=2,
    slow_lookups=False,
    name_servers_answer=True,
    run_dir="/w/runs/r/a",
    data_dir="/home/u/ddp-orch/data",
)


def settings(host: Host, situation: HostSituation = QUIET) -> dict[str, str]:
    other = Host(name="b", address="10.0.0.2", ssh="b")
    plan = make_plan(Inventory((host, other)), run="r1", backend="gloo")
    return {setting.name: setting.value for setting in settings_for(plan, plan.launches[0], situation)}


def test_both_backends_are_tied_to_the_interface_that_reaches_the_peers() -> None:
    made = settings(Host(name="a", address="10.0.0.1", ssh="a", gpus=1))
    assert made["NCCL_SOCKET_IFNAME"] == "=eth0"
    assert made["GLOO_SOCKET_IFNAME"] == "eth0"


def test_an_interface_that_the_user_chose_is_left_alone() -> None:
    host = Host(name="a", address="10.0.0.1", ssh="a", env={"NCCL_SOCKET_IFNAME": "ib0"})
    made = settings(host, replace(QUIET, login_env={"GLOO_SOCKET_IFNAME": "bond0"}))
    assert "NCCL_SOCKET_IFNAME" not in made
    assert "GLOO_SOCKET_IFNAME" not in made


def test_without_a_route_no_interface_is_guessed() -> None:
    made = settings(Host(name="a", address="10.0.0.1", ssh="a"), replace(QUIET, interface=""))
    assert not {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"} & set(made)


def test_chosen_gpus_become_the_visible_ones_whatever_the_login_shell_says() -> None:
    host = Host(name="a", address="10.0.0.1", ssh="a", gpus=(2, 3))
    assert settings(host, replace(QUIET, login_env={"CUDA_VISIBLE_DEVICES": "0"}))["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_a_host_that_gives_no_gpu_hides_those_it_has() -> None:
    assert settings(Host(name="a", address="10.0.0.1", ssh="a"))["CUDA_VISIBLE_DEVICES"] == ""


def test_a_count_of_gpus_leaves_the_users_choice_of_devices() -> None:
    assert "CUDA_VISIBLE_DEVICES" not in settings(Host(name="a", address="10.0.0.1", ssh="a", gpus=2))


def test_cpus_are_shared_by_the_processes_of_a_machine() -> None:
    assert settings(Host(name="a", address="10.0.0.1", ssh="a"))["OMP_NUM_THREADS"] == "4"
    crowded = replace(QUIET, cpu_count=2, processes_sharing_cpus=8)
    assert settings(Host(name="a", address="10.0.0.1", ssh="a"), crowded)["OMP_NUM_THREADS"] == "1"


def test_a_name_server_that_does_not_answer_is_not_waited_for() -> None:
    assert "RES_OPTIONS" not in settings(Host(name="a", address="10.0.0.1", ssh="a"))
    slow = replace(QUIET, slow_lookups=True)
    assert settings(Host(name="a", address="10.0.0.1", ssh="a"), slow)["RES_OPTIONS"] == "timeout:1 attempts:1"
    dead = replace(slow, name_servers_answer=False)
    assert settings(Host(name="a", address="10.0.0.1", ssh="a"), dead)["RES_OPTIONS"] == "attempts:0"


def test_the_run_and_its_backend_are_told_to_any_script() -> None:
    made = settings(Host(name="a", address="10.0.0.1", ssh="a"))
    assert made["DDP_ORCH_RUN"] == "r1"
    assert made["DDP_ORCH_BACKEND"] == "gloo"
    assert made["DDP_ORCH_DATA"] == "/home/u/ddp-orch/data"
    assert made["NCCL_DEBUG"] == "WARN"

"""Logging in to a real host by password, and through odd login shells with noisy set-up files and no SFTP."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import HostUnreachable
from orchestrator.model.host import Host
from orchestrator.transport.connect import Connector
from orchestrator.transport.node_program import Conversation

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.lab import Lab

pytestmark = pytest.mark.lab
# "sesame", as /etc/shadow keeps it (SHA-512 crypt).
SESAME = "$6$labsalt$.1n3Tf18M3N1bo1CfYm0araNaItBt2vTrukKH60iiYsgoT4EruoqXiJzyHcEFg5jXsBDCntGydHw8cnypKsbL/"

NO_RUNS = {"user": "trainer", "runs": [], "others": []}


def trainer(lab: Lab) -> Host:
    address = next(iter(lab.hosts.values())).address
    return Host(name="n", address=address, ssh=address, user="trainer", python="python3")


def talk(lab: Lab, password: Callable[[], str] | None = None) -> tuple[str, object]:
    """Log in, run a node program, and return the noise before it and what it answered."""
    environ = {**os.environ, "DDP_ORCH_SSH_CONFIG": str(lab.ssh_config_path), "SSH_AUTH_SOCK": ""}
    link = Connector(environ=environ, password=password).connect(trainer(lab))
    try:
        with Conversation(link, "run_list") as conversation:
            answer = conversation.ask({"workdir": "~/none"}, timeout_s=20)
            return conversation.noise, answer
    finally:
        link.close()


def test_a_password_is_asked_for_only_where_it_may_be_and_told_when_wrong(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(1)
    host = next(iter(lab.hosts))
    lab.run(host, "sed", "-i", f"s|^trainer:[^:]*:|trainer:{SESAME}:|", "/etc/shadow")
    lab.configure_sshd(host, "PasswordAuthentication yes", "PubkeyAuthentication no")
    with pytest.raises(HostUnreachable, match="can log in by password only") as caught:
        talk(lab)
    assert (caught.value.reason, caught.value.try_this) == ("password_only", "--ask-pass")
    with pytest.raises(HostUnreachable, match="logins was accepted") as caught:
        talk(lab, lambda: "wrong")
    assert "password" in caught.value.message
    assert talk(lab, lambda: "sesame") == ("", NO_RUNS)


def test_odd_login_shells_noise_and_a_missing_sftp_do_no_harm(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(1)
    host = next(iter(lab.hosts))
    lab.configure_sshd(host, "Subsystem sftp /bin/false")
    noisy = "echo 'echo noise from set-up' | tee /home/trainer/.bashrc > /home/trainer/.cshrc"
    lab.run(host, "sh", "-c", noisy)
    heard = {}
    for shell in ("bash", "dash", "tcsh", "fish"):
        path = lab.run(host, "sh", "-c", f"command -v {shell} || true").strip()
        if path:
            lab.run(host, "sed", "-i", rf"s|^\(trainer:.*:\)[^:]*$|\1{path}|", "/etc/passwd")
            heard[shell], answer = talk(lab)
            assert answer == NO_RUNS
    assert heard["bash"] == "noise from set-up"
    assert heard["dash"] == ""

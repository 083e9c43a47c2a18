"""The list of all signatures."""

from __future__ import annotations

from orchestrator.diagnosis.signatures import (
    cuda_and_driver,
    data,
    ddp_usage,
    gloo,
    nccl,
    python_environment,
    rdma,
    rendezvous_and_torchrun,
    secondary,
    ssh_and_shells,
    system,
)

SIGNATURES = (
    *system.SIGNATURES,
    *cuda_and_driver.SIGNATURES,
    *rendezvous_and_torchrun.SIGNATURES,
    *gloo.SIGNATURES,
    *nccl.SIGNATURES,
    *rdma.SIGNATURES,
    *ssh_and_shells.SIGNATURES,
    *python_environment.SIGNATURES,
    *data.SIGNATURES,
    *ddp_usage.SIGNATURES,
    *secondary.SIGNATURES,
)
BY_ID = {signature.id: signature for signature in (*SIGNATURES, secondary.STRANGER)}

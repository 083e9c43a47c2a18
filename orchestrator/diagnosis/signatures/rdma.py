"""NCCL over InfiniBand and RoCE."""

from __future__ import annotations

from orchestrator.diagnosis.signatures.signature import NCCL_TROUBLE, Kind, Signature

SIGNATURES = (
    Signature(
        id="rdma_usable.memlock",
        kind=Kind.PRIMARY,
        pattern=r"ibv_(?:reg_mr|create_cq|create_qp|create_srq|alloc_pd)\w{0,12}.{0,60}(?:Cannot allocate memory"
        r"|errno 12\b)",
        literals=("ibv_reg_mr", "ibv_create_", "ibv_alloc_pd"),
        example="misc/ibvwrap.cc:262 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
        cause="the shell that started the workers may not lock enough memory for InfiniBand (ulimit -l)",
        check="ulimit -l, in a shell that ssh starts without a terminal",
        try_this="memlock unlimited in /etc/security/limits.d, then a new login",
        check_before="rdma_usable",
        source="https://github.com/NVIDIA/nccl-tests/issues/206",
        weight=18,
    ),
    Signature(
        id="rdma_usable.peer_memory",
        kind=Kind.PRIMARY,
        pattern=r"ibv_reg_(?:dmabuf_)?mr\w{0,12}.{0,60}(?:Bad address|Operation not supported|Invalid argument)",
        literals=("ibv_reg_mr", "ibv_reg_dmabuf_mr"),
        example="misc/ibvwrap.cc:262 NCCL WARN Call to ibv_reg_mr failed with error Bad address",
        cause="the InfiniBand card cannot read the GPU's memory: nvidia-peermem is not loaded, or does not fit the "
        "driver",
        check="lsmod | grep peermem; dmesg | grep -i peermem",
        try_this="sudo modprobe nvidia-peermem, or NCCL_NET_GDR_LEVEL=0",
        confirms="NCCL_NET_GDR_LEVEL=0: if it works then, this was it",
        check_before="rdma_usable",
        source=NCCL_TROUBLE,
        weight=14,
    ),
    Signature(
        id="rdma_usable.unreachable",
        kind=Kind.PRIMARY,
        pattern=r"Got completion (?:from peer (?P<peer>[^\s<]{1,80})<\d{1,5}> )?with (?:error|status=) ?"
        r"(?:\w{1,40}\()?12\b",
        literals=("Got completion",),
        example="transport/net_ib.cc:1120 NCCL WARN NET/IB : Got completion from peer 10.9.8.7<40001> with status=12 "
        "opcode=1 len=0 vendor err 129",
        cause="packets over InfiniBand or RoCE do not reach the peer (retries exceeded): another GID, VLAN or fabric, "
        "or a port that does not lead there",
        check="show_gids, ibv_devinfo -v on both hosts; which devices 'NET/IB : Using' lists",
        try_this="NCCL_IB_GID_INDEX=3 for RoCE v2, NCCL_IB_HCA=DEVICE for those in the same network, or "
        "NCCL_IB_DISABLE=1",
        confirms="NCCL_IB_DISABLE=1: if it works then, the RDMA network was it; NCCL_IB_GID_INDEX for the GID",
        check_before="rdma_usable",
        known_for="NCCL 2.4 to 2.1x: 'with error 12'; later: 'with status=12'",
        source="https://github.com/NVIDIA/nccl/issues/426",
        weight=16,
    ),
    Signature(
        id="rdma_usable.completion",
        kind=Kind.PRIMARY,
        pattern=r"Got completion (?:from peer (?P<peer>[^\s<]{1,80})<\d{1,5}> )?with (?:error"
        r"|status=) ?(?P<status>\d{1,3})\b",
        literals=("Got completion",),
        example="transport/net_ib.cc:796 NCCL WARN NET/IB : Got completion with error 11, opcode 0, len 0, vendor err "
        "137",
        cause="a transfer over InfiniBand or RoCE failed (work completion status {status})",
        check="ibv_devinfo; the error counters under /sys/class/infiniband/*/ports/*/; MTU on both sides",
        try_this="NCCL_IB_DISABLE=1 to go on over sockets meanwhile",
        confirms="NCCL_IB_DISABLE=1",
        check_before="rdma_usable",
        source="https://www.rdmamojo.com/2013/02/15/ibv_poll_cq/",
        weight=11,
    ),
    Signature(
        id="rdma_usable.mixed",
        kind=Kind.PRIMARY,
        pattern=r"Attempted to connect incompatible devices|NICs are not cross-rail connected",
        literals=("Attempted to connect incompatible devices", "NICs are not cross-rail connected"),
        example="NCCL WARN NET/IB : Attempted to connect incompatible devices: [0]mlx5_0:1/IB and [0]mlx5_0:1/RoCE. "
        "Try selecting NICs of only one link type using NCCL_IB_HCA",
        cause="NCCL paired RDMA devices of two hosts that cannot reach each other: InfiniBand with RoCE, or cards of "
        "separate networks",
        check="the lines 'NET/IB : Using' of both hosts; ibv_devinfo",
        try_this="NCCL_IB_HCA=DEVICE with those of one network on all hosts",
        confirms="NCCL_IB_HCA",
        check_before="rdma_usable",
        known_for="NCCL 2.30",
        weight=16,
    ),
    Signature(
        id="rdma_usable.refused",
        kind=Kind.PRIMARY,
        pattern=r"WARN Call to (?P<call>ibv_\w{1,40}) failed",
        literals=("Call to ibv_",),
        example="misc/ibvwrap.cc:252 NCCL WARN Call to ibv_reg_mr failed",
        cause="the InfiniBand or RoCE card refused a call ({call}); for ibv_reg_mr and ibv_create_* most often the "
        "limit of locked memory (ulimit -l)",
        check="ulimit -l; ibv_devinfo; lsmod | grep peermem",
        try_this="memlock unlimited, or NCCL_IB_DISABLE=1 to go on over sockets",
        confirms="NCCL_IB_DISABLE=1",
        check_before="rdma_usable",
        known_for="older NCCL, which gives no reason",
        source=NCCL_TROUBLE,
        weight=10,
    ),
    Signature(
        id="rdma_usable.queue_pair",
        kind=Kind.PRIMARY,
        pattern=r"ibv_(?:modify_qp|query_gid|open_device|query_port).{0,20} failed|Failed to (?:modify|create) QP",
        literals=(
            "ibv_modify_qp",
            "ibv_query_gid",
            "ibv_open_device",
            "ibv_query_port",
            "Failed to modify QP",
            "Failed to create QP",
        ),
        example="misc/ibvwrap.cc:300 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out",
        cause="the connection over InfiniBand or RoCE could not be set up: a GID that the peer's network does not "
        "know, unequal MTU, or a port that is down",
        check="ibv_devinfo and show_gids on both hosts",
        try_this="NCCL_IB_GID_INDEX=3 for RoCE v2, NCCL_IB_HCA=DEVICE, or NCCL_IB_DISABLE=1",
        confirms="NCCL_IB_GID_INDEX, then NCCL_IB_DISABLE=1",
        check_before="rdma_usable",
        source=NCCL_TROUBLE,
        weight=14,
    ),
    Signature(
        id="rdma_usable.port_down",
        kind=Kind.PRIMARY,
        pattern=r"Got (?:fatal )?async (?:fatal )?event ?: ?(?:port error|.{0,40}(?:PORT_ERR|fatal))"
        r"|IBV_EVENT_(?:PORT_ERR|DEVICE_FATAL|QP_FATAL)",
        literals=("async event", "async fatal event", "IBV_EVENT_"),
        example="transport/net_ib.cc:101 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",
        cause="a port of the InfiniBand or RoCE card went down while the run was at work",
        check="ibstat; dmesg | grep -i 'mlx5\\|link'; the cable and the switch's port",
        check_before="rdma_usable",
        source=NCCL_TROUBLE,
        weight=16,
    ),
)

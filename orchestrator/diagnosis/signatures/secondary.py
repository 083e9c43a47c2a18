"""Lines that say: something else went first. None is a cause while a line that names one exists anywhere."""

from __future__ import annotations

from orchestrator.diagnosis.signatures.signature import NCCL_TROUBLE, Kind, Signature

_NETWORK = ("interfaces_chosen", "interface_variables", "address_is_own", "one_way_to_peers", "networks_distinct",
            "hosts_reach_each_other", "rdma_usable", "nccl_matches", "nccl_library", "environment_clean")  # fmt: skip
# What makes a run stand still without a word, likeliest first.
HANGS = ("peer_to_peer", "rdma_usable", "nccl_matches", "networks_distinct", "one_way_to_peers",
         "hosts_reach_each_other", "interfaces_chosen", "data_is_there", "nccl_library")  # fmt: skip

SIGNATURES = (
    Signature(
        id="gloo_peer_gone",
        kind=Kind.SECONDARY,
        pattern=r"(?:pair\.cc|gloo|Gloo).{0,200}Connection (?:closed"
        r"|reset) by peer(?: \[?(?P<peer>[\w.:%-]{1,60}?)\]?:\d{1,5}\b)?",
        literals=("Connection closed by peer", "Connection reset by peer"),
        example="RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer "
        "[10.9.8.7]:28048",
        cause="the rank at {peer} went first: it ended or crashed, and this one lost its connection",
        check="the first error on {peer}",
        known_for="torch 1.8 to 2.14",
        source="https://github.com/pytorch/pytorch/issues/75512",
        weight=5,
    ),
    Signature(
        id="nccl_peer_gone",
        kind=Kind.SECONDARY,
        pattern=r"Connection closed by remote peer ?(?P<peer>[\w.:%-]{1,60})?",
        literals=("Connection closed by remote peer",),
        example="node-a:4711:4731 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer "
        "node-b<36138>",
        cause="the process at {peer} closed its connection: it ended or crashed first",
        not_this="where {peer} is no host of the run, a port scanner called and hung up (mended in NCCL 2.27.3)",
        check="the first error on {peer}",
        source="https://github.com/NVIDIA/nccl/issues/1612",
        weight=5,
        if_stranger="nccl_stranger",
    ),
    Signature(
        id="nccl_reset",
        kind=Kind.SECONDARY,
        pattern=r"Call to (?:recv|send|recvmsg|read|write)(?: (?:from|to) \S{1,80})? (?:failed"
        r"|returned).{0,4}(?:Connection reset by peer|Broken pipe|Connection timed out)"
        r"|socketProgress.{0,80}Connection reset",
        literals=("Call to recv", "Call to send", "Call to read", "Call to write", "socketProgress"),
        example="node-a:4711:4731 [0] include/socket.h:390 NCCL WARN Call to recv failed : Connection reset by peer",
        cause="a connection between two hosts was cut in the middle of the work: the process at its other end was "
        "ended, or the network in between (an overlay, a firewall's idle time, a flaky link) dropped it",
        check="whether any rank ended before; if none did, the network: ping -i 0.2 for minutes, ip -s link",
        source="https://github.com/NVIDIA/nccl/issues/193",
        weight=5,
    ),
    Signature(
        id="nccl_proxy",
        kind=Kind.SECONDARY,
        pattern=r"Proxy Call to rank \d{1,6} failed|\[Proxy Service.{0,40}\].{0,40}(?:Failed to execute"
        r"|Accept failed)|\[Service thread\] Accept failed|Socket recv failed while polling|Proxy thread error"
        r"|Error encountered progressing operation",
        literals=(
            "Proxy Call to rank",
            "[Proxy Service",
            "[Service thread]",
            "Socket recv failed while",
            "Proxy thread error",
        ),
        example="node-a:4711:4731 [0] proxy.cc:1495 NCCL WARN [Service thread] Accept failed Resource temporarily "
        "unavailable",
        cause="a helper thread of NCCL met a failure that began elsewhere",
        check="the other lines 'NCCL WARN' before it, on all hosts",
        source=NCCL_TROUBLE,
        weight=1,
    ),
    Signature(
        id="nccl_remote_error",
        kind=Kind.SECONDARY,
        pattern=r"ncclRemoteError|remote process exited or there was a network error",
        literals=("ncclRemoteError", "remote process exited or there was"),
        example="ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
        "prematurely.",
        cause="another rank ended first, or the network to it broke",
        check="the other ranks' first errors",
        known_for="NCCL 2.12 and later; also what 2.30 makes of a refused connection",
        source=NCCL_TROUBLE,
        weight=3,
        suspects=_NETWORK,
    ),
    Signature(
        id="nccl_system_error",
        kind=Kind.SECONDARY,
        pattern=r"unhandled system error|ncclSystemError",
        literals=("unhandled system error", "ncclSystemError"),
        example="RuntimeError: NCCL error in: ../torch/lib/c10d/ProcessGroupNCCL.cpp:825, unhandled system error, "
        "NCCL version 2.7.8",
        cause="a system call inside NCCL failed, mostly a connection between the hosts: NCCL chose an interface that "
        "the peers cannot reach, or a firewall is in between; this line does not say which",
        not_this="no diagnosis by itself: it is NCCL's return code 2",
        check="the line 'NCCL WARN' above it: without NCCL_DEBUG=WARN it is missing",
        try_this="NCCL_DEBUG=INFO and once more: the lines 'NET/Socket : Using' and 'NCCL WARN' tell",
        confirms="NCCL_DEBUG=INFO",
        source=NCCL_TROUBLE,
        weight=2,
        suspects=_NETWORK,
    ),
    Signature(
        id="nccl_internal_error",
        kind=Kind.SECONDARY,
        pattern=r"ncclInternalError|\binternal error - please report this issue to the NCCL",
        literals=("ncclInternalError", "internal error - please report"),
        example="ncclInternalError: Internal check failed.",
        cause="NCCL met something that it did not expect; the line 'NCCL WARN' above tells what",
        check="the line 'NCCL WARN' above it",
        confirms="NCCL_DEBUG=INFO",
        source=NCCL_TROUBLE,
        weight=1,
        suspects=("nccl_matches", "nccl_library", "interface_variables"),
    ),
    Signature(
        id="nccl_invalid_usage",
        kind=Kind.SECONDARY,
        pattern=r"ncclInvalid(?:Usage|Argument)|NCCL error in: .{0,120}invalid (?:usage|argument)",
        literals=("ncclInvalidUsage", "ncclInvalidArgument", "NCCL error in:"),
        example="ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
        cause="NCCL was called in a way that it refuses: often two ranks on one GPU, or no interface of the name given",
        check="the line 'NCCL WARN' above it; torch.cuda.set_device in the script",
        confirms="NCCL_DEBUG=INFO",
        source=NCCL_TROUBLE,
        weight=2,
        suspects=("script_fits", "gpus_enough", "interface_variables"),
    ),
    Signature(
        id="nccl_cuda_error",
        kind=Kind.SECONDARY,
        pattern=r"ncclUnhandledCudaError|unhandled cuda error",
        literals=("ncclUnhandledCudaError", "unhandled cuda error"),
        example="ncclUnhandledCudaError: Call to CUDA function failed.",
        cause="a CUDA call inside NCCL failed; the line 'Cuda failure' tells which",
        check="the line 'NCCL WARN Cuda failure' above it; nvidia-smi",
        confirms="NCCL_DEBUG=INFO",
        source=NCCL_TROUBLE,
        weight=2,
        suspects=("kernel_image", "torch_has_cuda", "gpu_memory_free", "fabric_manager", "gpus_answer", "gpus_enough"),
    ),
    Signature(
        id="nccl_async_error",
        kind=Kind.SECONDARY,
        pattern=r"Some NCCL operations have failed or timed out"
        r"|To avoid data inconsistency, we are taking the entire process down"
        r"|NCCL watchdog thread terminated with exception|NCCL communicator was aborted"
        r"|NCCL communicator encountered error",
        literals=(
            "Some NCCL operations have failed",
            "To avoid data inconsistency",
            "watchdog thread terminated with exception",
            "NCCL communicator was aborted",
            "NCCL communicator encountered error",
        ),
        example="[E ProcessGroupNCCL.cpp:455] Some NCCL operations have failed or timed out. Due to the asynchronous "
        "nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.",
        cause="a collective failed or timed out; this line does not say why",
        check="the errors of all ranks before it",
        confirms="NCCL_DEBUG=INFO; NCCL_IB_DISABLE=1 where the hosts have InfiniBand or RoCE devices that are not in "
        "use",
        source="https://github.com/karpathy/nanoGPT/pull/55",
        weight=1,
        suspects=(*_NETWORK, "peer_to_peer"),
    ),
    Signature(
        id="collective_timeout_at_start",
        kind=Kind.SECONDARY,
        pattern=r"collective operation timeout: WorkNCCL\((?:SeqNum|OpId|SeqNumb)=[0-5],",
        literals=("collective operation timeout",),
        example="[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, "
        "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600054 milliseconds before timing out.",
        cause="already the first collectives did not come about: the GPUs of a host cannot copy to each other (PCIe "
        "ACS, IOMMU), the network passes small packets only (MTU), or a rank never came",
        check="which ranks have no such line; ddp-orch preflight --deep",
        try_this="one host alone, then two, with NCCL_P2P_DISABLE=1, then with NCCL_IB_DISABLE=1",
        confirms="NCCL_P2P_DISABLE=1 (ACS, IOMMU), NCCL_IB_DISABLE=1 (RDMA, GID), ping -M do -s 8972 PEER (MTU)",
        source=NCCL_TROUBLE,
        weight=4,
        suspects=HANGS,
    ),
    Signature(
        id="collective_timeout",
        kind=Kind.SECONDARY,
        pattern=r"collective operation timeout: WorkNCCL|[Ww]atchdog caught collective"
        r"|ran for \d{1,12} milliseconds before timing out|timed out in blocking wait"
        r"|Timed out waiting \d{1,12} ?ms for (?:recv|send) operation to complete"
        r"|Application timeout caused pair closure",
        literals=(
            "collective operation timeout",
            "atchdog caught collective",
            "milliseconds before timing out",
            "timed out in blocking wait",
            "Timed out waiting",
            "Application timeout caused",
        ),
        example="[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=456, OpType=ALLREDUCE, "
        "Timeout(ms)=600000)",
        cause="after collectives that worked, a rank did not come to the next one: it has fewer batches than the "
        "others, does something else meanwhile (evaluation, a checkpoint), swallowed an exception, or is gone",
        not_this="the ranks that say so waited; the one that does not say so, or with the lowest number, is the one "
        "to look at",
        check="len(loader) and the last lines of each rank; the rank with the lowest SeqNum",
        try_this="equal shards (DistributedSampler, drop_last=True), or model.join()",
        confirms="TORCH_DISTRIBUTED_DEBUG=DETAIL, or the flight recorder (TORCH_FR_BUFFER_SIZE=2000)",
        source="https://github.com/pytorch/pytorch/issues/97191",
        weight=3,
        suspects=("data_is_there",),
    ),
    Signature(
        id="watchdog_stuck",
        kind=Kind.SECONDARY,
        pattern=r"[Hh]eartbeat monitor timed out|ProcessGroupNCCL's watchdog got stuck"
        r"|terminated by the heartbeat monitor",
        literals=("eartbeat monitor timed out", "watchdog got stuck", "by the heartbeat monitor"),
        example="[PG 0 Rank 3] ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress",
        cause="a rank waited in a collective or in CUDA without progress until torch ended it",
        check="the errors of the other ranks before it",
        weight=1,
        suspects=HANGS,
    ),
    Signature(
        id="store_gone",
        kind=Kind.SECONDARY,
        pattern=r"Failed to check the .should dump. flag|recvValue failed on|sendBytes failed on|recvVector failed on"
        r"|TCPStore.{0,160}(?:Broken pipe|Connection reset|shut down too early)|Failed to recv, got 0 bytes"
        r"|Broken pipe.{0,80}TCPStore|DistNetworkError: (?:Connection reset by peer|Broken pipe|failed to recv)"
        r"|store->get\('0'\) got error|possible application crash on rank 0|Stop_waiting response is expected"
        r"|^RuntimeError: (?:Connection reset by peer|Broken pipe)",
        literals=(
            "Failed to check the",
            "recvValue failed on",
            "sendBytes failed on",
            "recvVector failed on",
            "TCPStore",
            "Failed to recv, got",
            "DistNetworkError:",
            "store->get(",
            "possible application crash on",
            "Stop_waiting response",
            "RuntimeError: Connection reset",
            "RuntimeError: Broken pipe",
        ),
        example='Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early)',
        cause="the store is gone: torchrun on the first host, or rank 0, ended first",
        check="the first error on the host of rank 0",
        source="https://github.com/pytorch/pytorch/pull/153586",
        weight=4,
    ),
    Signature(
        id="peer_never_came",
        kind=Kind.SECONDARY,
        pattern=r"wait timeout after \d{1,9} ?ms, keys: /\S{0,80}default_pg"
        r"|Timed out after .{0,40}waiting for .{0,40}key|wait timeout after .{0,160}(?:cpu//|cuda//|worker)"
        r"|Socket Timeout|store[ -]based barrier.{0,160}worker_count=\d{1,6}",
        literals=("wait timeout after", "Timed out after", "Socket Timeout", "based barrier"),
        example="torch.distributed.DistStoreError: wait timeout after 1800000ms, keys: /default_pg/0//cpu//0/1",
        cause="a rank waited for another's word in the store, which did not come: that rank never started or ended "
        "before",
        check="the rank at the end of the key: its first error",
        weight=2,
    ),
    Signature(
        id="sibling_was_ended",
        kind=Kind.SECONDARY,
        pattern=r"closing signal SIG(?:TERM|INT|KILL)|exitcode\s{0,4}: -15\b|Signal 15 \(SIGTERM\)|Signals\.SIGTERM"
        r"|got signal: 15\b|Received (?:15|SIGTERM) death signal",
        literals=("closing signal SIG", "exitcode", "(SIGTERM)", "Signals.SIGTERM", "got signal:", "death signal"),
        example="W1103 12:00:01.000000 4711 torch/distributed/elastic/multiprocessing/api.py:900] Sending process "
        "4712 closing signal SIGTERM",
        cause="torchrun ended this rank because another one had failed, or was told to stop",
        check="the other ranks' first errors; other hosts",
        weight=1,
    ),
    Signature(
        id="exit_barrier",
        kind=Kind.SECONDARY,
        pattern=r"waiting on exit barrier|_exit_barrier|Error waiting on exit barrier"
        r"|failed to pass.{0,20}exit barrier",
        literals=("exit barrier", "_exit_barrier"),
        example="E1103 12:00:01.000000 4711 torch/distributed/elastic/agent/server/api.py:950] Error waiting on exit "
        "barrier.",
        cause="torchrun waited in vain for the others at the end: another host ended first",
        weight=1,
    ),
    Signature(
        id="agent_lost_rendezvous",
        kind=Kind.SECONDARY,
        pattern=r"failed to send a keep-alive heartbeat to the rendezvous|failed to shutdown the rendezvous",
        literals=("keep-alive heartbeat to the rendezvous", "failed to shutdown the rendezvous"),
        example="The node 'node-a_4711_0' has failed to send a keep-alive heartbeat to the rendezvous 'none' due to "
        "an error of type RendezvousConnectionError.",
        cause="the host that holds the rendezvous is gone: it crashed or its torchrun ended first",
        check="the first error on the host of the rendezvous, and whether it is up: uptime",
        source="https://github.com/pytorch/pytorch/issues/76287",
        weight=4,
    ),
    Signature(
        id="rendezvous_closed",
        kind=Kind.SECONDARY,
        pattern=r"RendezvousClosedError|RendezvousGracefulExitError",
        literals=("RendezvousClosedError", "RendezvousGracefulExitError"),
        example="torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
        cause="another host had finished or failed and closed this rendezvous; its id can never be joined again",
        check="the host that ended first",
        try_this="a new --rdzv-id for every start",
        source="https://github.com/pytorch/pytorch/issues/116974",
        weight=3,
    ),
    Signature(
        id="worker_failed",
        kind=Kind.SECONDARY,
        pattern=r"worker group FAILED|ChildFailedError|failed \(exitcode: 1\)|exitcode\s{0,4}: (?:1|-6)\b"
        r"|Signal 6 \(SIGABRT\)|(?:SpawnException|ProcessRaisedException|ProcessExitedException)"
        r"|returned non-zero exit status|return code = [1-9]\d{0,2}\b|sigkill_handler\] Killing subprocess",
        literals=(
            "worker group FAILED",
            "ChildFailedError",
            "exitcode",
            "(SIGABRT)",
            "ProcessRaisedException",
            "ProcessExitedException",
            "SpawnException",
            "returned non-zero exit status",
            "return code =",
            "sigkill_handler",
        ),
        example="torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        cause="a worker failed; torchrun gives only its exit code, and starts none anew (--max-restarts is 0 by "
        "default)",
        not_this="'Root Cause (first observed failure)' is only the first that this host saw, to the second",
        check="that rank's own standard error, above this line or in its log file",
        source="https://github.com/pytorch/pytorch/issues/146371",
        weight=2,
    ),
    Signature(
        id="ddp_peer_died",
        kind=Kind.SECONDARY,
        pattern=r"DDP expects same model across all ranks, but Rank \d{1,6} has \d{1,9} params, while rank "
        r"(?P<rank>\d{1,6}) has inconsistent 0 params",
        literals=("DDP expects same model",),
        example="RuntimeError: DDP expects same model across all ranks, but Rank 0 has 382 params, while rank 1 has "
        "inconsistent 0 params.",
        cause="rank {rank} ended while DDP was being set up (0 parameters: it never came)",
        check="the first error of rank {rank}",
        source="https://github.com/yifan123/flow_grpo/issues/245",
        weight=4,
    ),
    Signature(
        id="loader_worker_gone",
        kind=Kind.SECONDARY,
        pattern=r"DataLoader worker (?:\(pid.{1,60}\) )?(?:exited unexpectedly|is killed by signal: (?:Terminated"
        r"|Aborted|Interrupt))",
        literals=("DataLoader worker",),
        example="RuntimeError: DataLoader worker (pid(s) 4713, 4714) exited unexpectedly",
        cause="a data loader worker ended without a word",
        check="the lines before it; num_workers=0 shows its exception; journalctl -k for the OOM killer",
        weight=2,
    ),
    Signature(
        id="broken_pipe",
        kind=Kind.SECONDARY,
        pattern=r"BrokenPipeError|ConnectionResetError: \[Errno 104\]|EOFError: Ran out of input",
        literals=("BrokenPipeError", "ConnectionResetError", "EOFError: Ran out of input"),
        example="BrokenPipeError: [Errno 32] Broken pipe",
        cause="the process at the other end of a pipe or connection ended first",
        weight=0,
    ),
)
STRANGER = Signature(
    id="nccl_stranger",
    kind=Kind.PRIMARY,
    pattern=r"Connection closed by remote peer ?(?P<peer>[\w.:%-]{1,60})",
    literals=(),
    example="NCCL WARN socketProgress: Connection closed by remote peer 203.0.113.9<36138>",
    cause="a program that is no part of the run ({peer}) called a port of NCCL and hung up: a port scanner or a "
    "health check",
    check="what {peer} is, and whether it scans",
    try_this="NCCL 2.27.3 or later, or keep the scanner off these hosts",
    source="https://github.com/NVIDIA/nccl/issues/1612",
    known_for="NCCL before 2.27.3",
    weight=5,
)
SILENT_HANG = Signature(
    id="silent_hang",
    kind=Kind.SECONDARY,
    pattern=r"(?!)",
    literals=(),
    example="",
    cause="the run stood still without a word. At its start: GPUs of one host that cannot copy to each other (PCIe "
    "ACS, IOMMU, a driver), or a network that only small packets pass (MTU, GID). Later: ranks with unequal work",
    check="ddp-orch stacks while it hangs; how far each rank came",
    try_this="one host alone, then two, with each of the variables below",
    confirms="NCCL_P2P_DISABLE=1 (ACS, IOMMU, driver), NCCL_IB_DISABLE=1 (RDMA), NCCL_IB_GID_INDEX=3 (GID), ping -M "
    "do -s 8972 PEER (MTU)",
    source=NCCL_TROUBLE,
)

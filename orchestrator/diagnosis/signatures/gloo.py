"""gloo, and process groups over it."""

from __future__ import annotations

from orchestrator.diagnosis.signatures.signature import TORCH_DISTRIBUTED, Kind, Signature

SIGNATURES = (
    Signature(
        id="interfaces_chosen.gloo_fallback",
        kind=Kind.CONTRIBUTING,
        pattern=r"Unable to resolve hostname to a \(local\) address",
        literals=("Unable to resolve hostname to a",),
        example="[W ProcessGroupGloo.cpp:751] Warning: Unable to resolve hostname to a (local) address. Using the "
        "loopback address as fallback. Manually set the network interface to bind to with GLOO_SOCKET_IFNAME.",
        cause="this host's own name leads to no address of its own, so gloo told the peers 127.0.0.1",
        not_this="harmless where all ranks are on one host",
        check="getent ahosts $(hostname)",
        try_this="export GLOO_SOCKET_IFNAME=INTERFACE on this host, or mend its entry in /etc/hosts",
        check_before="interfaces_chosen",
        source="https://github.com/pytorch/pytorch/pull/26166",
    ),
    Signature(
        id="interfaces_chosen.gloo_loopback",
        kind=Kind.PRIMARY,
        pattern=r"(?:connectFullMesh|pair\.cc|Connection refused|onnect).{0,300}remote=\[?(?P<peer>127\.[\d.]{1,12}"
        r"|::1\b)|pair\.cc:\d{1,5}\] connect \[?(?P<peer2>127\.[\d.]{1,12}|::1)\]?:\d{1,5}",
        literals=("] connect [127.", "] connect [::1", "remote=[127.", "remote=127.", "remote=[::1", "remote=::1"),
        example="RuntimeError: Gloo connectFullMesh failed with "
        "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:235] Connection refused, remote=[127.0.1.1]:41234",
        cause="a peer announced a loopback address ({peer}): on that host the own name leads to it, by a line in "
        "/etc/hosts",
        not_this="no firewall, and no fault of the network",
        check="on every host: getent ahosts $(hostname)",
        try_this="export GLOO_SOCKET_IFNAME=INTERFACE on every host, or take the own name off the 127.* line of "
        "/etc/hosts",
        check_before="interfaces_chosen",
        weight=18,
        source="measured",
    ),
    Signature(
        id="interface_variables.gloo",
        kind=Kind.PRIMARY,
        pattern=r"Unable to find address for: (?P<interface>\S{1,40})|GLOO_SOCKET_IFNAME.{0,80}(?:not found|invalid"
        r"|no such)",
        literals=("Unable to find address for", "GLOO_SOCKET_IFNAME"),
        example="RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] . Unable "
        "to find address for: eth7",
        cause="GLOO_SOCKET_IFNAME names the interface {interface}, and this host has none of that name with an address",
        check="ip -br address; env | grep GLOO",
        try_this="unset it, or set this host's own name of the interface",
        check_before="interface_variables",
        weight=20,
        source="measured",
    ),
    Signature(
        id="one_family",
        kind=Kind.PRIMARY,
        pattern=r"ss1\.ss_family == ss2\.ss_family",
        literals=("ss_family",),
        example="RuntimeError: [enforce fail at /pytorch/gloo/transport/tcp/device.cc:288] ss1.ss_family == "
        "ss2.ss_family. 10 vs 2",
        cause="one host announced an IPv6 address and another an IPv4 address (10 is IPv6, 2 is IPv4)",
        check="on every host: getent ahosts $(hostname)",
        try_this="entries of one family in /etc/hosts, or GLOO_SOCKET_IFNAME on all hosts",
        check_before="one_family",
        weight=20,
        source="measured",
    ),
    Signature(
        id="gloo_cannot_connect",
        kind=Kind.PRIMARY,
        pattern=r"connectFullMesh failed|gloo.{0,200}timed out connecting|timed out connecting: .{0,200}remote="
        r"|Connect(?:ion)? timeout \[|pair\.cc:\d{1,5}\] connect \[?(?P<peer>[\w.:]{2,60}?)\]?:\d{1,5}: ",
        literals=(
            "connectFullMesh failed",
            "] connect [",
            "timed out connecting",
            "onnect timeout [",
            "onnection timeout [",
        ),
        example="RuntimeError: Gloo connectFullMesh failed with "
        "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
        cause="gloo could not connect the ranks with each other: a host announced an address that the others cannot "
        "reach (that of its own name), or a firewall lets only the rendezvous port pass",
        not_this="that the rendezvous port is open does not help: all ranks listen on ports that the kernel picks",
        check="ddp-orch preflight --only hosts_reach_each_other,interfaces_chosen; getent ahosts $(hostname) on each "
        "host",
        try_this="export GLOO_SOCKET_IFNAME=INTERFACE, and let the hosts reach each other on all TCP ports",
        confirms="GLOO_SOCKET_IFNAME set on all hosts: if it works then, the choice of the interface was it",
        check_before="hosts_reach_each_other",
        known_for="torch 1.8 to 2.14; before 2.6 it says no more than 'no error'",
        source="https://github.com/sgl-project/sglang/issues/3226",
        weight=5,
        suspects=(
            "interfaces_chosen",
            "interface_variables",
            "one_way_to_peers",
            "address_is_own",
            "hosts_reach_each_other",
        ),
    ),
    Signature(
        id="torch_matches.gloo",
        kind=Kind.PRIMARY,
        pattern=r"sizeof\(impl_\) == bytes\.size\(\)|bytes\.size\(\) == sizeof",
        literals=("bytes.size()",),
        example="RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/address.cc:45] "
        "sizeof(impl_) == bytes.size(). 136 vs 68",
        cause="the hosts have different versions of torch, whose gloo do not understand each other's addresses",
        check='python -c "import torch; print(torch.__version__)" on every host',
        try_this="the same torch on all hosts",
        check_before="torch_matches",
        weight=18,
    ),
    Signature(
        id="limits.ports",
        kind=Kind.PRIMARY,
        pattern=r"pair\.cc:\d{1,5}\] (?:bind|listen): (?P<error>Address already in use"
        r"|Cannot assign requested address)",
        literals=("] bind:", "] listen:"),
        example="RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:176] bind: Address already in use",
        cause="gloo found no free port to listen on: each pair of ranks takes one, and this host has too few for so "
        "many ranks",
        not_this="not the rendezvous port",
        check="ss -s; sysctl net.ipv4.ip_local_port_range net.core.somaxconn",
        try_this="a wider net.ipv4.ip_local_port_range; fewer processes a host",
        check_before="limits",
        source="https://github.com/pytorch/pytorch/issues/59256",
        weight=16,
    ),
    Signature(
        id="collective_mismatch.gloo",
        kind=Kind.PRIMARY,
        pattern=r"op\.preamble\.length <= op\.nbytes|Received data size doesn't match expected size",
        literals=("preamble.length", "data size doesn't match"),
        example="RuntimeError: [enforce fail at /pytorch/gloo/transport/tcp/pair.cc:451] op.preamble.length <= "
        "op.nbytes. 1024 vs 512",
        cause="the ranks called different collectives, or the same with tensors of different size",
        check="what differs by rank: shapes, data types, branches on the rank around collectives",
        try_this="TORCH_DISTRIBUTED_DEBUG=DETAIL names the first collective that differs",
        confirms="TORCH_DISTRIBUTED_DEBUG=DETAIL",
        source=TORCH_DISTRIBUTED,
        weight=10,
    ),
    Signature(
        id="rank_did_not_come",
        kind=Kind.CONTRIBUTING,
        pattern=r"[Rr]anks? (?P<ranks>\d{1,6}(?:, \d{1,6}){0,64}) failed to pass monitoredBarrier",
        literals=("failed to pass monitoredBarrier",),
        example="RuntimeError: Rank 0: Rank 2 failed to pass monitoredBarrier in 30000 ms",
        cause="rank {ranks} did not come to a barrier in time",
        check="the last lines of rank {ranks}; ddp-orch stacks while it hangs",
        source=TORCH_DISTRIBUTED,
    ),
    Signature(
        id="backend_does_not_fit",
        kind=Kind.PRIMARY,
        pattern=r"No backend type associated with device type (?P<device>\w{1,20})"
        r"|ProcessGroupGloo.{0,80}(?:does not support|unsupported)|Tensors must be CUDA and dense"
        r"|ProcessGroupNCCL is only supported with GPUs, no GPUs found",
        literals=(
            "No backend type associated with",
            "ProcessGroupGloo",
            "Tensors must be CUDA and dense",
            "no GPUs found",
        ),
        example="RuntimeError: No backend type associated with device type cpu",
        cause="the process group's backend cannot handle these tensors: gloo is for the CPU, NCCL for the GPU",
        check="init_process_group's backend, and the device of the tensor in the traceback",
        try_this='init_process_group("cpu:gloo,cuda:nccl"), or move the tensor',
        source=TORCH_DISTRIBUTED,
        weight=10,
    ),
    Signature(
        id="torch_has_cuda.no_nccl",
        kind=Kind.PRIMARY,
        pattern=r"Distributed package doesn't have (?:NCCL|MPI|UCC)",
        literals=("Distributed package doesn't have",),
        example="RuntimeError: Distributed package doesn't have NCCL built in",
        cause="this torch was built without NCCL: a CPU build, or one for another system",
        check='python -c "import torch; print(torch.__version__, torch.version.cuda)"',
        try_this="install a CUDA build of torch, or use the backend gloo",
        check_before="torch_has_cuda",
        weight=18,
    ),
)

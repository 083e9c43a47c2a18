"""NCCL over sockets and shared memory, from 2.4 to 2.30. What it says of RDMA stands in rdma.py."""

from __future__ import annotations

from orchestrator.diagnosis.signatures.signature import NCCL_ENV, NCCL_TROUBLE, TORCH_DISTRIBUTED, Kind, Signature

_VIRTUAL = (
    r"(?P<interface>(?:br-|veth|docker|virbr|tailscale|wg|tun|tap|zt|cni|flannel|cali|podman|lxc|lxd|vmnet|Cloudflare)"
)
_CONNECT_FAILED = (
    r"(?:Connect to|connect to) (?:address )?(?P<peer>[\w.:%-]{2,80})<(?P<port>\d{1,5})> (?:failed|returned) ?:? ?"
)

SIGNATURES = (
    Signature(
        id="interfaces_chosen.nccl",
        kind=Kind.CONTRIBUTING,
        pattern=r"NET/Socket ?: Using .{0,800}\[\d{1,2}\]" + _VIRTUAL + r"[\w.-]{0,30}):",
        literals=("NET/Socket : Using", "NET/Socket: Using"),
        example="node-a:4711:4731 [0] NCCL INFO NET/Socket : Using [0]eth0:10.9.8.7<0> "
        "[1]br-4be1c0ffee00:172.19.0.1<0>",
        cause="NCCL also uses {interface} for its data, a bridge, tunnel or container interface that the peers cannot "
        "reach",
        not_this="harmless where all ranks are on one host",
        check="the list behind 'NET/Socket : Using' on every host; ip -br address",
        try_this="export NCCL_SOCKET_IFNAME==INTERFACE with the one that leads to the peers (ddp-orch run sets it)",
        confirms="NCCL_SOCKET_IFNAME set to the LAN's interface on all hosts",
        check_before="interfaces_chosen",
        known_for="NCCL 2.4 to 2.30: only docker*, lo and virbr* are passed over",
        source="https://github.com/NVIDIA/nccl/issues/697",
        weight=5,
    ),
    Signature(
        id="interfaces_chosen.nccl_loopback",
        kind=Kind.CONTRIBUTING,
        pattern=r"(?:Bootstrap|NET/Socket) ?: Using (?:\[0\])?lo:",
        literals=("Using lo:", "Using [0]lo:"),
        example="node-a:4711:4711 [0] NCCL INFO Bootstrap : Using lo:127.0.0.1<0>",
        cause="NCCL found no interface but the loopback one, and told the peers 127.0.0.1",
        not_this="harmless where all ranks are on one host",
        check="ip -br address; env | grep NCCL_SOCKET; cat ~/.nccl.conf /etc/nccl.conf",
        try_this="an interface that is up and has the address (a dummy interface where it is on lo)",
        check_before="interfaces_chosen",
        source="https://github.com/NVIDIA/nccl/issues/1053",
        weight=5,
    ),
    Signature(
        id="interfaces_chosen.link_local",
        kind=Kind.PRIMARY,
        pattern=r"[Cc]onnect(?:ing|ion)? to (?:address )?(?P<peer>fe80:[\w:]{1,60}(?:%(?P<interface>[\w.-]{1,20}))?)",
        literals=("onnect to fe80", "onnect to address fe80", "onnecting to address fe80", "onnection to fe80"),
        example="node-a:4711:4731 [0] include/socket.h:403 NCCL WARN Connect to fe80::42:acff%veth01<40001> failed : "
        "Connection timed out",
        cause="NCCL tried a link-local address of a virtual interface ({interface}), which is no way to the peer",
        check="the list behind 'NET/Socket : Using' on every host",
        try_this="export NCCL_SOCKET_IFNAME==INTERFACE with the one that leads to the peers, or "
        "NCCL_SOCKET_FAMILY=AF_INET",
        check_before="interfaces_chosen",
        source="https://github.com/Oneflow-Inc/oneflow/issues/3586",
        weight=18,
    ),
    Signature(
        id="interface_variables.nccl",
        kind=Kind.PRIMARY,
        pattern=r"[Nn]o socket interface found|no (?:usable )?interface.{0,40}NCCL_SOCKET_IFNAME",
        literals=("o socket interface found", "NCCL_SOCKET_IFNAME"),
        example="node-a:4711:4711 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found",
        cause="NCCL_SOCKET_IFNAME (or nccl.conf) names an interface that this host does not have, or that is down",
        check="env | grep NCCL; cat ~/.nccl.conf /etc/nccl.conf; ip -br address",
        try_this="unset it, or give each host its own name of the interface",
        check_before="interface_variables",
        source=NCCL_ENV,
        weight=20,
    ),
    Signature(
        id="interface_variables.nccl_no_family",
        kind=Kind.PRIMARY,
        pattern=r"with family [1-9]\d{2,7} is neither AF_INET",
        literals=("is neither AF_INET",),
        example="NCCL WARN ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor "
        "AF_INET6(10)",
        cause="NCCL_SOCKET_IFNAME names an interface that this host does not have; this NCCL did not notice",
        check="env | grep NCCL_SOCKET; ip -br address",
        try_this="unset it, or give each host its own name of the interface",
        check_before="interface_variables",
        known_for="NCCL 2.27",
        source="https://github.com/NVIDIA/nccl/issues/1837",
        weight=18,
    ),
    Signature(
        id="nccl_matches.family",
        kind=Kind.PRIMARY,
        pattern=r"with family 0 is neither AF_INET",
        literals=("is neither AF_INET",),
        example="NCCL WARN ncclSocketInit: connecting to address  with family 0 is neither AF_INET(2) nor AF_INET6(10)",
        cause="the hosts have different versions of NCCL, which do not understand each other's addresses",
        check='on every host: python -c "import torch; print(torch.cuda.nccl.version())"; the lines "NCCL version"',
        try_this="the same torch and nvidia-nccl packages on all hosts; no other libnccl on the loader's path",
        check_before="nccl_matches",
        source="https://github.com/NVIDIA/nccl/issues/1267",
        weight=16,
    ),
    Signature(
        id="nccl_matches",
        kind=Kind.PRIMARY,
        pattern=r"Mismatched NCCL version detected|Message truncated : received \d{1,9} bytes instead of"
        r"|wrong type \d != \d|[Vv]ersion mismatch.{0,40}NCCL|NCCL.{0,60}[Vv]ersion mismatch",
        literals=("Mismatched NCCL version", "Message truncated : received", "wrong type", "ersion mismatch"),
        example="node-b:4711:4731 [0] misc/socket.cc:50 NCCL WARN Message truncated : received 1024 bytes instead of "
        "256",
        cause="the hosts have different versions of NCCL",
        check='on every host: python -c "import torch; print(torch.cuda.nccl.version())"; the lines "NCCL version"',
        try_this="the same torch and nvidia-nccl packages on all hosts; no other libnccl on the loader's path",
        check_before="nccl_matches",
        known_for="NCCL 2.4 to 2.30",
        weight=16,
    ),
    Signature(
        id="address_is_own.nccl",
        kind=Kind.PRIMARY,
        pattern=r"No interface found in the same subnet as remote address"
        r"|<\d{1,5}> failed ?: Software caused connection abort",
        literals=("No interface found in the same subnet", "Software caused connection abort"),
        example="node-b:4711:4711 [0] misc/socket.cc:172 NCCL WARN Net : No interface found in the same subnet as "
        "remote address 10.9.8.7<1778>",
        cause="this host is behind an address translation (a container's bridge network, WSL, NAT): it announces an "
        "address that its peers cannot reach",
        check="ip -br address here, and the address by which the peers reach this host",
        try_this="host networking (docker: --network=host; WSL: mirrored mode)",
        check_before="address_is_own",
        source="https://github.com/NVIDIA/nccl/issues/929",
        weight=14,
    ),
    Signature(
        id="address_is_own.docker",
        kind=Kind.CONTRIBUTING,
        pattern=r"(?:NET/Socket|Bootstrap) ?: Using (?:\[0\])?eth\d:172\.1[7-9]\.",
        literals=(": Using eth", ": Using [0]eth"),
        example="6f1e2d3c4b5a:4711:4711 [0] NCCL INFO Bootstrap : Using eth0:172.17.0.2<0>",
        cause="NCCL announces an address of docker's bridge network, which other hosts cannot reach",
        not_this="harmless where all ranks are on one host",
        check="ip -br address in the container",
        try_this="docker run --network=host",
        check_before="address_is_own",
        source="https://github.com/pytorch/pytorch/issues/23363",
        weight=6,
    ),
    Signature(
        id="hosts_reach_each_other.nccl",
        kind=Kind.PRIMARY,
        pattern=_CONNECT_FAILED + r"(?P<error>No route to host|Connection refused|Connection timed out|Network is "
        r"unreachable|Host is down|Operation timed out)(?!.{0,40}retrying)",
        literals=("onnect to",),
        example="node-a:4711:4731 [0] misc/socket.cc:456 NCCL WARN Net : Connect to 10.9.8.7<54263> failed : No route "
        "to host",
        cause="NCCL cannot connect to {peer} port {port}: {error}. A firewall between the hosts lets not all TCP "
        "ports pass, or that process is gone",
        not_this="that ssh and the rendezvous port work does not help: NCCL listens on ports that the kernel picks; "
        "'No route to host' for a host that answers ssh is a firewall's rejection",
        check="ddp-orch preflight --only hosts_reach_each_other; sysctl net.ipv4.ip_local_port_range",
        try_this="let the hosts reach each other on all TCP ports (ufw allow from SUBNET; firewalld: trusted zone)",
        check_before="hosts_reach_each_other",
        known_for="NCCL 2.4 to 2.30",
        source="https://github.com/NVIDIA/nccl/issues/1105",
        weight=12,
    ),
    Signature(
        id="hosts_reach_each_other.nccl_retries",
        kind=Kind.PRIMARY,
        pattern=r"connect to (?P<peer>[\w.:%-]{2,80})<(?P<port>\d{1,5})> returned (?P<error>[^,]{1,60}), exceeded "
        r"error retry count",
        literals=("exceeded error retry count",),
        example="NCCL WARN ncclOsSocketPollConnect: connect to 10.9.8.7<54263> returned Connection refused, exceeded "
        "error retry count after 35 attempts",
        cause="NCCL cannot connect to {peer} port {port}: {error}, after about a minute of attempts",
        check="ddp-orch preflight --only hosts_reach_each_other; sysctl net.ipv4.ip_local_port_range",
        try_this="let the hosts reach each other on all TCP ports (ufw allow from SUBNET; firewalld: trusted zone)",
        check_before="hosts_reach_each_other",
        known_for="NCCL 2.2x to 2.30",
        weight=13,
    ),
    Signature(
        id="hosts_reach_each_other.nccl_attempt",
        kind=Kind.CONTRIBUTING,
        pattern=r"Call to connect (?:returned|failed ?:?) ?(?P<error>Connection refused|No route to host"
        r"|Connection timed out|Network is unreachable)|connect to .{2,90} returned (?P<error2>[^,]{1,60}), retrying",
        literals=("Call to connect", "connect to"),
        example="node-a:4711:4731 [0] NCCL INFO Call to connect returned Connection refused, retrying",
        cause="NCCL cannot connect to a process: {error}. A firewall (also one on the host itself), or an address "
        "that is not the peer's",
        not_this="a few such lines at the start, with success after them, are normal",
        check="ddp-orch preflight --only hosts_reach_each_other",
        try_this="let the hosts reach each other, and themselves, on all TCP ports",
        check_before="hosts_reach_each_other",
        known_for="NCCL 2.4 to 2.30",
        source="https://github.com/NVIDIA/nccl/issues/352",
        weight=4,
    ),
    Signature(
        id="name_unknown.nccl",
        kind=Kind.PRIMARY,
        pattern=r"NCCL WARN .{0,80}error encountered when getting address info",
        literals=("error encountered when getting address info",),
        example="node-a:4711:4711 [0] NCCL WARN Net : error encountered when getting address info : Name or service "
        "not known",
        cause="NCCL_COMM_ID names a host that is not known here",
        check="env | grep NCCL_COMM_ID; getent ahosts NAME",
        weight=14,
    ),
    Signature(
        id="environment_clean.nccl_file",
        kind=Kind.CONTRIBUTING,
        pattern=r"(?P<name>NCCL_(?:GRAPH_FILE|TOPO_FILE)) set by environment to (?P<file>\S{1,200})",
        literals=("NCCL_GRAPH_FILE set by", "NCCL_TOPO_FILE set by"),
        example="node-a:4711:4731 [0] NCCL INFO NCCL_GRAPH_FILE set by environment to /opt/vendor/graph.xml",
        cause="{name} names a description of another kind of machine ({file}), by which NCCL goes",
        not_this="right on the very type of cloud machine that it was made for",
        check="env | grep NCCL; cat ~/.nccl.conf /etc/nccl.conf",
        try_this="unset {name}, or take it out of nccl.conf",
        check_before="environment_clean",
        source="https://github.com/NVIDIA/nccl/issues/1240",
        weight=4,
    ),
    Signature(
        id="interfaces_chosen.none",
        kind=Kind.PRIMARY,
        pattern=r"WARN .{0,40}Socket creation failed",
        literals=("Socket creation failed",),
        example="node-a:4711:4711 [0] include/socket.h:311 NCCL WARN Socket creation failed : Address family not "
        "supported by protocol",
        cause="NCCL found no interface with an address that it can use, as in a container without a network",
        check="ip -br address, where the workers run",
        try_this="docker run --network=host",
        check_before="interfaces_chosen",
        source="https://github.com/NVIDIA/nccl-tests/issues/14",
        weight=12,
    ),
    Signature(
        id="nccl_cannot_bind",
        kind=Kind.PRIMARY,
        pattern=r"NCCL WARN .{0,60}(?:Call to bind|bind\(\)?).{0,40}failed.{0,4}(?P<error>Address already in use"
        r"|Cannot assign requested address|Permission denied)|NCCL WARN Call to (?:socket|listen) failed",
        literals=("Call to bind", "bind()", "Call to socket failed", "Call to listen failed"),
        example="node-a:4711:4711 [0] include/socket.h:333 NCCL WARN Call to bind failed : Address already in use",
        cause="NCCL could not listen on this host: {error}. No port is free, or the address belongs to no interface "
        "any more",
        check="ss -s; sysctl net.ipv4.ip_local_port_range; ip -br address",
        source="https://github.com/NVIDIA/nccl/issues/293",
        weight=10,
    ),
    Signature(
        id="room.shared_memory",
        kind=Kind.PRIMARY,
        pattern=r"posix_fallocate failed|Error while creating shared memory segment|failed to extend /dev/shm"
        r"|/dev/shm/\S{0,120}.{0,80}No space left on device|ncclShmOpen.{0,120}No space left",
        literals=(
            "posix_fallocate failed",
            "creating shared memory segment",
            "failed to extend /dev/shm",
            "/dev/shm/",  # noqa: S108 - what lines say
            "ncclShmOpen",
        ),
        example="NCCL WARN Error: failed to extend /dev/shm/nccl-Ab3dE to 33030532 bytes, error: No space left on "
        "device (28)",
        cause="shared memory (/dev/shm) is full or too small for the GPUs of this host",
        not_this="no disk is full",
        check="df -h /dev/shm; ls -l /dev/shm",
        try_this="a larger /dev/shm (docker: --shm-size=8g or --ipc=host); remove what killed runs left there",
        check_before="room",
        known_for="NCCL up to 2.1x: posix_fallocate; later: failed to extend",
        source=NCCL_TROUBLE,
        weight=20,
    ),
    Signature(
        id="shared_memory_not_shared",
        kind=Kind.PRIMARY,
        pattern=r"Error while attaching to shared memory segment|shm_open.{0,80}No such file"
        r"|ncclShmOpen.{0,120}No such file",
        literals=("attaching to shared memory segment", "shm_open", "ncclShmOpen"),
        example="NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-Ab3dE (size 9637888), error: "
        "No such file or directory (2)",
        cause="ranks that NCCL takes for neighbours on one host do not see the same /dev/shm: they are in separate "
        "containers, or systemd removed its files at a logout",
        check="grep RemoveIPC /etc/systemd/logind.conf; whether each rank has its own container",
        try_this="--ipc=host for containers, RemoveIPC=no or loginctl enable-linger, or NCCL_SHM_DISABLE=1",
        source="https://github.com/vllm-project/vllm/issues/18831",
        weight=18,
    ),
    Signature(
        id="duplicate_gpu",
        kind=Kind.PRIMARY,
        pattern=r"Duplicate GPU detected ?: rank (?P<rank>\d{1,6}) and rank (?P<other>\d{1,6})"
        r"|Multiple [Rr]anks are using the same GPU",
        literals=("Duplicate GPU detected", "Multiple Ranks are using the same", "Multiple ranks are using the same"),
        example="node-a:4711:4711 [0] init.cc:1250 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA "
        "device 1000",
        cause="two ranks use one GPU: the script does not choose its device by LOCAL_RANK, or there are more "
        "processes than GPUs",
        check="torch.cuda.set_device in the script; nvidia-smi -L and --nproc-per-node on that host",
        try_this="torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before anything else on the GPU",
        check_before="script_fits",
        known_for="NCCL 2.5 to 2.2x: Duplicate GPU detected; 2.30: Multiple Ranks are using the same GPU/Partition",
        source="https://github.com/NVIDIA/Megatron-LM/issues/661",
        weight=18,
    ),
    Signature(
        id="collective_mismatch",
        kind=Kind.PRIMARY,
        pattern=r"Detected mismatch between collectives on ranks",
        literals=("Detected mismatch between collectives",),
        example="RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=5, OpType=ALLREDUCE, TensorShape=[4]), but Rank 1 is running "
        "collective: ...",
        cause="the ranks called different collectives at the same time",
        check="the two calls in this line; branches on the rank in the script around them",
        source=TORCH_DISTRIBUTED,
        weight=18,
    ),
    Signature(
        id="collective_mismatch.nccl",
        kind=Kind.PRIMARY,
        pattern=r"there may be a mismatch in collective sizes",
        literals=("mismatch in collective sizes",),
        example="NCCL WARN NET/Socket : peer node-b<40001> message truncated : receiving 4096 bytes instead of 1024. "
        "If you believe your socket network is in a healthy state, there may be a mismatch in collective sizes or "
        "environment",
        cause="the ranks called a collective with tensors of different size, or different ones",
        check="what differs by rank: shapes, data types, branches on the rank around collectives",
        confirms="TORCH_DISTRIBUTED_DEBUG=DETAIL",
        known_for="NCCL 2.1x to 2.30",
        weight=12,
    ),
    Signature(
        id="devices_differ.nccl",
        kind=Kind.PRIMARY,
        pattern=r"allocated on device \d{1,3} mismatchs? with NCCL device",
        literals=("with NCCL device",),
        example="NCCL WARN AllReduce : sendbuff allocated on device 0 mismatchs with NCCL device 1",
        cause="a collective was given a tensor on another GPU than the rank's own",
        check="torch.cuda.set_device and fixed cuda:0 in the script",
        try_this="torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before anything else on the GPU",
        check_before="script_fits",
        weight=14,
    ),
    Signature(
        id="fabric_manager.multicast",
        kind=Kind.PRIMARY,
        pattern=r"Failed to bind NVLink SHARP|error in the Fabric Manager or NVSwitch"
        r"|cuMulticast\w{1,30}.{0,80}(?:failed|error)|transport/nvls\.cc:\d{1,5} NCCL WARN Cuda failure",
        literals=("Failed to bind NVLink SHARP", "Fabric Manager or NVSwitch", "cuMulticast", "transport/nvls.cc"),
        example="transport/nvls.cc:156 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 "
        ": CUDA error 401 'the operation cannot be performed in the present state'",
        cause="the switches between this host's GPUs (NVSwitch) are not in order: the fabric manager was restarted "
        "under way, has another version than the driver, or the host runs in a partition",
        check="systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A3 Fabric",
        try_this="stop all GPU work and restart nvidia-fabricmanager, then the host",
        confirms="NCCL_NVLS_ENABLE=0: if it works then, the switches were it",
        check_before="fabric_manager",
        weight=12,
    ),
    Signature(
        id="peer_to_peer.resources",
        kind=Kind.PRIMARY,
        pattern=r"peer mapping resources exhausted|peer access is not supported between these two devices",
        literals=("peer mapping resources exhausted", "peer access is not supported between"),
        example="RuntimeError: CUDA error: peer mapping resources exhausted",
        cause="the GPUs of this host cannot reach each other's memory as was asked",
        check="nvidia-smi topo -p2p r",
        try_this="NCCL_P2P_DISABLE=1, or at most eight GPUs that see each other in one process",
        confirms="NCCL_P2P_DISABLE=1",
        check_before="peer_to_peer",
        source=NCCL_TROUBLE,
        weight=12,
    ),
    Signature(
        id="peer_to_peer.iommu",
        kind=Kind.CONTRIBUTING,
        pattern=r"Missing \"iommu=pt\" from kernel command line|Your system is running with IOMMU",
        literals=("iommu=pt", "running with IOMMU"),
        example='init.cc:179 NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system '
        "instablity or hang!",
        cause="the IOMMU stands between the GPUs of this host, and copies from card to card may hang",
        check="cat /proc/cmdline; ls /sys/class/iommu; sudo lspci -vvv | grep ACSCtl",
        try_this="iommu=pt or off on the kernel's command line, ACS off in the BIOS",
        confirms="NCCL_P2P_DISABLE=1: if it works then, this was it",
        check_before="peer_to_peer",
        source=NCCL_TROUBLE,
        weight=3,
    ),
    Signature(
        id="nccl_library.symbol",
        kind=Kind.PRIMARY,
        pattern=r"undefined symbol: ?(?P<symbol>p?nccl\w{1,60})",
        literals=("undefined symbol: nccl", "undefined symbol:nccl", "undefined symbol: pnccl"),
        example="ImportError: /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so: undefined symbol: "
        "ncclCommRegister",
        cause="another, older libnccl comes first on the loader's path than the one that torch was built with",
        check="echo $LD_LIBRARY_PATH $LD_PRELOAD; ldconfig -p | grep nccl; pip list | grep nccl",
        try_this="unset LD_LIBRARY_PATH, or remove the other libnccl",
        check_before="nccl_library",
        source="https://github.com/NVIDIA/nccl/issues/554",
        weight=20,
    ),
    Signature(
        id="nccl_network_plugin",
        kind=Kind.PRIMARY,
        pattern=r"NCCL WARN .{0,40}(?:Failed to initialize any NET plugin|NET/OFI .{0,80}(?:failed|[Ee]rror"
        r"|No eligible providers)|[Nn]etwork .{1,30} not found)",
        literals=("Failed to initialize any NET plugin", "NET/OFI", " not found"),
        example="node-a:4711:4711 [0] net.cc:250 NCCL WARN Error: network IBext not found.",
        cause="the network plugin that NCCL was told to use (NCCL_NET, NCCL_NET_PLUGIN) is not there or does not start",
        check="env | grep NCCL_NET; the lines NET/Plugin above",
        try_this="unset NCCL_NET and NCCL_NET_PLUGIN, or repair the plugin",
        source=NCCL_ENV,
        weight=10,
    ),
    Signature(
        id="nccl_cuda_failure",
        kind=Kind.PRIMARY,
        pattern=r"(?:NCCL WARN .{0,80}|^\s{0,8})Cuda failure (?:\d{1,4} )?'(?P<error>(?!out of memory)[^']{1,120})'",
        literals=("Cuda failure",),
        example="node-a:4711:4731 [0] enqueue.cc:720 NCCL WARN Cuda failure 'invalid device function'",
        cause="a CUDA call inside NCCL failed: {error}",
        check="nvidia-smi; journalctl -k | grep -i xid",
        source=NCCL_TROUBLE,
        weight=2,
    ),
)

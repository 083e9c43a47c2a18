"""torchrun, its rendezvous and the store: how a start fails, and how a worker's end is told."""

from __future__ import annotations

from orchestrator.diagnosis.signatures.signature import TORCH_DISTRIBUTED, TORCH_RUN, Kind, Signature

SIGNATURES = (
    Signature(
        id="port_is_free",
        kind=Kind.PRIMARY,
        pattern=r"(?:[:\]](?P<port>\d{2,5}) \(errno: 98\b|\bport: (?P<port2>\d{1,5}), useIpv6: \w{1,5}, code: -98\b"
        r"|EADDRINUSE|(?:errno|Errno) 98\b|but another process is utilizing it|^(?!.{0,200}(?:NCCL"
        r"|pair\.cc)).{0,300}[Aa]ddress already in use)",
        literals=(
            "errno:",
            "useIpv",
            "EADDRINUSE",
            "another process is utilizing it",
            "rrno ",
            "ddress already in use",
        ),
        example="The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, "
        "code: -98, name: EADDRINUSE, message: address already in use",
        cause="the rendezvous port {port} is taken on this host, by another run, by one that was left behind, or by "
        "the script itself where it starts a store of its own",
        not_this="no firewall: the port could not even be listened on",
        check="ss -ltnp 'sport = :{port}'",
        try_this="end what holds the port, or choose another: --master-port",
        check_before="port_is_free",
        known_for="torch 1.9 to 2.14, both stores (errno 98 and libuv's code -98)",
        weight=30,
        source="measured",
    ),
    Signature(
        id="port_not_allowed",
        kind=Kind.PRIMARY,
        pattern=r"(?:failed to (?:bind|listen).{0,120}errno: 13\b|useIpv6: \w{1,5}, code: -13\b)",
        literals=("failed to bind", "failed to listen", "useIpv"),
        example="[W socket.cpp:464] [c10d] The server socket has failed to bind to [::]:80 (errno: 13 - Permission "
        "denied).",
        cause="the rendezvous port is reserved: ports below 1024 are for root",
        check="sysctl net.ipv4.ip_unprivileged_port_start",
        try_this="choose a port above 1024: --master-port 29500",
        weight=20,
    ),
    Signature(
        id="master_address_not_own",
        kind=Kind.PRIMARY,
        pattern=r"(?:failed to (?:bind|listen).{0,120}errno: 99\b|useIpv6: \w{1,5}, code: -99\b|EADDRNOTAVAIL"
        r"|\[Errno 99\])",
        literals=("failed to bind", "failed to listen", "useIpv", "EADDRNOTAVAIL", "[Errno 99]"),
        example="The server socket has failed to bind to 10.9.8.7:29500 (errno: 99 - Cannot assign requested address).",
        cause="the first host was told to listen on an address that none of its interfaces has",
        check="ip -br address",
        try_this="give an address of the first host as --master-addr",
        check_before="port_is_free",
        weight=20,
    ),
    Signature(
        id="store_cannot_listen",
        kind=Kind.CONTRIBUTING,
        pattern=r"server socket has failed to (?:listen on any local network address|bind)",
        literals=("server socket has failed to",),
        example="torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
        "address.",
        cause="the store of the rendezvous could not listen on the first host; the line beside it tells why",
        check="the errno or code in the same line or the one before it",
        check_before="port_is_free",
    ),
    Signature(
        id="port_is_reachable",
        kind=Kind.PRIMARY,
        pattern=r"client socket has timed out after \d{1,9} ?m?s while trying to connect to "
        r"\((?P<peer>[^,()]{1,100}), (?P<port>\d{1,5})\)|failed to connect to any network address of "
        r"\((?P<peer2>[^,()]{1,100}), \d{1,5}\)|Timed out while trying to connect to \[?(?P<peer3>[\w.:-]{1,100})\]?"
        r"|connect\(\) timed out\. Original timeout|^RuntimeError: Connection (?:refused|timed out)\s{0,4}$"
        r"|^RuntimeError: No route to host",
        literals=(
            "client socket has timed out",
            "failed to connect to any network",
            "Timed out while trying to connect",
            "connect() timed out",
            "RuntimeError: Connection",
            "RuntimeError: No route",
        ),
        example="[E socket.cpp:1011] [c10d] The client socket has timed out after 60000ms while trying to connect to "
        "(10.9.8.7, 29500).",
        cause="nothing answered at the rendezvous {peer} port {port}: torchrun on the first host was not started, the "
        "address is wrong, or a firewall drops the packets",
        not_this="what this host computes plays no part: it has not begun",
        check="on the first host while it waits: ss -ltn 'sport = :{port}'; from here: nc -zv {peer} {port}",
        try_this="start torchrun on the first host, and let the hosts reach each other on that port",
        check_before="port_is_reachable",
        known_for="torch 1.9 to 2.14; the time is in s before 2.2, in ms since",
        weight=10,
    ),
    Signature(
        id="port_is_reachable.attempt",
        kind=Kind.CONTRIBUTING,
        pattern=r"client socket has failed to connect to (?P<peer>\S{1,100}) \(errno: (?P<errno>\d{1,3}) - "
        r"(?P<error>[^)]{1,60})\)",
        literals=("client socket has failed to connect to",),
        example="[W socket.cpp:663] [c10d] The client socket has failed to connect to [node-a]:29500 (errno: 113 - No "
        "route to host).",
        cause="the rendezvous could not be reached: {error} (111: nobody listens there, 113: a firewall rejects or no "
        "such host, 110: packets are dropped)",
        not_this="the printed name comes from a reverse look-up and may be another's; only the (host, port) that was "
        "given counts. One such line while the first host still starts is normal",
        check="nc -zv ADDRESS PORT from this host; time getent hosts ADDRESS",
        check_before="port_is_reachable",
        source="https://github.com/pytorch/pytorch/issues/85300",
        suspects=("port_is_reachable", "hosts_reach_each_other"),
    ),
    Signature(
        id="name_unknown",
        kind=Kind.PRIMARY,
        pattern=r"(?:gai error: -\d|(?<!ssh: )Could not resolve host(?!name)"
        r"|error encountered when getting address info|gaierror: \[Errno -?\d{1,2}\]|getaddrinfo.{0,80}(?:not known"
        r"|failure in name)|host not found: )",
        literals=(
            "gai error",
            "Could not resolve host",
            "getting address info",
            "gaierror",
            "getaddrinfo",
            "host not found:",
        ),
        example="[W socket.cpp:558] [c10d] The IPv6 network addresses of (node-a, 29500) cannot be retrieved (gai "
        "error: -2 - Name or service not known).",
        cause="a host's name is not known here: no entry in /etc/hosts, and no name server knows it or answers",
        check="getent ahosts NAME on each host",
        try_this="use addresses, or add the names to /etc/hosts on all hosts",
        check_before="port_is_reachable",
        weight=12,
    ),
    Signature(
        id="names_answer_fast",
        kind=Kind.CONTRIBUTING,
        pattern=r"hostname of the client socket cannot be retrieved\. err=-\d",
        literals=("hostname of the client socket cannot be",),
        example="[W socket.cpp:697] [c10d] The hostname of the client socket cannot be retrieved. err=-3",
        cause="no name server answers for the peers' addresses: each look-up costs about 10 s, several at a start",
        not_this="no failure by itself: the start is slow",
        check="time getent hosts ADDRESS",
        try_this='RES_OPTIONS="timeout:1 attempts:1", or names of the peers in /etc/hosts',
        check_before="names_answer_fast",
        source="measured",
    ),
    Signature(
        id="port_is_free.other_program",
        kind=Kind.PRIMARY,
        pattern=r"failed to connect/validate|Ping failed, invalid (?:value|response)|Connected socket.{0,60}validat",
        literals=("failed to connect/validate", "Ping failed, invalid", "Connected socket"),
        example="torch.distributed.DistNetworkError: The client socket has failed to connect/validate (10.9.8.7, "
        "29500).",
        cause="another program answers on the rendezvous port of the first host",
        check="ss -ltnp on the first host",
        try_this="choose another port: --master-port",
        check_before="port_is_free",
        weight=12,
        source="measured",
    ),
    Signature(
        id="hosts_missing",
        kind=Kind.PRIMARY,
        pattern=r"Timed out after \d{1,7} seconds waiting for clients\. (?P<joined>\d{1,5})/(?P<wanted>\d{1,5}) "
        r"clients",
        literals=("seconds waiting for clients",),
        example="torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients "
        "joined.",
        cause="{joined} of {wanted} hosts came to the rendezvous: on the others torchrun was not started, has another "
        "--nnodes, or cannot reach the first",
        check="whether torchrun runs on every host, with the same --nnodes",
        try_this="start all hosts with the same flags, or let ddp-orch do it",
        check_before="port_is_reachable",
        weight=8,
        source="measured",
    ),
    Signature(
        id="rendezvous_timeout",
        kind=Kind.PRIMARY,
        pattern=r"RendezvousTimeoutError",
        literals=("RendezvousTimeoutError",),
        example="torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        cause="not enough hosts joined the rendezvous in its time: one was not started, or they differ in --rdzv-id, "
        "--rdzv-endpoint or --nnodes",
        check="the flags of torchrun on every host, side by side",
        try_this="the same --rdzv-id, --rdzv-endpoint and --nnodes everywhere",
        source=TORCH_RUN,
        weight=5,
    ),
    Signature(
        id="rendezvous_flags_differ",
        kind=Kind.PRIMARY,
        pattern=r"wait timeout after \d{1,9} ?ms, keys: /(?P<rdzv_id>[^/\s]{1,80})/torchelastic/(?:assigned_ranks"
        r"|role_info)/",
        literals=("wait timeout after",),
        example="torch.distributed.DistStoreError: wait timeout after 900000ms, keys: /none/torchelastic/role_info/1",
        cause="hosts met at the rendezvous and did not find each other there: --rdzv-id, --node-rank or --nnodes "
        "differ (two with one node rank, or a store that belongs to another run)",
        check="the key in this line on each host: the id is its first part, the rank its last",
        try_this="one --rdzv-id for all, node ranks 0 to N-1, the same --nnodes",
        weight=6,
        source="measured",
    ),
    Signature(
        id="rendezvous_store_unreachable",
        kind=Kind.CONTRIBUTING,
        pattern=r"connection to the C10d store has failed|RendezvousConnectionError",
        literals=("connection to the C10d store", "RendezvousConnectionError"),
        example="torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store "
        "has failed. See inner exception for details.",
        cause="the store of the rendezvous could not be reached, or no longer: it lives in torchrun on one host",
        check="the first error on the host that holds the store; with many hosts, ulimit -n and net.core.somaxconn "
        "there",
        check_before="port_is_reachable",
        suspects=("port_is_reachable", "limits", "hosts_reach_each_other"),
    ),
    Signature(
        id="limits.backlog",
        kind=Kind.CONTRIBUTING,
        pattern=r"Starting store with \d{1,7} workers but somaxconn is \d{1,7}",
        literals=("workers but somaxconn",),
        example="Starting store with 256 workers but somaxconn is 128.This might cause instability during bootstrap",
        cause="more ranks than the first host takes connections at once (net.core.somaxconn)",
        check="sysctl net.core.somaxconn; ulimit -n",
        try_this="sysctl -w net.core.somaxconn=4096",
        check_before="limits",
        source="https://github.com/pytorch/pytorch/issues/144856",
    ),
    Signature(
        id="rendezvous_endpoint_wrong",
        kind=Kind.PRIMARY,
        pattern=r"(?:rendezvous endpoint|endpoint URL).{0,80}(?:must|should) (?:be|have)"
        r"|port number of the .{0,40}endpoint",
        literals=("endpoint",),
        example="ValueError: The port number of the rendezvous endpoint '10.9.8.7:abc' must be an integer between 0 "
        "and 65536.",
        cause="--rdzv-endpoint is no HOST:PORT",
        try_this="--rdzv-endpoint HOST:29500",
        source=TORCH_RUN,
        weight=10,
    ),
    Signature(
        id="torchrun_flag_ignored",
        kind=Kind.CONTRIBUTING,
        pattern=r"master_addr is only used for static rdzv_backend",
        literals=("master_addr is only used for",),
        example="master_addr is only used for static rdzv_backend and when rdzv_endpoint is not specified.",
        cause="flags of two kinds of rendezvous are mixed: --master-addr and --node-rank mean nothing beside "
        "--rdzv-backend c10d",
        check="flags, and PET_* variables that torchrun takes as flags: env | grep PET_",
        try_this="either --master-addr with --node-rank, or --rdzv-endpoint with --rdzv-backend c10d",
        check_before="environment_clean",
        source="https://github.com/pytorch/pytorch/issues/124380",
    ),
    Signature(
        id="clocks_agree",
        kind=Kind.CONTRIBUTING,
        pattern=r"Detected dead node\b",
        literals=("Detected dead node",),
        example="Detected dead node 'node-a_1234_0', removing it from the rendezvous",
        cause="the c10d rendezvous took a host for dead: its clock is more than 15 s off, or it really is gone",
        check="date on all hosts at once; timedatectl",
        try_this="switch on time synchronization (NTP), or use the static rendezvous",
        check_before="clocks_agree",
        source="https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/rendezvous/dynamic_rendezvous.py",
    ),
    Signature(
        id="session_survives",
        kind=Kind.PRIMARY,
        pattern=r"closing signal SIGHUP|got signal: 1\b(?!\d)|Received (?:1|Signals\.SIGHUP|SIGHUP) death signal"
        r"|Signal 1 \(SIGHUP\)",
        literals=("closing signal SIGHUP", "got signal:", "death signal", "(SIGHUP)"),
        example="torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 1",
        cause="the terminal or the SSH session that torchrun was started in was closed, and torchrun ended with it",
        not_this="no fault of the script; nohup does not help: torchrun puts its own handler in place",
        check="whether the session ended at that time: last",
        try_this="start it with setsid, in tmux, or with ddp-orch run",
        check_before="session_survives",
        source="https://github.com/pytorch/pytorch/issues/76894",
        weight=15,
    ),
    Signature(
        id="stopped_by_hand",
        kind=Kind.CONTRIBUTING,
        pattern=r"got signal: 2\b|Received (?:2|Signals\.SIGINT|SIGINT) death signal|^KeyboardInterrupt\b",
        literals=("got signal:", "death signal", "KeyboardInterrupt"),
        example="torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 2",
        cause="somebody pressed Ctrl-C",
    ),
    Signature(
        id="memory.killed",
        kind=Kind.PRIMARY,
        pattern=r"exitcode\s{0,4}: -9\b|Signal 9 \(SIGKILL\)|Signals\.SIGKILL|exit(?:ed with)? ?code (?:137|-9)\b"
        r"|killed by signal: Killed|return code = -9\b|line \d{1,6}: {1,4}\d{1,9} Killed\b|^Killed\s{0,4}$"
        r"|exited on signal 9\b",
        literals=(
            "exitcode",
            "(SIGKILL)",
            "Signals.SIGKILL",
            "exit code",
            "exited with",
            "killed by signal",
            "return code =",
            "Killed",
            "exited on signal",
        ),
        example="E1103 12:00:01.000000 4711 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: "
        "-9) local_rank: 0 (pid: 4712) of binary: /usr/bin/python3",
        cause="a worker was killed from outside (SIGKILL), nearly always by the kernel because the host's memory ran "
        "out",
        not_this="no CUDA out of memory: this is the host's own memory",
        check="journalctl -k --since -1h | grep -i 'out of memory\\|oom-kill'; free -h",
        try_this="fewer or smaller data loader workers, a smaller batch, more memory or swap",
        check_before="memory",
        source="https://github.com/hpcaitech/ColossalAI/issues/3172",
        weight=8,
    ),
    Signature(
        id="segmentation_fault",
        kind=Kind.PRIMARY,
        pattern=r"exitcode\s{0,4}: -11\b|Signals?\.?SIGSEGV|Signal 11 \(SIGSEGV\)|Segmentation fault|SIGSEGV"
        r"|return code = -11\b|double free or corruption|free\(\): invalid|corrupted size vs\. prev_size|malloc\(\): ",
        literals=(
            "exitcode",
            "SIGSEGV",
            "Segmentation fault",
            "return code =",
            "double free or",
            "free(): invalid",
            "corrupted size",
            "malloc(): ",
        ),
        example="subprocess.CalledProcessError: Command '['python3', 'train.py']' died with <Signals.SIGSEGV: 11>.",
        cause="compiled code crashed in a worker (segmentation fault): usually a library that was built for another "
        "torch or CUDA",
        check="PYTHONFAULTHANDLER=1 shows the Python line; pip list | grep -i 'torch\\|nccl\\|cuda'",
        try_this="reinstall torch, torchvision and extensions as one matching set",
        check_before="torch_family_fits",
        source="https://github.com/open-mmlab/mmdetection/issues/8916",
        weight=4,
    ),
    Signature(
        id="room.bus_error",
        kind=Kind.PRIMARY,
        pattern=r"exitcode\s{0,4}: -7\b|Signals?\.?SIGBUS|Signal 7 \(SIGBUS\)|[Uu]nexpected bus error|\bBus error\b",
        literals=("exitcode", "SIGBUS", "bus error", "Bus error"),
        example="ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared "
        "memory (shm).",
        cause="shared memory (/dev/shm) is full: a process that wrote there was ended with a bus error",
        check="df -h /dev/shm; ls -l /dev/shm",
        try_this="a larger /dev/shm (docker: --shm-size=8g or --ipc=host), or fewer data loader workers",
        check_before="room",
        weight=14,
    ),
    Signature(
        id="processor_too_old",
        kind=Kind.PRIMARY,
        pattern=r"exitcode\s{0,4}: -4\b|Signals?\.?SIGILL|Signal 4 \(SIGILL\)|\bIllegal instruction\b",
        literals=("exitcode", "SIGILL", "Illegal instruction"),
        example="traceback : Signal 4 (SIGILL) received by PID 4712",
        cause="a library uses instructions that this host's processor does not have",
        check="lscpu | grep -o 'avx[^ ]*' on each host",
        try_this="a build for older processors, or the same environment built on this host",
        weight=6,
    ),
    Signature(
        id="torchrun_arguments",
        kind=Kind.PRIMARY,
        pattern=r"(?:torchrun|run\.py|launch\.py): error: |Unsupported nproc_per_node value",
        literals=("torchrun: error:", "run.py: error:", "launch.py: error:", "Unsupported nproc_per_node"),
        example="torchrun: error: unrecognized arguments: --node-rnk=0",
        cause="torchrun does not know one of its flags, or one is missing; older versions know fewer",
        check="torchrun --help on this host",
        source=TORCH_RUN,
        weight=12,
    ),
    Signature(
        id="local_rank_argument",
        kind=Kind.PRIMARY,
        pattern=r"error: unrecognized arguments: .{0,200}--local[-_]rank",
        literals=("error: unrecognized arguments:",),
        example="train.py: error: unrecognized arguments: --local-rank=0",
        cause="torch.distributed.launch passes --local-rank, and the script does not know that argument",
        try_this="start it with torchrun and read the variable LOCAL_RANK, or add both spellings of the argument",
        known_for="torch < 2.0 writes --local_rank, 2.0 and later --local-rank",
        source=TORCH_RUN,
        weight=18,
    ),
    Signature(
        id="script_arguments",
        kind=Kind.PRIMARY,
        pattern=r"^\S{1,120}: error: (?:unrecognized arguments|the following arguments are required"
        r"|argument [\w/, -]{1,80}:)",
        literals=(": error: ",),
        example="train.py: error: the following arguments are required: --data",
        cause="the script refuses its command line",
        check="the arguments behind the script's name, on each host",
        weight=9,
    ),
    Signature(
        id="not_started_by_torchrun",
        kind=Kind.PRIMARY,
        pattern=r"environment variable (?P<name>[A-Z_]{1,40}) expected, but not set|KeyError: '(?P<name2>LOCAL_RANK"
        r"|RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCAL_WORLD_SIZE)'",
        literals=("expected, but not set", "KeyError: '"),
        example="ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK "
        "expected, but not set",
        cause="the script was started without torchrun: the variable {name} that torchrun gives to each worker is "
        "missing",
        check="how the script was started",
        try_this="torchrun --nproc-per-node N train.py, or ddp-orch run",
        source=TORCH_DISTRIBUTED,
        weight=15,
    ),
    Signature(
        id="script_missing",
        kind=Kind.PRIMARY,
        pattern=r"can't open file '?(?P<file>[^':]{1,300})'?: \[Errno 2\]",
        literals=("can't open file",),
        example="/usr/bin/python3: can't open file '/home/me/train.py': [Errno 2] No such file or directory",
        cause="the script {file} is not on this host",
        check="ls -l {file}",
        try_this="bring the code to every host: ddp-orch sync",
        weight=20,
    ),
    Signature(
        id="another_count_of_ranks",
        kind=Kind.PRIMARY,
        pattern=r"mismatch in (?:rank count|info) from procs|rank \(?\d{1,6}\)? should be (?:within|in) the"
        r"|Invalid rank \d{1,6}, rank should be|more than once.{0,20}ranks received"
        r"|rank \d{1,6} of \d{1,6} ranks.{0,60}already checked in",
        literals=(
            "mismatch in rank count",
            "mismatch in info from",
            "should be within the",
            "should be in the",
            "more than once",
            "checked in",
        ),
        example="bootstrap.cc:231 NCCL WARN Bootstrap Root : mismatch in rank count from procs 4 : 8",
        cause="the processes do not agree on how many they are, or two have one number",
        check="WORLD_SIZE, --nnodes and --nproc-per-node on every host; env | grep -E 'RANK|WORLD|PET_|SLURM_'",
        check_before="environment_clean",
        weight=10,
    ),
)

"""CUDA, its libraries, the driver, and what the kernel says of GPUs."""

from __future__ import annotations

from orchestrator.diagnosis.signatures.signature import CUDA_ERRORS, XID, Kind, Signature

_XID = r"NVRM: Xid \((?P<gpu>[^)]{1,40})\): "

SIGNATURES = (
    Signature(
        id="gpus_enough",
        kind=Kind.PRIMARY,
        pattern=r"invalid device ordinal|AssertionError: Invalid device id|You requested (?:gpu|GPU)s?: "
        r"|insufficient CUDA devices for|No slot '\d{1,3}' specified on host",
        literals=(
            "invalid device ordinal",
            "Invalid device id",
            "You requested gpu",
            "You requested GPU",
            "insufficient CUDA devices",
            "specified on host",
        ),
        example="RuntimeError: CUDA error: invalid device ordinal",
        cause="a rank chose a GPU that this host does not have: more processes than visible GPUs, or the device is "
        "chosen by the global rank",
        check="nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES; --nproc-per-node; torch.cuda.set_device in the script",
        try_this="--nproc-per-node no larger than the number of GPUs, and set_device(LOCAL_RANK)",
        check_before="gpus_enough",
        source=CUDA_ERRORS,
        weight=16,
    ),
    Signature(
        id="kernel_image",
        kind=Kind.PRIMARY,
        pattern=r"no kernel image is available|device kernel image is invalid|invalid value for --gpu-architecture"
        r"|CUDA capability sm_\d{1,4}\w? is not compatible with the current PyTorch"
        r"|GPU\d? .{0,60}is of cuda capability .{0,60}(?:no longer supports|too old)"
        r"|PTX was compiled with an unsupported",
        literals=(
            "no kernel image is available",
            "device kernel image is invalid",
            "invalid value for --gpu-arch",
            "is not compatible with the current PyTorch",
            "of cuda capability",
            "PTX was compiled with an unsupported",
        ),
        example="RuntimeError: CUDA error: no kernel image is available for execution on the device",
        cause="this torch has no code for this GPU: the card is newer than torch, or too old for it",
        check='python -c "import torch; print(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())"',
        try_this="a torch build that lists the card's sm_XX",
        check_before="kernel_image",
        source=CUDA_ERRORS,
        warned=True,
        weight=16,
    ),
    Signature(
        id="gpus_answer.version",
        kind=Kind.PRIMARY,
        pattern=r"Driver/library version mismatch|NVML: .{0,40}version mismatch|API mismatch: the (?:client"
        r"|NVIDIA kernel module)",
        literals=("ibrary version mismatch", "NVML:", "API mismatch: the"),
        example="Failed to initialize NVML: Driver/library version mismatch",
        cause="the NVIDIA driver in the kernel and its libraries are of different versions: the driver was updated "
        "under way",
        check="cat /proc/driver/nvidia/version; nvidia-smi",
        try_this="restart the host; hold the driver's packages back from automatic updates",
        check_before="gpus_answer",
        weight=20,
    ),
    Signature(
        id="gpus_answer",
        kind=Kind.PRIMARY,
        pattern=r"couldn't communicate with the NVIDIA driver|No CUDA GPUs are available"
        r"|Found no NVIDIA driver on your system|no CUDA-capable device is detected"
        r"|Unable to determine the device handle for (?:GPU|gpu)|Failed to initialize NVML"
        r"|CUDA unknown error - this may be due to an incorrectly set up environment|libcuda\.so\.1: cannot open"
        r"|CUDA unavailable, invalid device",
        literals=(
            "communicate with the NVIDIA driver",
            "No CUDA GPUs are available",
            "Found no NVIDIA driver",
            "no CUDA-capable device",
            "Unable to determine the device handle",
            "Failed to initialize NVML",
            "CUDA unknown error",
            "libcuda.so.1",
            "CUDA unavailable, invalid",
        ),
        example="RuntimeError: No CUDA GPUs are available",
        cause="the NVIDIA driver of this host shows no GPU: it is not loaded, the card is lost, or "
        "CUDA_VISIBLE_DEVICES hides it",
        check="nvidia-smi; echo $CUDA_VISIBLE_DEVICES; in a container: whether it was started with --gpus all",
        check_before="gpus_answer",
        source=CUDA_ERRORS,
        warned=True,
        weight=14,
    ),
    Signature(
        id="fabric_manager",
        kind=Kind.PRIMARY,
        pattern=r"system not yet initialized|[Ee]rror 802\b|cudaErrorSystemNotReady",
        literals=("system not yet initialized", "rror 802", "cudaErrorSystemNotReady"),
        example="RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        cause="CUDA waits for the fabric manager of this host's NVSwitches: it does not run, or has another version "
        "than the driver",
        check="systemctl status nvidia-fabricmanager; dpkg -l | grep -i fabricmanager; nvidia-smi",
        try_this="sudo systemctl enable --now nvidia-fabricmanager, of exactly the driver's version",
        check_before="fabric_manager",
        source=CUDA_ERRORS,
        weight=18,
    ),
    Signature(
        id="torch_has_cuda.driver",
        kind=Kind.PRIMARY,
        pattern=r"driver version is insufficient for CUDA runtime|NVIDIA driver on your system is too old"
        r"|forward compatibility was attempted on non supported HW|cudaErrorInsufficientDriver|[Ee]rror 80[34]\b",
        literals=(
            "driver version is insufficient",
            "NVIDIA driver on your system is too old",
            "forward compatibility was",
            "cudaErrorInsufficientDriver",
            "rror 803",
            "rror 804",
        ),
        example="RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your "
        "GPU driver",
        cause="this host's NVIDIA driver is too old for the CUDA that torch was built with",
        check='nvidia-smi | head -4; python -c "import torch; print(torch.version.cuda)"',
        try_this="a newer driver, or torch for an older CUDA",
        check_before="torch_has_cuda",
        source=CUDA_ERRORS,
        warned=True,
        weight=16,
    ),
    Signature(
        id="torch_has_cuda",
        kind=Kind.PRIMARY,
        pattern=r"Torch not compiled with CUDA enabled|ValueError: Cuda is not available",
        literals=("Torch not compiled with CUDA enabled", "ValueError: Cuda is not available"),
        example="AssertionError: Torch not compiled with CUDA enabled",
        cause="the torch of this host is a CPU build",
        check='python -c "import torch; print(torch.__version__, torch.version.cuda)"',
        try_this="install a CUDA build of torch",
        check_before="torch_has_cuda",
        weight=18,
    ),
    Signature(
        id="gpu_memory_free",
        kind=Kind.PRIMARY,
        pattern=r"out of memory.{0,400}[. ]Process (?P<pid>\d{1,9}) has (?P<amount>[\d.]{1,12} [KMGT]iB) memory in use",
        literals=("memory in use",),
        example="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity "
        "of 23.65 GiB of which 1.20 GiB is free. Process 4242 has 18.30 GiB memory in use. Including non-PyTorch "
        "memory, this process has 4.10 GiB memory in use.",
        cause="GPU memory ran out, and another process ({pid}) holds {amount} of it: a run that was left behind, "
        "another user, or a rank on the wrong GPU",
        check="nvidia-smi; ps -o user,etime,args -p {pid}",
        try_this="end that process, or choose another GPU",
        check_before="gpu_memory_free",
        known_for="torch 2.1 and later name the other process",
        source="https://github.com/facebookresearch/fairchem/issues/178",
        weight=15,
    ),
    Signature(
        id="cuda_out_of_memory",
        kind=Kind.PRIMARY,
        pattern=r"CUDA out of memory|CUDA error: out of memory|cuda runtime error \(2\) : out of memory"
        r"|HIP out of memory|CUBLAS_STATUS_ALLOC_FAILED|Cuda failure (?:\d )?'out of memory'|cudaErrorMemoryAllocation",
        literals=(
            "CUDA out of memory",
            "CUDA error: out of memory",
            "cuda runtime error",
            "HIP out of memory",
            "CUBLAS_STATUS_ALLOC_FAILED",
            "Cuda failure",
            "cudaErrorMemoryAllocation",
        ),
        example="RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.70 GiB total capacity)",
        cause="the GPU's memory ran out",
        not_this="not the host's memory. On rank 0 of a host alone: torch.load without map_location puts every rank's "
        "copy on GPU 0",
        check="nvidia-smi before the start: what others hold; which ranks said so",
        try_this='a smaller batch a GPU; torch.load(..., map_location="cpu"); end what killed runs left on the GPUs',
        check_before="gpu_memory_free",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html",
        weight=12,
        suspects=("gpu_memory_free",),
    ),
    Signature(
        id="gpu_busy",
        kind=Kind.PRIMARY,
        pattern=r"all CUDA-capable devices are busy or unavailable|CUDA-capable device\(s\) is/are busy"
        r"|cudaErrorDevicesUnavailable|exclusive-thread device already in use",
        literals=(
            "devices are busy or unavailable",
            "is/are busy or",
            "cudaErrorDevicesUnavailable",
            "exclusive-thread device",
        ),
        example="RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
        cause="the GPU is held by another process and lets no second one in (exclusive mode), or is in a bad state",
        check="nvidia-smi -q | grep -i 'compute mode'; nvidia-smi",
        try_this="sudo nvidia-smi -c DEFAULT, or end the other process",
        check_before="gpu_memory_free",
        source=CUDA_ERRORS,
        weight=14,
    ),
    Signature(
        id="device_side_assert",
        kind=Kind.PRIMARY,
        pattern=r"device-side assert triggered|thread: \[\d{1,5},\d{1,5},\d{1,5}\] Assertion "
        r"`(?P<assertion>[^`]{1,200})` failed",
        literals=("device-side assert triggered", "Assertion `"),
        example="../aten/src/ATen/native/cuda/Indexing.cu:1292: indexSelectLargeIndex: block: [3,0,0], thread: "
        "[0,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
        cause="a value is out of range on the GPU: a label beyond the number of classes, or an index beyond a table",
        not_this="no fault of hosts or drivers; all later CUDA errors of this process follow from it",
        check="labels and indices against num_classes and the embedding's size, in the data of this rank",
        try_this="CUDA_LAUNCH_BLOCKING=1 shows the line; the same batch on the CPU names the index",
        weight=14,
    ),
    Signature(
        id="cuda_illegal_access",
        kind=Kind.PRIMARY,
        pattern=r"an illegal memory access was encountered|misaligned address|an illegal instruction was encountered"
        r"|unspecified launch failure|cudaErrorIllegalAddress",
        literals=(
            "illegal memory access was",
            "misaligned address",
            "illegal instruction was encountered",
            "unspecified launch failure",
            "cudaErrorIllegalAddress",
        ),
        example="RuntimeError: CUDA error: an illegal memory access was encountered",
        cause="a CUDA kernel read or wrote where it must not: a fault in an extension or in a library, rarely of the "
        "card",
        check="CUDA_LAUNCH_BLOCKING=1 names the operation; journalctl -k | grep Xid",
        source=CUDA_ERRORS,
        weight=6,
    ),
    Signature(
        id="cuda_launch_timeout",
        kind=Kind.PRIMARY,
        pattern=r"launch timed out and was terminated",
        literals=("launch timed out and was",),
        example="RuntimeError: CUDA error: the launch timed out and was terminated",
        cause="a CUDA kernel ran longer than allowed on a card that also drives a display, or the card hung",
        check="nvidia-smi -q | grep -i display; journalctl -k | grep Xid",
        try_this="no display on that card, or smaller batches",
        source=CUDA_ERRORS,
        weight=12,
    ),
    Signature(
        id="fork_after_cuda",
        kind=Kind.PRIMARY,
        pattern=r"Cannot re-initialize CUDA in forked subprocess|can't create new processes if CUDA is already"
        r"|CUDA error: initialization error",
        literals=(
            "Cannot re-initialize CUDA in forked",
            "create new processes if CUDA",
            "CUDA error: initialization error",
        ),
        example="RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you "
        "must use the 'spawn' start method",
        cause="a process that had used CUDA was forked, and the child used CUDA too",
        check="CUDA calls in the data set, or before workers are started",
        try_this="keep CUDA out of data loader workers, or multiprocessing_context='spawn'",
        source="https://docs.pytorch.org/docs/stable/notes/multiprocessing.html",
        weight=12,
    ),
    Signature(
        id="gpu_health.memory_errors",
        kind=Kind.PRIMARY,
        pattern=r"uncorrectable ECC error|uncorrectable NVLink error|" + _XID + r"(?:48|63|64|94|95|140)\b",
        literals=("uncorrectable ECC error", "uncorrectable NVLink error", "NVRM: Xid"),
        example="RuntimeError: CUDA error: uncorrectable ECC error encountered",
        cause="a GPU's memory or link is damaged (uncorrectable error)",
        check="nvidia-smi -q -d ECC,ROW_REMAPPER; journalctl -k | grep Xid",
        try_this="reset or take out the card; it needs exchange if it happens again",
        check_before="gpu_health",
        source=XID,
        weight=20,
    ),
    Signature(
        id="gpu_health.lost",
        kind=Kind.PRIMARY,
        pattern=r"GPU has fallen off the bus|GPU is lost|" + _XID + r"79\b",
        literals=("fallen off the bus", "GPU is lost", "NVRM: Xid"),
        example="Nov  3 12:00:01 node-a kernel: NVRM: Xid (PCI:0000:41:00): 79, pid=4712, name=python3, GPU has "
        "fallen off the bus.",
        cause="a GPU fell off the PCI bus: power, heat, a riser, or the card itself",
        check="nvidia-smi; journalctl -k | grep -i 'xid\\|pcie'; power and temperature before it",
        try_this="restart the host without that card; look at power cables",
        check_before="gpu_health",
        source=XID,
        weight=22,
    ),
    Signature(
        id="gpu_health.driver",
        kind=Kind.PRIMARY,
        pattern=_XID + r"(?:61|62|69|74|119|120|121|154)\b|nvidia-nvswitch.{0,60}SXid",
        literals=("NVRM: Xid", "SXid"),
        example="Nov  3 12:00:01 node-a kernel: NVRM: Xid (PCI:0000:41:00): 119, pid=4712, Timeout waiting for RPC "
        "from GSP!",
        cause="the kernel reports a fault of a GPU, its firmware or its NVLink",
        check="the number behind Xid in NVIDIA's list; nvidia-smi -q",
        try_this="reset the GPU or restart the host; a newer driver for 119 and 120",
        check_before="gpu_health",
        source=XID,
        weight=18,
    ),
    Signature(
        id="gpu_health.other_xid",
        kind=Kind.CONTRIBUTING,
        pattern=_XID + r"(?P<xid>\d{1,3})\b",
        literals=("NVRM: Xid",),
        example="Nov  3 12:00:01 node-a kernel: NVRM: Xid (PCI:0000:41:00): 31, pid=4712, name=python3, MMU Fault",
        cause="the kernel logged Xid {xid} for a GPU (13, 31 and 43 come from faulty programs rather than cards)",
        check="the number behind Xid in NVIDIA's list",
        source=XID,
    ),
    Signature(
        id="cuda_library_missing",
        kind=Kind.PRIMARY,
        pattern=r"(?P<library>lib(?:cu|nv|cudnn|nccl)[\w-]{1,40}\.so[.\d]{0,12}): cannot open shared object file"
        r"|Could not load library libcudnn|Unable to load any of \{?libcudnn|CUDA Setup failed despite"
        r"|OSError: libcu\w{1,40}",
        literals=(
            "cannot open shared object file",
            "Could not load library libcudnn",
            "libcudnn",
            "OSError: libcu",
            "CUDA Setup failed",
        ),
        example="OSError: libcublas.so.12: cannot open shared object file: No such file or directory",
        cause="a CUDA library that torch needs is not found: {library}",
        check="echo $LD_LIBRARY_PATH; pip list | grep nvidia",
        try_this="reinstall torch with its nvidia-* packages, in one go",
        check_before="torch_family_fits",
        weight=12,
    ),
    Signature(
        id="cudnn_versions",
        kind=Kind.PRIMARY,
        pattern=r"cuDNN version incompatibility|CUDNN_STATUS_(?:SUBLIBRARY_\w{1,30}|VERSION_MISMATCH)",
        literals=("cuDNN version incompatibility", "CUDNN_STATUS_SUBLIBRARY", "CUDNN_STATUS_VERSION"),
        example="RuntimeError: cuDNN version incompatibility: PyTorch was compiled against (8, 9, 2) but found "
        "runtime version (8, 5, 0)",
        cause="another cuDNN comes first on the loader's path than the one that torch was built with",
        check="echo $LD_LIBRARY_PATH; ldconfig -p | grep cudnn",
        try_this="unset LD_LIBRARY_PATH",
        weight=14,
    ),
    Signature(
        id="cuda_library_call_failed",
        kind=Kind.PRIMARY,
        pattern=r"(?P<status>CUBLAS_STATUS_(?!ALLOC)\w{1,30}|CUDNN_STATUS_(?!SUBLIB|VERSION)\w{1,30}|CUFFT_\w{1,30}"
        r"|CUSOLVER_STATUS_\w{1,30})|unable to find an engine to execute|Unable to find a valid cuDNN algorithm",
        literals=(
            "CUBLAS_STATUS_",
            "CUDNN_STATUS_",
            "CUFFT_",
            "CUSOLVER_STATUS_",
            "unable to find an engine",
            "Unable to find a valid cuDNN",
        ),
        example="RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        cause="a CUDA library refused a call ({status}); most often the GPU's memory is full, or an index was out of "
        "range before",
        check="nvidia-smi; CUDA_LAUNCH_BLOCKING=1 for the operation",
        weight=4,
    ),
)

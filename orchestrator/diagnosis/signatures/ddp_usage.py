"""How scripts use DDP, collectives and checkpoints."""

from __future__ import annotations

from orchestrator.diagnosis.signatures.signature import TORCH_DDP, TORCH_DISTRIBUTED, Kind, Signature

_SERIAL = "https://docs.pytorch.org/docs/stable/notes/serialization.html"

SIGNATURES = (
    Signature(
        id="unused_parameters",
        kind=Kind.PRIMARY,
        pattern=r"Expected to have finished reduction in the prior iteration",
        literals=("Expected to have finished reduction",),
        example="RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. "
        "This error indicates that your module has parameters that were not used in producing loss.",
        cause="some parameters took no part in the loss of a step, and DDP waited for their gradients",
        check="TORCH_DISTRIBUTED_DEBUG=DETAIL names the parameters",
        try_this="freeze or remove them, use every output, or DistributedDataParallel(..., "
        "find_unused_parameters=True)",
        confirms="TORCH_DISTRIBUTED_DEBUG=DETAIL",
        source=TORCH_DDP,
        weight=16,
    ),
    Signature(
        id="marked_ready_twice",
        kind=Kind.PRIMARY,
        pattern=r"Expected to mark a variable ready only once|has been marked as ready twice",
        literals=("Expected to mark a variable ready", "marked as ready twice"),
        example="RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the "
        "following reasons",
        cause="a parameter got its gradient twice in one backward pass: activation checkpointing (reentrant), weights "
        "shared across forward calls, or find_unused_parameters=True where nothing is unused",
        try_this="checkpoint(..., use_reentrant=False), no find_unused_parameters, or static_graph=True",
        source=TORCH_DDP,
        weight=16,
    ),
    Signature(
        id="model_differs",
        kind=Kind.PRIMARY,
        pattern=r"DDP expects same model across all ranks, but Rank \d{1,6} has \d{1,9} params, while rank "
        r"(?P<rank>\d{1,6}) has inconsistent [1-9]|params\[\d{1,9}\] in this process with (?:sizes|strides) "
        r"|appears not to match (?:sizes|strides) of the same param",
        literals=("DDP expects same model", "in this process with", "appears not to match"),
        example="RuntimeError: DDP expects same model across all ranks, but Rank 0 has 161 params, while rank 1 has "
        "inconsistent 159 params.",
        cause="the ranks built different models: other code, configuration or number of classes",
        check="the code and configuration on each host; what of the model depends on the data of the rank",
        try_this="one copy of the code on all hosts: ddp-orch sync",
        source="https://github.com/pytorch/pytorch/issues/76449",
        weight=15,
    ),
    Signature(
        id="ddp_device",
        kind=Kind.PRIMARY,
        pattern=r"DistributedDataParallel device_ids and output_device arguments only work"
        r"|DistributedDataParallel's input module must be on the same type"
        r"|device_ids can only be None or contain a single element"
        r"|module must have its parameters and buffers on device|Module and device_ids",
        literals=(
            "DistributedDataParallel device_ids and",
            "DistributedDataParallel's input module",
            "device_ids can only be None",
            "module must have its parameters",
            "device_ids",
        ),
        example="ValueError: DistributedDataParallel device_ids and output_device arguments only work with "
        "single-device/multiple-device GPU modules or CPU modules, but got device_ids [0]",
        cause="device_ids does not fit where the model is",
        try_this="model.to(device) first; device_ids=[LOCAL_RANK] for one GPU a process, none for the CPU",
        source=TORCH_DDP,
        weight=14,
    ),
    Signature(
        id="ddp_nothing_to_train",
        kind=Kind.PRIMARY,
        pattern=r"DistributedDataParallel is not needed when a module doesn't have any parameters"
        r"|element 0 of tensors does not require grad|optimizer got an empty parameter list",
        literals=("DistributedDataParallel is not needed", "tensors does not require", "got an empty parameter list"),
        example="RuntimeError: DistributedDataParallel is not needed when a module doesn't have any parameters that "
        "require a gradient.",
        cause="nothing in the model is to be trained: all parameters are frozen, or the loss does not depend on them",
        check="requires_grad of the parameters at this point",
        source=TORCH_DDP,
        weight=12,
    ),
    Signature(
        id="devices_differ",
        kind=Kind.PRIMARY,
        pattern=r"Expected all tensors to be on the same device|to have the same device as tensor for argument"
        r"|Input type \(torch\.(?:cuda\.)?\w{1,30}\) and weight type",
        literals=("Expected all tensors to be on the same", "to have the same device as tensor", "and weight type"),
        example="RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 "
        "and cuda:1!",
        cause="tensors of one operation are on different devices: often a fixed cuda:0 where the rank's own GPU "
        "belongs",
        check='"cuda:0", .cuda() and map_location in the script',
        try_this="torch.cuda.set_device(LOCAL_RANK), and .to(device) for inputs",
        check_before="script_fits",
        weight=10,
    ),
    Signature(
        id="in_place_change",
        kind=Kind.PRIMARY,
        pattern=r"variables needed for gradient computation has been modified by an inplace operation",
        literals=("has been modified by an inplace",),
        example="RuntimeError: one of the variables needed for gradient computation has been modified by an inplace "
        "operation",
        cause="a tensor that the backward pass needs was overwritten; with DDP often because a module with buffers "
        "(batch norm) was called twice before backward",
        try_this="DistributedDataParallel(..., broadcast_buffers=False), or one forward call a backward",
        confirms="torch.autograd.set_detect_anomaly(True)",
        source=TORCH_DDP,
        weight=10,
    ),
    Signature(
        id="group_initialized_twice",
        kind=Kind.PRIMARY,
        pattern=r"trying to initialize the default process group twice",
        literals=("initialize the default process group twice",),
        example="ValueError: trying to initialize the default process group twice!",
        cause="init_process_group was called twice in one process, perhaps by a library too",
        try_this="if not dist.is_initialized(): dist.init_process_group(...)",
        source=TORCH_DISTRIBUTED,
        weight=14,
    ),
    Signature(
        id="group_not_initialized",
        kind=Kind.PRIMARY,
        pattern=r"[Dd]efault process group (?:has not been|is not) initialized",
        literals=("efault process group has not been", "efault process group is not"),
        example="ValueError: Default process group has not been initialized, please make sure to call "
        "init_process_group.",
        cause="a collective or DDP was used before init_process_group, or after destroy_process_group",
        try_this="call init_process_group first, in every process",
        source=TORCH_DISTRIBUTED,
        weight=12,
    ),
    Signature(
        id="invalid_rank",
        kind=Kind.PRIMARY,
        pattern=r"the new group's rank should be within|[Gg]roup rank is not set"
        r"|Global rank \d{1,6} is not part of group|world_size.{0,40}(?:not divisible|is not equal)"
        r"|is not divisible by (?:tensor|pipeline|data)",
        literals=(
            "the new group's rank should",
            "roup rank is not set",
            "is not part of group",
            "world_size",
            "is not divisible by",
        ),
        example="ValueError: the new group's rank should be within the world_size set by init_process_group",
        cause="ranks or groups do not fit the number of processes (world size)",
        check="WORLD_SIZE against what the script expects",
        source=TORCH_DISTRIBUTED,
        weight=10,
    ),
    Signature(
        id="main_not_guarded",
        kind=Kind.PRIMARY,
        pattern=r"attempt has been made to start a new process before the|freeze_support\(\)",
        literals=("attempt has been made to start a new", "freeze_support()"),
        example="RuntimeError: An attempt has been made to start a new process before the current process has "
        "finished its bootstrapping phase.",
        cause='the script starts processes while it is being imported: the line if __name__ == "__main__": is missing',
        try_this='put the start under if __name__ == "__main__":',
        source="https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods",
        weight=16,
    ),
    Signature(
        id="start_method_set",
        kind=Kind.PRIMARY,
        pattern=r"context has already been set",
        literals=("context has already been set",),
        example="RuntimeError: context has already been set",
        cause="multiprocessing's start method was set twice",
        try_this="set_start_method(..., force=True), or only once",
        weight=10,
    ),
    Signature(
        id="ddp_attribute",
        kind=Kind.PRIMARY,
        pattern=r"'(?:DistributedDataParallel|DDP)' object has no attribute '(?P<name>\w{1,80})'",
        literals=("DistributedDataParallel' object has no attribute", "DDP' object has no attribute"),
        example="AttributeError: 'DistributedDataParallel' object has no attribute 'encode'",
        cause="the model is wrapped in DDP: its own attribute {name} is one step further in",
        try_this="model.module.{name}",
        source=TORCH_DDP,
        weight=14,
    ),
    Signature(
        id="checkpoint_keys",
        kind=Kind.PRIMARY,
        pattern=r"Error\(s\) in loading state_dict|Missing key\(s\) in state_dict|Unexpected key\(s\) in state_dict",
        literals=("in loading state_dict", "Missing key(s) in", "Unexpected key(s) in"),
        example="RuntimeError: Error(s) in loading state_dict for DistributedDataParallel:",
        cause="the checkpoint is of another model, or was saved with (or without) the DDP wrapper, which puts module. "
        "before each name",
        try_this="save model.module.state_dict(), and load into the model before it is wrapped",
        source=TORCH_DDP,
        weight=12,
    ),
    Signature(
        id="checkpoint_damaged",
        kind=Kind.PRIMARY,
        pattern=r"PytorchStreamReader failed|failed finding central directory|invalid load key|not a ZIP archive"
        r"|pickle data was truncated|unexpected EOF, expected \d|storage has wrong (?:byte )?size|SafetensorError"
        r"|Error while deserializing header",
        literals=(
            "PytorchStreamReader failed",
            "failed finding central directory",
            "invalid load key",
            "not a ZIP archive",
            "pickle data was truncated",
            "unexpected EOF, expected",
            "storage has wrong",
            "SafetensorError",
            "deserializing header",
        ),
        example="RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        cause="a checkpoint is not whole: it was cut off while it was written, is being written by another rank, or "
        "is only a pointer of Git LFS",
        check="ls -l of the file on each host; head -c 100 FILE",
        try_this="save from rank 0 alone under another name, then rename; load an older one",
        source=_SERIAL,
        weight=13,
    ),
    Signature(
        id="checkpoint_device",
        kind=Kind.PRIMARY,
        pattern=r"Attempting to deserialize object on (?:a )?CUDA device",
        literals=("Attempting to deserialize object on",),
        example="RuntimeError: Attempting to deserialize object on CUDA device 1 but torch.cuda.device_count() is 1.",
        cause="a checkpoint was saved on a GPU that this host does not have",
        try_this='torch.load(..., map_location="cpu")',
        source=_SERIAL,
        weight=14,
    ),
    Signature(
        id="checkpoint_weights_only",
        kind=Kind.PRIMARY,
        pattern=r"Weights only load failed|WeightsUnpickler error",
        literals=("Weights only load failed", "WeightsUnpickler error"),
        example="_pickle.UnpicklingError: Weights only load failed. This file can still be loaded",
        cause="the checkpoint holds more than tensors, which torch 2.6 and later refuse to load by default",
        try_this="torch.load(..., weights_only=False) for files that you trust",
        known_for="torch 2.6 and later",
        source=_SERIAL,
        weight=14,
    ),
    Signature(
        id="loss_not_finite",
        kind=Kind.PRIMARY,
        pattern=r"[Ll]oss is nan, stopping|returned nan values in its 0th output|[Ll]oss (?:is|became) (?:nan|inf|NaN"
        r"|not finite)|non-finite (?:loss|gradient)|[Cc]urrent loss scale already at minimum"
        r"|AMP scale.{0,30}(?:minimum|underflow)",
        literals=(
            "oss is nan",
            "returned nan values",
            "oss is ",
            "oss became",
            "non-finite",
            "urrent loss scale already",
            "AMP scale",
        ),
        example="Loss is nan, stopping training",
        cause="the loss became infinite or no number",
        check="learning rate, mixed precision, the batch of that step",
        confirms="torch.autograd.set_detect_anomaly(True)",
        weight=10,
    ),
    Signature(
        id="batch_of_one",
        kind=Kind.PRIMARY,
        pattern=r"Expected more than 1 value per channel when training",
        literals=("Expected more than 1 value per channel",),
        example="ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 256])",
        cause="batch norm got a batch of one: the last batch of this rank's share is that small",
        try_this="drop_last=True in the loader",
        weight=12,
    ),
    Signature(
        id="not_contiguous",
        kind=Kind.PRIMARY,
        pattern=r"Tensors must be (?:contiguous|non-overlapping and dense)|input tensor must be (?:the same size"
        r"|contiguous)|tensor list must be (?:on the same|distributed)",
        literals=(
            "Tensors must be contiguous",
            "Tensors must be non-overlapping",
            "input tensor must be",
            "tensor list must be",
        ),
        example="ValueError: Tensors must be contiguous",
        cause="a collective was given a tensor that it cannot take: not contiguous, or of another size",
        try_this=".contiguous() before the call; equal sizes on all ranks",
        source=TORCH_DISTRIBUTED,
        weight=9,
    ),
    Signature(
        id="batch_sizes_do_not_fit",
        kind=Kind.PRIMARY,
        pattern=r"Check batch related parameters|(?:batch|BATCH)[\w -]{0,30}(?:must be (?:a )?multiple of"
        r"|not (?:a )?multiple of|is not divisible by)",
        literals=("Check batch related parameters", "multiple of", "is not divisible by"),
        example="AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu "
        "* gradient_acc_step * world_size 32 != 4 * 1 * 4",
        cause="the batch size does not fit the number of processes",
        check="the batch size of the configuration against WORLD_SIZE",
        weight=13,
    ),
    Signature(
        id="precision_not_supported",
        kind=Kind.PRIMARY,
        pattern=r"Your setup doesn't support bf16|doesn't support (?:bf16|bfloat16)"
        r"|\"\w{1,60}\" not implemented for '(?P<dtype>Half|BFloat16)'",
        literals=(
            "doesn't support bf16",
            "doesn't support bfloat16",
            "not implemented for 'Half'",
            "not implemented for 'BFloat16'",
        ),
        example="ValueError: Your setup doesn't support bf16/gpu. You need torch>=1.10, using Ampere GPU with "
        "cuda>=11.0",
        cause="this device cannot compute in the precision that was asked for",
        check="whether all hosts have the same GPUs",
        try_this="fp16 or fp32 there",
        check_before="gpus_match",
        weight=12,
    ),
)

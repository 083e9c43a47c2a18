"""Data sets, their files, and data loaders."""

from __future__ import annotations

from orchestrator.diagnosis.signatures.signature import Kind, Signature

SIGNATURES = (
    Signature(
        id="data_is_there",
        kind=Kind.PRIMARY,
        pattern=r"^\s{0,8}(?:builtins\.)?(?:FileNotFoundError"
        r"|NotADirectoryError)\b(?:: .{0,300}?(?:No such file or directory|Couldn't find"
        r"|not found).{0,4}? ?'?(?P<file>[^':]{1,300}))?|Unable to (?:synchronously )?open file.{0,80}No such file",
        literals=(
            "FileNotFoundError",
            "NotADirectoryError",
            "Unable to open file",
            "Unable to synchronously open file",
        ),
        example="FileNotFoundError: [Errno 2] No such file or directory: '/data/train.idx'",
        cause="a file is not on this host ({file}): data that was not brought there, or that the first host made on "
        "its own disk",
        check="ls -l {file} on every host",
        try_this="a shared file system, or the data on every host: ddp-orch sync --data",
        check_before="data_is_there",
        source="https://github.com/NVIDIA/Megatron-LM/issues/1355",
        weight=7,
    ),
    Signature(
        id="data_is_there.empty",
        kind=Kind.PRIMARY,
        pattern=r"num_samples should be a positive integer value, but got num_samples=0"
        r"|Found no valid file for the classes|Couldn't find any class folder|Found 0 (?:files|images) in",
        literals=(
            "but got num_samples=",
            "Found no valid file for",
            "find any class folder",
            "Found 0 files",
            "Found 0 images",
        ),
        example="ValueError: num_samples should be a positive integer value, but got num_samples=0",
        cause="the data set is empty on this host",
        check="ls of the data's folder on every host",
        try_this="the data on every host: ddp-orch sync --data",
        check_before="data_is_there",
        weight=14,
    ),
    Signature(
        id="data_is_there.dataset",
        kind=Kind.PRIMARY,
        pattern=r"Dataset not found\. You can use download=True|DatasetNotFoundError|Couldn't find a dataset script"
        r"|Dataset .{1,80} (?:doesn't exist|not found)|Couldn't find '\S{1,200}' on the Hugging Face",
        literals=(
            "Dataset not found.",
            "DatasetNotFoundError",
            "Couldn't find a dataset",
            "Dataset ",
            "on the Hugging Face",
        ),
        example="RuntimeError: Dataset not found. You can use download=True to download it",
        cause="the data set is not on this host",
        try_this="fetch it once on every host before the start, or sync it there",
        check_before="data_is_there",
        weight=13,
    ),
    Signature(
        id="data_download",
        kind=Kind.PRIMARY,
        pattern=r"HTTP Error (?P<status>[45]\d\d)|urlopen error|(?:HTTPError|HfHubHTTPError): (?P<status2>[45]\d\d) "
        r"|Max retries exceeded with url|We couldn't connect to 'https?://|LocalEntryNotFoundError"
        r"|OfflineModeIsEnabled|[Cc]annot (?:reach|find) the (?:requested )?.{0,40}(?:hub|huggingface)"
        r"|ReadTimeoutError|requests\.exceptions\.\w{1,40}|NewConnectionError|Error downloading|ProxyError"
        r"|GatedRepoError|RepositoryNotFoundError",
        literals=(
            "HTTP Error",
            "urlopen error",
            "HTTPError:",
            "Max retries exceeded",
            "We couldn't connect to",
            "LocalEntryNotFoundError",
            "OfflineModeIsEnabled",
            "requests.exceptions.",
            "NewConnectionError",
            "annot reach the",
            "annot find the",
            "ReadTimeoutError",
            "Error downloading",
            "ProxyError",
            "GatedRepoError",
            "RepositoryNotFoundError",
        ),
        example="urllib.error.HTTPError: HTTP Error 403: Forbidden",
        cause="something could not be downloaded: the server refused, or this host has no way to it",
        check="curl -I of that address on this host; HTTP(S)_PROXY, HF_HUB_OFFLINE",
        try_this="download it once, bring it to all hosts, and switch download=True off",
        check_before="data_is_there",
        source="https://github.com/pytorch/vision/issues/1938",
        weight=8,
    ),
    Signature(
        id="data_damaged",
        kind=Kind.PRIMARY,
        pattern=r"[Ff]ile not found or corrupted|Dataset not found or corrupted|UnidentifiedImageError"
        r"|cannot identify image file|image file is truncated|broken data stream when reading|BadZipFile|BadGzipFile"
        r"|Compressed file ended before|Error -3 while decompressing|[Tt]runcated (?:or corrupted|file)|(?:MD5"
        r"|[Cc]hecksum|hash) (?:mismatch|doesn't match|does not match)|ArrowInvalid|NonMatchingChecksum"
        r"|truncated header|ReadError: (?:unexpected end|not a gzip)",
        literals=(
            "ile not found or corrupted",
            "Dataset not found or corrupted",
            "UnidentifiedImageError",
            "cannot identify image",
            "image file is truncated",
            "broken data stream",
            "BadZipFile",
            "BadGzipFile",
            "Compressed file ended",
            "while decompressing",
            "runcated or corrupted",
            "runcated file",
            "mismatch",
            "t match",
            "not match",
            "ArrowInvalid",
            "NonMatchingChecksum",
            "truncated header",
            "ReadError:",
        ),
        example="RuntimeError: File not found or corrupted.",
        cause="a file of the data is damaged or half there; often several ranks downloaded or unpacked it into one "
        "folder at once",
        check="size and checksum of the file on each host",
        try_this="remove it, fetch it once a host (rank 0, then barrier), and start again",
        check_before="script_fits",
        source="https://github.com/pytorch/tutorials/issues/3065",
        weight=11,
    ),
    Signature(
        id="made_twice",
        kind=Kind.PRIMARY,
        pattern=r"FileExistsError: \[Errno 17\].{0,20}: '?(?P<file>[^']{1,300})"
        r"|No such file or directory: '.{0,300}tmp-checkpoint|Directory not empty: '.{0,300}(?:checkpoint|tmp)",
        literals=("FileExistsError: [Errno 17]", "No such file or directory: '", "Directory not empty: '"),
        example="FileExistsError: [Errno 17] File exists: '/data/out/cache'",
        cause="several ranks made, moved or removed the same file or folder at once",
        check="what the script does on all ranks that one should do alone",
        try_this="do it on rank 0 alone, then barrier; os.makedirs(..., exist_ok=True)",
        check_before="script_fits",
        weight=9,
    ),
    Signature(
        id="not_picklable",
        kind=Kind.PRIMARY,
        pattern=r"Can't pickle |[Cc]annot pickle '?|Can't get attribute '\S{1,100}' on|Can't get local object",
        literals=("Can't pickle ", "annot pickle ", "Can't get attribute", "Can't get local object"),
        example="AttributeError: Can't pickle local object 'main.<locals>.<lambda>'",
        cause="something that is handed to another process cannot be pickled: a lambda, a local class, an open file",
        check="what the data set, collate_fn and worker_init_fn hold",
        try_this="define it at the top of a module; num_workers=0 to see that the rest works",
        source="https://docs.python.org/3/library/pickle.html",
        weight=12,
    ),
    Signature(
        id="samples_differ_in_size",
        kind=Kind.PRIMARY,
        pattern=r"stack expects each tensor to be equal size|each element in list of batch should be of equal size"
        r"|Trying to resize storage that is not resizable",
        literals=("stack expects each tensor", "each element in list of batch", "Trying to resize storage"),
        example="RuntimeError: stack expects each tensor to be equal size, but got [3, 224, 224] at entry 0 and [1, "
        "224, 224] at entry 1",
        cause="the samples of one batch have different sizes",
        try_this="a transform that makes them alike, or a collate_fn of your own",
        weight=12,
    ),
    Signature(
        id="loader_worker_crashed",
        kind=Kind.PRIMARY,
        pattern=r"DataLoader worker \(pid.{1,40}\) is killed by signal: (?P<signal>Segmentation fault"
        r"|Floating point exception|Illegal instruction)",
        literals=("DataLoader worker (pid",),
        example="RuntimeError: DataLoader worker (pid 4713) is killed by signal: Segmentation fault. ",
        cause="a data loader worker crashed in compiled code ({signal})",
        check="num_workers=0 with PYTHONFAULTHANDLER=1; versions of the libraries that read the data",
        check_before="torch_family_fits",
        weight=12,
    ),
    Signature(
        id="data_locked",
        kind=Kind.PRIMARY,
        pattern=r"unable to lock file|filelock.{0,20}Timeout|The file lock '.{1,200}' could not be acquired"
        r"|database is locked|BlockingIOError.{0,80}lock",
        literals=("unable to lock file", "filelock", "could not be acquired", "database is locked", "BlockingIOError"),
        example="BlockingIOError: [Errno 11] Unable to synchronously open file (unable to lock file, errno = 11)",
        cause="several processes want the same file for themselves, or a lock was left behind",
        check="*.lock files beside it; whether the file system knows locks (NFS)",
        try_this="HDF5_USE_FILE_LOCKING=FALSE for reading; remove the old lock",
        weight=13,
    ),
    Signature(
        id="tracker_login",
        kind=Kind.PRIMARY,
        pattern=r"wandb\.errors\.\S{0,40}(?:UsageError|AuthenticationError|CommError)|api_key not configured"
        r"|wandb: ERROR",
        literals=("wandb.errors.", "api_key not configured", "wandb: ERROR"),
        example="wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        cause="the experiment tracker has no login on this host, or cannot be reached",
        try_this="WANDB_MODE=offline, or the key in WANDB_API_KEY",
        weight=12,
    ),
)

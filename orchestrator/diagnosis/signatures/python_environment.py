"""Packages and versions that do not fit."""

from __future__ import annotations

from orchestrator.diagnosis.signatures.signature import Kind, Signature

SIGNATURES = (
    Signature(
        id="torch_installed",
        kind=Kind.PRIMARY,
        pattern=r"No module named '?torch'?(?:\.distributed\.run)?'?\s{0,4}$",
        literals=("No module named",),
        example="ModuleNotFoundError: No module named 'torch'",
        cause="the interpreter that was started has no torch",
        check="which python on that host, in a shell that ssh starts; PYTHON -m pip show torch",
        try_this="the full path of the environment's interpreter",
        check_before="torch_installed",
        weight=18,
    ),
    Signature(
        id="modules_installed",
        kind=Kind.PRIMARY,
        pattern=r"(?:ModuleNotFoundError: |ImportError: |: )No module named '?(?P<name>[\w.]{1,100})'?",
        literals=("No module named",),
        example="ModuleNotFoundError: No module named 'tensorboard'",
        cause="the package {name} is missing on this host, or torchrun belongs to another interpreter than the one "
        "that has it",
        check="head -1 $(which torchrun); PYTHON -m pip show {name}",
        try_this="install {name} there, or start with PYTHON -m torch.distributed.run",
        check_before="modules_installed",
        source="https://github.com/pytorch/pytorch/issues/77737",
        weight=15,
        suspects=("torchrun_is_the_interpreters",),
    ),
    Signature(
        id="torch_family_fits",
        kind=Kind.PRIMARY,
        pattern=r"undefined symbol: ?(?P<symbol>_Z\w{1,300}|\w{0,40}(?:torch|c10|at)\w{0,100})"
        r"|operator torchvision::nms does not exist|partially initialized module 'torchvision' has no attribute"
        r"|torch.{0,80}was compiled (?:against|with) .{0,60}(?:different|but)|Couldn't load custom C\+\+ ops"
        r"|PyTorch and torchvision (?:versions )?.{0,40}(?:mismatch|incompatible)"
        r"|has different CUDA (?:major )?versions",
        literals=(
            "undefined symbol:",
            "torchvision::nms does not exist",
            "partially initialized module 'torchvision'",
            "was compiled",
            "load custom C++ ops",
            "PyTorch and torchvision",
            "has different CUDA",
        ),
        example="ImportError: /opt/venv/lib/python3.11/site-packages/my_op.so: undefined symbol: "
        "_ZN3c104impl3cow15cow_deleterE",
        cause="a compiled library was built for another torch than the one that is installed here",
        check="pip list | grep -i 'torch\\|flash\\|apex\\|xformers'",
        try_this="install torch, torchvision, torchaudio and extensions as one matching set",
        check_before="torch_family_fits",
        weight=14,
    ),
    Signature(
        id="system_library_missing",
        kind=Kind.PRIMARY,
        pattern=r"(?P<library>lib(?!cu|nv|nccl)[\w.+-]{1,60}\.so[.\d]{0,12}): cannot open shared object file",
        literals=("cannot open shared object file",),
        example="ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
        cause="a library of the system is missing on this host: {library}",
        check="ldconfig -p | grep {library}, on every host",
        try_this="install the system's package that has it",
        weight=12,
    ),
    Signature(
        id="numpy_does_not_fit",
        kind=Kind.PRIMARY,
        pattern=r"numpy\.core\.multiarray failed to import|numpy\._core.{0,60}(?:No module|failed)"
        r"|numpy\.dtype size changed|Numpy is not available",
        literals=("multiarray failed to import", "numpy._core", "numpy.dtype size changed", "Numpy is not available"),
        example="RuntimeError: Numpy is not available",
        cause="numpy is of another major version than what a package was built for, or is missing",
        check="pip list | grep -i numpy on each host",
        try_this="pip install 'numpy<2', or newer builds of the others",
        check_before="modules_installed",
        weight=13,
    ),
    Signature(
        id="versions_differ",
        kind=Kind.PRIMARY,
        pattern=r"cannot import name '(?P<name>\w{1,80})' from (?:partially initialized module "
        r")?'(?P<module>[\w.]{1,100})'|module '(?P<of>[\w.]{1,80})' has no attribute '(?P<attribute>\w{1,80})'"
        r"|requires? .{1,40} but (?:found|you have) |is required for a normal functioning",
        literals=("cannot import name", "has no attribute", " but found", " but you have ", "for a normal functioning"),
        example="ImportError: cannot import name 'packaging' from 'pkg_resources' "
        "(/opt/venv/lib/pkg_resources/__init__.py)",
        cause="a package is of another version than the one that the script or another package expects",
        check="pip list on each host, side by side",
        try_this="one lock file for all hosts",
        check_before="torch_matches",
        weight=9,
    ),
    Signature(
        id="python_matches.syntax",
        kind=Kind.PRIMARY,
        pattern=r"^(?:\s{0,4})SyntaxError: |^IndentationError: |unsupported pickle protocol: \d",
        literals=("SyntaxError:", "IndentationError:", "unsupported pickle protocol"),
        example="SyntaxError: invalid syntax",
        cause="Python cannot read the script: a slip of the pen, or a Python that is too old for it on this host",
        check="python --version on each host; python -m py_compile SCRIPT",
        check_before="python_matches",
        weight=12,
    ),
    Signature(
        id="compiler_missing",
        kind=Kind.PRIMARY,
        pattern=r"detected CUDA version .{1,20} mismatches|cannot find -lcuda"
        r"|Error building extension '(?P<name>[\w-]{1,60})'|Ninja is required to load C\+\+"
        r"|CUDA_HOME environment variable is not set|Failed to find C compiler|nvcc.{0,20}not found"
        r"|Python\.h: No such file",
        literals=(
            "detected CUDA version",
            "cannot find -l",
            "Error building extension",
            "Ninja is required",
            "CUDA_HOME environment variable",
            "Failed to find C compiler",
            "nvcc",
            "Python.h: No such file",
        ),
        example="RuntimeError: Error building extension 'fused_adam'",
        cause="an extension is compiled at the start, and the tools for it are missing or do not fit on this host",
        check="which nvcc gcc ninja; echo $CUDA_HOME",
        try_this="install them on every host, or a ready-made wheel",
        weight=12,
    ),
)

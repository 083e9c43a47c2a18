"""Is the NCCL that would be loaded the one that came with torch?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.facts import Facts
    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="nccl_library",
    title="NCCL that is loaded",
    why="another libnccl comes first on the loader's path: a start that fails, or another version than the peers'",
    source="NCCL issues 554 and 1267; torch's wheels name their own by RPATH, which only LD_PRELOAD overrides; other "
    "builds look into LD_LIBRARY_PATH first",
    group="parity",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Warn of another NCCL that the login shell puts first; fail where several are installed in Python's packages."""
    for host, facts in survey.gpu_hosts():
        if facts.torch is None or not facts.torch.cuda:
            continue
        packages = sorted(
            f"{name} {version}" for name, version in facts.packages.items() if name.startswith("nvidia-nccl")
        )
        preferred = next((one for one in facts.other_nccl if one.preferred), None)
        preloaded = "libnccl" in facts.env.get("LD_PRELOAD", "")
        if len(packages) > 1:
            extra = [package.partition(" ")[0] for package in packages if not _fits(package, facts)] or [packages[0]]
            yield QUESTION.warn(
                host.name,
                " and ".join(packages) + " are both installed",
                wanted=f"that of CUDA {facts.torch.cuda} only",
                try_this=f"on the host: {facts.python} -m pip uninstall {extra[0].partition(' ')[0]}",
            )
        elif preloaded:
            yield _warn(host.name, f"LD_PRELOAD={facts.env['LD_PRELOAD']}", packages, "LD_PRELOAD")
        elif preferred is not None and preferred.version not in ("", facts.nccl_version):
            seen = f"LD_LIBRARY_PATH leads to {preferred.path} ({preferred.version})"
            yield _warn(host.name, seen, packages, "LD_LIBRARY_PATH")
        else:
            yield QUESTION.ok(host.name, packages[0].partition(" ")[2] if packages else "built in")


def _warn(host: str, seen: str, packages: list[str], variable: str) -> Finding:
    return QUESTION.warn(
        host,
        seen,
        wanted=packages[0] if packages else "the NCCL that torch was built with",
        try_this=f"take {variable} out of the start files of the login shell there, or set it in the inventory (env:)",
    )


def _fits(package: str, facts: Facts) -> bool:
    major = facts.torch.cuda.partition(".")[0] if facts.torch else ""
    return package.partition(" ")[0].endswith(f"cu{major}")

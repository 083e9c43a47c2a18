"""Does the script do what breaks under torchrun, as far as its text tells?"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="script_fits",
    title="the script, as its text tells",
    why="what works with one process breaks with several",
    source="Megatron-LM issue 661, pytorch issues 23138 and 85604, pytorch tutorials issue 3065",
    group="script",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Warn of well-known traps. Findings are put on the first host: the script is the same everywhere."""
    if not survey.script or not survey.facts:
        return
    first = next(iter(survey.facts))
    try:
        tree = ast.parse(survey.script)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        yield QUESTION.fail(
            first,
            f"the script is no Python that can be read: {error.args[0] if error.args else error}"
            + (f" (line {line})" if line else ""),
            wanted="a script that starts",
            consequence="every rank ends at once",
            try_this="python -m py_compile SCRIPT",
        )
        return
    traps = list(_traps(tree, survey))
    for seen, consequence, try_this in traps:
        yield QUESTION.warn(first, seen, consequence=consequence, try_this=try_this)
    if not traps:
        yield QUESTION.ok(first, "nothing found")


def _traps(tree: ast.Module, survey: Survey) -> Iterator[tuple[str, str, str]]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    by_rank = "LOCAL_RANK" in words or bool(
        names & {"local_rank", "LOCAL_RANK", "get_node_local_rank", "local_process_index"}
    )
    most = max(host.nproc for host in survey.inventory.hosts)
    gpus = any(host.gpu_count > 1 for host in survey.inventory.hosts)
    fixed = sorted(word for word in words if word in ("cuda:0", "cuda"))
    if gpus and fixed and not by_rank:
        yield (
            f"line {_line_of(tree, fixed[0])}: the device is {fixed[0]!r} for every rank, and LOCAL_RANK is not read",
            'all ranks of a host use one GPU: out of memory, or "Duplicate GPU detected"',
            'torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything else of CUDA',
        )
    for call in calls:
        name, given = _name_of(call), {word.arg: word.value for word in call.keywords}
        if name == "torch.load" and "map_location" not in given and len(call.args) < 2 and gpus:
            yield (
                f"line {call.lineno}: torch.load without map_location",
                "every rank loads onto the GPU that saved the file: the first one runs out of memory",
                'torch.load(PATH, map_location="cpu")',
            )
        download = given.get("download")
        if most > 1 and isinstance(download, ast.Constant) and download.value is True and not _guarded(tree, call):
            yield (
                f"line {call.lineno}: every rank downloads the data (download=True)",
                'the ranks of a host write the same files at once: "File not found or corrupted"',
                "let the first rank of each host download, then dist.barrier(); or ddp-orch run --data FOLDER",
            )
        method = given.get("init_method")
        if (
            name.endswith("init_process_group")
            and isinstance(method, ast.Constant)
            and str(method.value).startswith("tcp:")
        ):
            yield (
                f"line {call.lineno}: init_method={method.value!r}",
                "rank 0 opens a second store: on torchrun's port it fails with EADDRINUSE",
                'init_process_group(BACKEND) alone, which takes torchrun\'s variables ("env://")',
            )
        if name.endswith("TCPStore") and any(_true(word) for word in (given.get("is_master"), *call.args[3:4])):
            yield (
                f"line {call.lineno}: every rank opens a TCPStore as its master",
                "with more than one process a host it fails with EADDRINUSE",
                "is_master only on rank 0; or the store of init_process_group",
            )


def _name_of(call: ast.Call) -> str:
    return ast.unparse(call.func)


def _true(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


def _guarded(tree: ast.Module, call: ast.Call) -> bool:
    """Tell a call that stands below a condition that speaks of ranks."""
    return any(
        isinstance(node, ast.If) and "rank" in ast.unparse(node.test).lower() and call in ast.walk(node)
        for node in ast.walk(tree)
    )


def _line_of(tree: ast.Module, word: str) -> int:
    return next((node.lineno for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value == word), 0)

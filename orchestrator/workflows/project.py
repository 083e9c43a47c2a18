"""What is to be run: a script of the user's in its project folder, or the bundled worker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.model.plan import HostLaunch, LaunchPlan

BUNDLED_SCRIPT = "train.py"
MOST_MODULES = 500  # of a project that are read for what they import
BUNDLED_DATA = "MNIST/raw"  # what it trains on, below the data folder


@dataclass(frozen=True)
class Project:
    """A folder that is sent to the hosts, and what is started in it.

    Attributes:
        folder: absolute path on the controller.
        script: the script's path in the folder, or `-m` and a module.
        args: the script's arguments, exactly as given.
        bundled: it is the worker that comes with ddp-orch.
    """

    folder: Path
    script: tuple[str, ...]
    args: tuple[str, ...]
    bundled: bool

    def script_argv(self, plan: LaunchPlan, launch: HostLaunch, data_dir: str) -> list[str]:
        """Return script and arguments for one host.

        The bundled worker is told backend, device and data folder; a script of the user's finds them in
        DDP_ORCH_BACKEND and DDP_ORCH_DATA, and gets nothing but its own arguments. The user's come last, and win.

        Args:
            plan: the run.
            launch: the host's part in it.
            data_dir: the data folder on that host.
        """
        if not self.bundled:
            return [*self.script, *self.args]
        device = "cuda" if launch.host.gpu_count else "cpu"
        told = ["--backend", plan.backend, "--device", device, "--data-dir", data_dir]
        return [*self.script, *told, *self.args]


def bundled_folder() -> Path:
    """Return the folder of the worker that comes with ddp-orch: in the package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "bundled_worker"
    return installed if installed.is_dir() else package.parent / "worker"


def find_project(script: str | None, module: str | None, folder: str | None, args: Sequence[str]) -> Project:
    """Work out what the user wants to run.

    Args:
        script: path of a script on the controller; None, without a module, means the bundled worker.
        module: name of a module in the project folder, instead of a script.
        folder: the project folder; by default the current folder where it holds the script, else the script's own.
        args: the script's arguments.
    Raises:
        UsageError: there is no such script or folder.
    """
    if script and module:
        raise UsageError("a script and -m MODULE were both given", try_this="leave one out")
    here = Path.cwd()
    root = Path(folder).expanduser().resolve() if folder else None
    if root is not None and not root.is_dir():
        raise UsageError(f"there is no folder {folder}")
    if module:
        return Project(root or here, ("-m", module), tuple(args), bundled=False)
    if not script:
        if root is not None:
            raise UsageError("--project was given without a script", try_this="ddp-orch run --project DIR SCRIPT")
        return Project(bundled_folder(), (BUNDLED_SCRIPT,), tuple(args), bundled=True)
    # Not resolved: a script may be a symbolic link inside its project.
    path = here / Path(script).expanduser()
    if not path.is_file() and root is not None:
        path = root / script
    if not path.is_file():
        raise UsageError(f"there is no script {script}", try_this="the path is one on this machine, not on the hosts")
    if root is None:
        root = here if path.is_relative_to(here) and ".." not in path.relative_to(here).parts else path.parent
    if not path.is_relative_to(root):
        raise UsageError(f"{script} is not in the project folder {root}", try_this="--project DIR that holds it")
    return Project(root, (path.relative_to(root).as_posix(),), tuple(args), bundled=False)


def script_text(project: Project) -> str:
    """Return the text of the user's script, "" for the bundled one, for a module, and where it cannot be read."""
    if project.bundled or project.script[0] == "-m":
        return ""
    try:
        return (project.folder / project.script[0]).read_text(errors="replace")
    except OSError:
        return ""


def modules_needed(project: Project) -> tuple[str, ...]:
    """Return the names of the packages that a script cannot start without, beside the standard library and its own.

    Followed through the modules of the project that it imports. Imports in functions, in `try` and for type checking
    alone are left out: a script may do without those.
    """
    import sys

    if project.bundled:
        return ()
    if project.script[0] == "-m":
        first = _module_file(project.folder, project.script[1])
    else:
        first = project.folder / project.script[0]
    waiting: list[Path] = [first] if first else []
    seen: set[Path] = set()
    needed: set[str] = set()
    while waiting and len(seen) < MOST_MODULES:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for name in _imports_at_start(path):
            own = _module_file(path.parent, name) or _module_file(project.folder, name)
            if own is not None:
                waiting.append(own)
            elif name.partition(".")[0] not in sys.stdlib_module_names:
                needed.add(name.partition(".")[0])
    folders = {path.parent for path in seen} | {project.folder}
    return tuple(sorted(name for name in needed if not any((folder / name).is_dir() for folder in folders)))


def _module_file(folder: Path, name: str) -> Path | None:
    """Return the file of a module below a folder, or None where it is not there."""
    place = folder.joinpath(*name.split("."))
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def _imports_at_start(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports as soon as it is run, relative ones left out."""
    import ast

    try:
        statements: list[ast.stmt] = list(ast.parse(path.read_text(errors="replace")).body)
    except (OSError, SyntaxError, ValueError):
        return
    while statements:
        statement = statements.pop()
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and not statement.level and statement.module:
            yield statement.module
        elif isinstance(statement, ast.If | ast.With):
            for_types = isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test)
            statements += [] if for_types else statement.body


def backends_in_script(project: Project) -> set[str]:
    """Return the backends that a script gives to init_process_group by name: for those, ours does not reach it.

    Only what stands in the script as text is seen; one that takes its backend from anywhere else is not.
    """
    import ast

    try:
        tree = ast.parse(script_text(project))
    except (SyntaxError, ValueError):
        return set()  # the host will say what is wrong with it
    found = set()
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] == "init_process_group":
            named = [word.value for word in call.keywords if word.arg == "backend"]
            found |= {value.value for value in [*call.args[:1], *named] if isinstance(value, ast.Constant)}
    return {backend for backend in found if isinstance(backend, str)}

"""What is to be run: a script of the user's in its project folder, or the bundled worker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.model.plan import HostLaunch, LaunchPlan

BUNDLED_SCRIPT = "train.py"
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

"""Put into every rank as sitecustomize.py: its exception goes to a file, and its stacks on demand.

Nothing is changed for the script: the traceback is printed as always, an own sitecustomize is run as well, and child
processes are left alone. STEM.error.json holds {"type", "message", "where", "lines", "at"} of the exception that ended
the main program; STEM.stacks gets the stacks of all threads at each signal STACKS.
Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any

STACKS = 41  # a real-time signal that neither Python, torch nor CUDA uses


def follow_the_own_one() -> None:
    """Run the sitecustomize that would have been imported without us."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    elsewhere = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def hook_in(stem: str) -> None:
    """Set the hooks of this process; its files begin with `stem`."""
    import faulthandler
    import threading

    before = sys.excepthook

    me = os.getpid()

    def write_down(kind: Any, error: Any, traceback: Any) -> None:
        try:
            if os.getpid() != me:
                return  # a child that was forked: its parent decides what that means
            import json
            import time
            from traceback import extract_tb, format_exception

            calls = extract_tb(traceback)
            own = [call for call in calls if "site-packages" not in call.filename and "<" not in call.filename]
            last = (own or calls)[-1:]  # the script's own line says more than the library's
            facts = {
                "type": kind.__name__,
                "message": str(error)[:2000],
                "where": "%s:%s" % (os.path.basename(last[0].filename), last[0].lineno) if last else "",
                "lines": "".join(format_exception(kind, error, traceback)).splitlines()[-40:],
                "at": time.time(),
            }
            descriptor = os.open(stem + ".error.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as stream:
                json.dump(facts, stream)
            os.replace(stem + ".error.new", stem + ".error.json")
        except Exception:  # noqa: BLE001, S110
            pass  # a full disk, say: the script's own traceback must come whatever happens here
        finally:
            before(kind, error, traceback)

    sys.excepthook = write_down
    descriptor = os.open(stem + ".stacks", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, b"main 0x%016x\n" % (threading.main_thread().ident or 0))
    faulthandler.register(STACKS, file=descriptor, all_threads=True, chain=False)


try:
    _pid, _, _stem = os.environ.pop("DDP_ORCH_HOOKS", "").partition(":")
    if _pid == str(os.getpid()):
        hook_in(_stem)
except Exception:  # noqa: BLE001, S110
    pass  # whatever is wrong here, the script shall run
follow_the_own_one()

"""What the parts of the probe share.

Standard library only, Python 3.8 or newer, Linux.
"""

import pwd
import queue
import threading
import time
from typing import Any, Callable, Dict, Tuple

TEXT_KEPT = 64 * 1024


def together(tasks: Dict[Any, Callable[[], Any]], limit_s: float) -> Tuple[Dict[Any, Any], Dict[Any, str]]:
    """Do all tasks at once; return the results, and why there is none for the others."""
    done: "queue.Queue[Tuple[Any, Any, str]]" = queue.Queue()

    def work(name: Any, task: Callable[[], Any]) -> None:
        try:
            done.put((name, task(), ""))
        except Exception as error:  # noqa: BLE001 - one part that fails must not take the others with it
            done.put((name, None, "%s: %s" % (type(error).__name__, error)))

    results: Dict[Any, Any] = {}
    problems: Dict[Any, str] = {}
    for name, task in tasks.items():
        threading.Thread(target=work, args=(name, task), daemon=True).start()
    end = time.monotonic() + limit_s
    while len(results) + len(problems) < len(tasks):
        try:
            name, result, problem = done.get(timeout=max(end - time.monotonic(), 0.001))
        except queue.Empty:
            break
        if problem:
            problems[name] = problem
        else:
            results[name] = result
    for name in tasks:
        if name not in results and name not in problems:
            problems[name] = "no answer within %.0f s" % limit_s
    return results, problems


def read_text(path: str, limit: int = TEXT_KEPT) -> str:
    """Return the beginning of a file, at most `limit` characters; "" where it cannot be read."""
    try:
        with open(path, errors="replace") as stream:
            return stream.read(limit)
    except OSError:
        return ""


def user_name(uid: int) -> str:
    """Return a user's name, or the number of one without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)

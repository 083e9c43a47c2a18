"""What node programs and their parts share.

Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import os
import pwd
import threading
import time

TYPE_CHECKING = False  # typing takes longer to import than all that is looked at
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Tuple

TEXT_KEPT = 64 * 1024


def together(tasks: Dict[Any, Callable[[], Any]], limit_s: float) -> Tuple[Dict[Any, Any], Dict[Any, str]]:
    """Do all tasks at once; return the results, and why there is none for the others."""
    done: List[Tuple[Any, Any, str]] = []
    news = threading.Condition()

    def work(name: Any, task: Callable[[], Any]) -> None:
        try:
            outcome = (name, task(), "")
        except Exception as error:  # noqa: BLE001 - one part that fails must not take the others with it
            outcome = (name, None, "%s: %s" % (type(error).__name__, error))
        with news:
            done.append(outcome)
            news.notify()

    results: Dict[Any, Any] = {}
    problems: Dict[Any, str] = {}
    for name, task in tasks.items():
        threading.Thread(target=work, args=(name, task), daemon=True).start()
    end = time.monotonic() + limit_s
    with news:
        news.wait_for(lambda: len(done) == len(tasks), max(end - time.monotonic(), 0.001))
        for name, result, problem in done:
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


def host_bytes(name: str) -> bytes:
    """Return a host's name for getaddrinfo(), which otherwise loads tables of Unicode for each."""
    return name.encode("ascii") if name.isascii() else name.encode("idna")


def remove_tree(path: str) -> None:
    """Remove a folder, whatever the modes of those in it; nothing behind a symbolic link."""
    import shutil  # takes longer to import than the probe may

    try:
        os.chmod(path, 0o700)
        for folder, folders, _ in os.walk(path):
            for name in folders:
                if not os.path.islink(os.path.join(folder, name)):
                    os.chmod(os.path.join(folder, name), 0o700)
    except OSError:
        pass  # gone meanwhile; what is still there, the caller can see
    shutil.rmtree(path, ignore_errors=True)

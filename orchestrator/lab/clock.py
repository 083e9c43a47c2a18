"""A clock that is off: namespaces share the machine's, so a library of a few lines stands between programs and it.

libfaketime would be the ready one. With CLOCK_MONOTONIC left alone its 0.9.10 has Python's time.sleep() fail (EINVAL);
without, a wait for an event lasts as long as the clock is off.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from orchestrator.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path

# No header and no libc at link time: a compiler alone will do. 0 and 5 are CLOCK_REALTIME and its coarse one.
SOURCE = """
struct timespec { long seconds, nanoseconds; };
struct timeval { long seconds, microseconds; };
void *dlsym(void *, const char *);
int clock_gettime(int clock, struct timespec *now) {
    static int (*real)(int, struct timespec *);
    if (!real) real = dlsym((void *)-1, "clock_gettime");  /* RTLD_NEXT */
    int failed = real(clock, now);
    if (!failed && (clock == 0 || clock == 5)) now->seconds += (AHEAD);
    return failed;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(0, &exact);
    now->seconds = exact.seconds;
    now->microseconds = exact.nanoseconds / 1000;
    return 0;
}
long time(long *also) {
    struct timespec exact;
    clock_gettime(0, &exact);
    if (also) *also = exact.seconds;
    return exact.seconds;
}
"""


def make_library(path: Path, ahead_s: int) -> None:
    """Write a library that, loaded before a program's others, sets its clock ahead; what it measures goes on as before.

    Raises:
        LabError: there is no compiler here, or it fails.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise LabError("a clock that is off needs a compiler for a few lines of C", try_this="apt-get install gcc")
    argv = [compiler, "-shared", "-fPIC", "-nostdlib", "-O1", f"-DAHEAD={ahead_s}", "-x", "c", "-", "-o", str(path)]
    done = subprocess.run(argv, input=SOURCE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{compiler} failed: {(done.stderr.strip().splitlines() or ['no word'])[-1]}")

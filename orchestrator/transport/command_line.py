"""From an argv list to the one line that SSH hands to the login shell, quoted once.

The login shell may be sh, bash, zsh, csh or fish, and is only asked to start /bin/sh. What it sees is made of single
quotes without line breaks, backslashes or `!`, which all of them read alike. /bin/sh then gets the words as "$@", where
nothing is read a second time.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_CONDA_ENV = 96  # exit code: the conda environment named in the inventory was not found

# Where the installers of conda put it when CONDA_EXE, set by an initialised shell, does not say.
_CONDA_ROOTS = (
    '"$HOME/miniconda3" "$HOME/anaconda3" "$HOME/miniforge3" "$HOME/mambaforge" "$HOME/micromamba"'
    " /opt/conda /opt/miniconda3 /opt/anaconda3 /opt/miniforge3"
)

# The caller's own LC_ALL is kept in DDP_ORCH_LC_ALL, so that a program of ours can give it back to what it starts.
_START = (
    'DDP_ORCH_LC_ALL="${LC_ALL-}"; LC_ALL=C; export DDP_ORCH_LC_ALL LC_ALL; p=$1; shift; case $p in '
    '"~/"*) p=$HOME/${p#"~/"} ;; '
    'conda:*) n=${p#conda:}; p=; for b in "${CONDA_EXE%/bin/conda}" ' + _CONDA_ROOTS + "; do "
    'if [ -n "$b" ] && [ -x "$b/envs/$n/bin/python" ]; then p=$b/envs/$n/bin/python; break; fi; '
    'if [ -n "$b" ] && [ "$n" = base ] && [ -x "$b/bin/python" ]; then p=$b/bin/python; break; fi; done; '
    f'[ -n "$p" ] || exit {NO_CONDA_ENV} ;; '
    'esac; exec "$p" "$@"'
)


def command_line(argv: Sequence[str]) -> str:
    """Return the line that starts `argv` under /bin/sh with a C locale, from any login shell.

    Args:
        argv: the command; argv[0] may be a name on PATH, a path, `~/path`, or `conda:ENV`.
    """
    return "exec /bin/sh -c " + shlex.quote(_START) + " sh " + shlex.join(argv)

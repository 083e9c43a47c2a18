"""Made-up digits, for all tests of the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from worker_runs import write_idx

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 training images and 31 test images."""
    return write_idx(tmp_path_factory.mktemp("digits"), 200, 31)

"""The script of docs/restarts.md, as it stands there."""

from __future__ import annotations

import re

from worker_runs import ROOT


def documented_script(steps: int, every: int) -> str:
    """Return it with other counts, and at a pace that lets something happen meanwhile."""
    text = (ROOT / "docs" / "restarts.md").read_text()
    (script,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for there, here in (
        ("STEPS, EVERY = 200, 20\n", f"STEPS, EVERY = {steps}, {every}\n"),
        ("import sys\n", "import sys\nimport time\n"),
        ("    step += 1\n", "    step += 1\n    time.sleep(0.1)\n"),
    ):
        assert script.count(there) == 1, there
        script = script.replace(there, here)
    return str(script)


def losses(out: str) -> dict[int, str]:
    """Return the loss after each step, as rank 0 printed it."""
    return {int(step): loss for step, loss in re.findall(r"^step (\d+) loss ([\d.]+)$", out, re.MULTILINE)}

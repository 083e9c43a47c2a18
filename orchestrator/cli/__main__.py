"""`python -m orchestrator.cli`, where the ddp-orch command is not on PATH."""

from orchestrator.cli.main import main

main()

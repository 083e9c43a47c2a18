"""Where the command begins: as `ddp-orch`, and as `python -m orchestrator.cli` where that is not on PATH."""

from orchestrator.cli.env_values import hide_values


def main() -> None:
    """Hide what must not be seen, before anything that takes time is loaded, and run the command line."""
    hide_values()
    from orchestrator.cli.main import main as run

    run()


if __name__ == "__main__":
    main()

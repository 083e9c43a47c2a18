"""The `ddp-orch` command: a table of verbs, each loaded when it is called.

Only click is imported here, so that `--help` and shell completion answer at once.
"""

from __future__ import annotations

import importlib
import sys

import click

from orchestrator import __version__

# verb -> what `--help` says of it; the verb is a click command of the same name in orchestrator/cli/<verb>.py.
VERBS = {
    "preflight": "Check whether a run will work, and why not.",
    "plan": "Show ranks, devices and the exact torchrun command of each host.",
    "run": "Check, sync, start torchrun on every host, and stream the logs.",
    "attach": "Watch a run that goes on, from where its log was left.",
    "logs": "Show the log of a run, of all ranks or of some.",
    "ps": "Show what runs on the hosts, of whom, and how far it is.",
    "stacks": "Show what every rank is doing, and who waits for whom.",
    "explain": "Name the cause of a failure, from log files.",
    "manifest": "Show what exactly a run started: commands, variables, versions, code.",
    "wait": "Wait until a run has ended, and exit as it did.",
    "stop": "End a run, or all, on all hosts, and prove that nothing is left.",
    "fetch": "Bring a run's output files back.",
    "gc": "Remove old runs, and code that none needs, from the hosts.",
    "sync": "Bring the code, or data, to every host.",
    "trust": "Show the hosts' keys and write them to known_hosts.",
    "lab": "Make virtual hosts on this machine, to try everything without hardware.",
}


class Verbs(click.Group):
    """A group that imports a verb's module when the verb is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of a user's day."""
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one verb."""
        del ctx
        if cmd_name not in VERBS:
            return None
        command = getattr(importlib.import_module(f"orchestrator.cli.{cmd_name}"), cmd_name)
        if not isinstance(command, click.Command):
            raise TypeError(cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of verbs without importing any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, with a suggestion for a misspelt one."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], VERBS, 1)
            ctx.fail(f"there is no command {args[0]!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 fine, 1 the training failed, 2 usage, 3 inventory, 4 unreachable, 5 preflight, 6 sync, "
    "70 our fault, 124 out of time, 130 interrupted.",
)
@click.version_option(__version__, prog_name="ddp-orch")
def ddp_orch() -> None:
    """Train with PyTorch DDP across a few GPU machines, over plain SSH.

    The hosts come from an inventory file: -i FILE, else the variable DDP_ORCH_INVENTORY, else inventory/lab.yaml.
    """


def main() -> None:
    """Run the command line and exit with its code."""
    from orchestrator.cli.error_screen import guarded

    sys.exit(guarded(lambda: ddp_orch.main(prog_name="ddp-orch", standalone_mode=False)))

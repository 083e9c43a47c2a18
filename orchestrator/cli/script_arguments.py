"""`[SCRIPT] [-- ARGS]`, as `plan` and `run` take it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")


class ScriptCommand(click.Command):
    """A command whose words after the first `--` belong to the script, untouched."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Cut the script's arguments off before click sees them: it would take the first as the script."""
        own, script_args = args, []
        if "--" in args:
            cut = args.index("--")
            own, script_args = args[:cut], args[cut + 1 :]
        try:
            rest = super().parse_args(ctx, own)
        except click.NoSuchOption as error:
            hint = f"No such option: {error.option_name}. Options of the script go behind `--`."
            raise click.NoSuchOption(error.option_name, hint, error.possibilities, ctx) from error
        ctx.params["script_args"] = tuple(script_args)
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show the script's arguments in the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGS...]"]


def script_options(command: F) -> F:
    """Add SCRIPT, -m, --project and --backend."""
    for option in (
        click.argument("script", required=False),
        click.option("--backend", type=click.Choice(["nccl", "gloo"]), help="Default: nccl on GPUs, gloo without."),
        click.option("--project", metavar="DIR", help="The folder to send: default the current one, or the script's."),
        click.option("-m", "module", metavar="MODULE", help="Run a module of the project, as python -m does."),
    ):
        command = option(command)
    return command

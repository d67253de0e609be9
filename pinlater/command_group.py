"""Groups of commands that say which command was meant."""

from __future__ import annotations

import click

from pinlater.near_names import meant_name


class CommandGroup(click.Group):
    """click knows no names of commands that are imported when they are used, and its older versions suggest none."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not (name.startswith("-") or ctx.resilient_parsing) and self.get_command(ctx, name) is None:
            raise click.UsageError(f"No such command {name!r}{meant_name(name, self.list_commands(ctx))}.", ctx)
        return super().resolve_command(ctx, args)

"""Groups of commands that say which command was meant."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from pinlater.near_names import meant_name


class CommandGroup(click.Group):
    """click knows no names of commands that are imported when they are used, and its older versions suggest none.

    `elsewhere`: of such commands, by their names, MODULE:FUNCTION.
    """

    def __init__(self, *args: Any, elsewhere: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._elsewhere = dict(elsewhere or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*self.commands, *self._elsewhere])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._elsewhere:
            return super().get_command(ctx, cmd_name)
        module, _, function = self._elsewhere[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), function)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not (name.startswith("-") or ctx.resilient_parsing) and self.get_command(ctx, name) is None:
            raise click.UsageError(f"No such command {name!r}{meant_name(name, self.list_commands(ctx))}.", ctx)
        return super().resolve_command(ctx, args)

"""Groups of commands, with suggestions for mistyped names."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from pinlater.near_names import meant_name

_OF_SERVERS = ("--server", "--cluster", "--token-file", "--ca", "--client-cert", "--client-key", "--server-name")
_BEFORE_COMMANDS = {*_OF_SERVERS, "--timeout", "--output", "-o", "--json-keys", "--time", "--color"}
"""Options of most commands, each with a value, that may stand before the command too."""


class CommandGroup(click.Group):
    """click knows no names of commands that are imported when they are used, and its older versions suggest none.

    `elsewhere`: of such commands, by their names, MODULE:FUNCTION.
    """

    def __init__(self, *args: Any, elsewhere: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._elsewhere = dict(elsewhere or {})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options that the command takes, and that stand before it, go behind its name."""
        own = {name for parameter in self.get_params(ctx) for name in (*parameter.opts, *parameter.secondary_opts)}
        moved, kept, at = list[str](), list[str](), 0
        while at < len(args) and args[at].startswith("-") and args[at] != "--":
            name, has_value, _ = args[at].partition("=")
            size = 1 if has_value or name not in _BEFORE_COMMANDS else 2
            (moved if name in _BEFORE_COMMANDS and name not in own else kept).extend(args[at : at + size])
            at += size
        if at < len(args) and moved:
            args = [*kept, args[at], *moved, *args[at + 1 :]]
        return super().parse_args(ctx, args)

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

"""The queue that a command is for: a NAME, or --defaults for what counts for all queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

DEFAULTS = "@defaults"
"""What the server calls the settings for all queues."""


def defaults_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--defaults."""
    return click.option(
        "--defaults", is_flag=True, help="In place of a NAME: for all queues that say nothing else themselves."
    )(command)


def only_name(name: str | None, defaults: bool) -> str:
    """UsageError: both, or none of them."""
    if defaults == (name is not None):
        raise click.UsageError("give a NAME or --defaults, not both" if defaults else "Missing argument 'NAME'.")
    return DEFAULTS if name is None else name


def name_and_others(words: Sequence[str], defaults: bool, metavar: str) -> tuple[str, list[str]]:
    """The NAME, which stands first where --defaults is not given, and what follows. UsageError: too few words."""
    words = [DEFAULTS, *words] if defaults else list(words)
    if not words:
        raise click.UsageError("Missing argument 'NAME'.")
    if len(words) == 1:
        raise click.UsageError(f"Missing argument '{metavar}'.")
    return words[0], words[1:]

"""The looks of tables: colours of words, and times as ages, on a terminal, or where the caller says so."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click

_COLOR, _TIME = f"{__name__}.color", f"{__name__}.time"
_BY_WORD = {
    **dict.fromkeys(("failed", "out", "not ready", "not_found", "lost", "stuck"), "red"),
    **dict.fromkeys(
        ("waiting", "probing", "full", "unopened", "in_progress", "ended", "changed", "stopping"), "yellow"
    ),
    **dict.fromkeys(("succeeded", "in", "done", "complete", "rescheduled", "stored"), "green"),
    **dict.fromkeys(("running", "open", "requested"), "cyan"),
    **dict.fromkeys(("scheduled", "cancelled", "replayed", "kept", "replaced", "sealed"), "bright_black"),
}
_OF_WORDS = ("state", "outcome")
_OF_PROBLEMS = ("trouble", "troubles", "problem")


def looks_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--color and --time, which say how `Table` prints."""
    for option in (
        click.option(
            "--time",
            type=click.Choice(("auto", "age", "iso")),
            default="auto",
            expose_value=False,
            callback=_kept(_TIME),
            help="How tables show times: auto is how long ago on a terminal, and ISO in UTC elsewhere. [default: auto]",
        ),
        click.option(
            "--color",
            type=click.Choice(("auto", "always", "never")),
            default="auto",
            expose_value=False,
            callback=_kept(_COLOR),
            help="Colours in tables: auto means on a terminal, unless NO_COLOR is set. [default: auto]",
        ),
    ):
        command = option(command)
    return command


def _kept(key: str) -> Callable[[click.Context, click.Parameter, str], None]:
    def keep(context: click.Context, _: click.Parameter, value: str) -> None:
        context.meta[key] = value

    return keep


def _choice(key: str) -> str:
    context = click.get_current_context(silent=True)
    return "auto" if context is None else str(context.meta.get(key, "auto"))


def shows_ages() -> bool:
    """Whether a table says how long ago a time was."""
    choice = _choice(_TIME)
    return sys.stdout.isatty() if choice == "auto" else choice == "age"


def has_colors() -> bool:
    """As https://no-color.org has it."""
    choice = _choice(_COLOR)
    if choice != "auto":
        return choice == "always"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(heading: str, text: str) -> str:
    """A cell in its colour; the text itself is escaped before."""
    if text == heading.upper():
        return click.style(text, bold=True)
    word = text.lower()
    color = _BY_WORD.get(word.partition(",")[0]) if heading in _OF_WORDS else None
    if heading in _OF_PROBLEMS and text not in ("", "-"):
        color = "red"
    if heading == "flags" and word.startswith("paused"):
        color = "yellow"
    return text if color is None else click.style(text, fg=color)

"""The admin password of a server, as commands get it (`pinlater.password_search`), and `pinlater admin`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pinlater.cli.exit_codes import EXIT_FAILED, EXIT_USAGE
from pinlater.cli.output import output_option, write_one
from pinlater.command_group import CommandGroup
from pinlater.data_folder.password import hash_password
from pinlater.errors import MethodUnknown
from pinlater.model import EVERY_QUEUE
from pinlater.password_search import (
    DATA_HELP,
    PasswordNotFound,
    PasswordUnsafe,
    first_elsewhere,
    named_data_folder,
    search_password,
)
from pinlater.written import secret_line

if TYPE_CHECKING:
    from pinlater.client.client import Client
    from pinlater.wire.method import Method

PASSWORD_HELP = (
    "It needs the admin password. That of a plain `pinlater serve` on this machine is found in its data folder; any "
    "other one is taken from PINLATER_ADMIN_PASSWORD, asked for on a terminal, or read from the first line of standard "
    "input."
)
_KEY = f"{__name__}.data"
_ORIGIN = f"{__name__}.origin"


def needs_password(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --data, for `admin_password`."""

    def keep(context: click.Context, _: click.Parameter, value: str | None) -> None:
        context.meta[_KEY] = value

    return click.option("--data", metavar="PATH", expose_value=False, callback=keep, help=DATA_HELP)(command)


def admin_password(client: Client, method: Method[Any], queue: str = EVERY_QUEUE) -> str:
    """Asks, where it has to; to be called once by a command, after all that may be wrong with its arguments. "" where
    the caller is known and may make this call, on that queue or on the whole cluster.
    """
    if is_granted(client, method, queue):
        return ""
    return find_password(first_elsewhere(client))


def find_password(elsewhere: str) -> str:
    """Asks, where it has to. `elsewhere`: a place that gets it and that is not surely on this machine; "" for none."""
    try:
        return found_password(elsewhere)
    except PasswordUnsafe as unsafe:
        click.echo(f"pinlater: {unsafe}", err=True)
        raise SystemExit(EXIT_FAILED) from None
    except PasswordNotFound as error:
        raise click.UsageError(str(error)) from None


def found_password(elsewhere: str, *, may_ask: bool = True) -> str:
    """As `find_password`, and `password_origin` says where it came from. PasswordNotFound."""
    meta = click.get_current_context().meta
    password, meta[_ORIGIN] = search_password(elsewhere, meta[_KEY], may_ask=may_ask)
    return password


def data_folder() -> Path:
    """Where a server on this machine has its files: the folder that is named, else the usual one."""
    return named_data_folder(click.get_current_context().meta.get(_KEY))


def is_granted(client: Client, method: Method[Any], queue: str) -> bool:
    """Whether the caller may make this call, on that queue, without the admin password."""
    try:
        return client.get_access().needs_no_password(method.actions, queue)
    except MethodUnknown:  # an older server
        return False


def password_origin() -> str:
    """Where the password of this command came from; "" where it took none."""
    context = click.get_current_context(silent=True)
    return str(context.meta.get(_ORIGIN, "")) if context is not None else ""


@click.group(
    "admin",
    cls=CommandGroup,
    epilog="""\b
Examples:
  pinlater admin hash-password""",
)
def admin() -> None:
    """Prepare what the configuration of a server needs."""


@admin.command(
    "hash-password",
    short_help="Print the salted hash of a password.",
    epilog="""\b
Examples:
  pinlater admin hash-password                      asks, on a terminal, without showing it
  pass show pinlater | pinlater admin hash-password
  umask 077; pinlater admin hash-password < password.txt > admin.hash
  pinlater serve --admin-password-hash-file admin.hash""",
)
@output_option
def hash_password_command(format: str) -> None:
    """Print the salted hash of a password, for the file of --admin-password-hash-file.

    The password is the first line of standard input.
    """
    password = _new_password() if sys.stdin.isatty() else secret_line(sys.stdin.readline())
    if not password:
        click.echo("pinlater: no password on standard input", err=True)
        raise SystemExit(EXIT_USAGE)
    write_one(format, "hash", hash_password(password))


def _new_password() -> str:
    password: str = click.prompt("Password", hide_input=True, confirmation_prompt="Again", err=True)
    return password

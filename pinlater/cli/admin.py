"""The admin password of a server: how commands get it, and `pinlater admin`.

A command never takes it from its own arguments, where others can read them. It looks at the variable, then at the file
in the data folder (for servers on this machine alone), the terminal, and standard input.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pinlater.cli.exit_codes import EXIT_FAILED, EXIT_USAGE
from pinlater.cli.output import output_option, write_one
from pinlater.client.addresses import Address
from pinlater.command_group import CommandGroup
from pinlater.data_folder.password import PASSWORD_FILE, PasswordFileUnsafe, hash_password, read_password_file
from pinlater.errors import MethodUnknown
from pinlater.model import EVERY_QUEUE
from pinlater.redaction import SECRETS
from pinlater.written import secret_line, secret_variable, variable

if TYPE_CHECKING:
    from pinlater.client.client import Client
    from pinlater.wire.method import Method

PASSWORD_VARIABLE = "PINLATER_ADMIN_PASSWORD"
FILE_VARIABLE = "PINLATER_ADMIN_PASSWORD_FILE"
DATA_VARIABLE = "PINLATER_DATA"
DATA_FOLDER = "pinlater-data"
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

    return click.option(
        "--data",
        metavar="PATH",
        expose_value=False,
        callback=keep,
        help="The data folder of a server on this machine, for its admin password. [env: PINLATER_DATA; default: "
        "./pinlater-data]",
    )(command)


def admin_password(client: Client, method: Method[Any], queue: str = EVERY_QUEUE) -> str:
    """Asks, where it has to; to be called once by a command, after all that may be wrong with its arguments. "" where
    the caller is known and may make this call, on that queue or on the whole cluster.
    """
    if _is_granted(client, method, queue):
        return ""
    return find_password(_elsewhere(client))


def find_password(elsewhere: str) -> str:
    """Asks, where it has to. `elsewhere`: a place that gets it and that is not surely on this machine; "" for none."""
    password = _found(elsewhere)
    SECRETS.keep([password])
    return password


def data_folder() -> Path:
    """Where a server on this machine has its files: the folder that is named, else the usual one."""
    named = click.get_current_context().meta.get(_KEY) or variable(DATA_VARIABLE) or DATA_FOLDER
    return Path(named).expanduser()


def _is_granted(client: Client, method: Method[Any], queue: str) -> bool:
    try:
        return client.get_access().needs_no_password(method.actions, queue)
    except MethodUnknown:  # an older server
        return False


def _found(elsewhere: str) -> str:
    meta = click.get_current_context().meta
    if folder := meta[_KEY]:
        return _named(elsewhere, Path(folder).expanduser() / PASSWORD_FILE, "--data")
    password = secret_variable(PASSWORD_VARIABLE)
    if password:
        meta[_ORIGIN] = PASSWORD_VARIABLE
        return password
    if file := variable(FILE_VARIABLE):
        return _named(elsewhere, Path(file).expanduser(), FILE_VARIABLE)
    path = Path(variable(DATA_VARIABLE) or DATA_FOLDER).expanduser() / PASSWORD_FILE
    why_not = f"only servers on this machine get what may be in {path}"
    if not elsewhere:
        try:
            return _read(path)
        except OSError as error:
            why_not = f"{path}: {error.strerror}"
    return _prompted_or_piped(why_not)


def password_origin() -> str:
    """Where the password of this command came from; "" where it took none."""
    context = click.get_current_context(silent=True)
    return str(context.meta.get(_ORIGIN, "")) if context is not None else ""


def _named(elsewhere: str, path: Path, by: str) -> str:
    """What a file has that the caller named."""
    if elsewhere:
        raise click.UsageError(
            f"{by}: a password in a file is sent to servers on this machine only, and {elsewhere} is none; give it in "
            f"{PASSWORD_VARIABLE}"
        )
    try:
        return _read(path)
    except OSError as error:
        raise click.UsageError(
            f"{by}: {path}: {error.strerror}; a server makes this file at its start, in its data folder, where it "
            "listens on a loopback address, keeps all jobs in SQLite, and no --admin-password-hash-file is configured"
        ) from None


def _read(path: Path) -> str:
    """OSError."""
    try:
        password = read_password_file(path)
    except PasswordFileUnsafe as unsafe:
        click.echo(f"pinlater: {unsafe}", err=True)
        raise SystemExit(EXIT_FAILED) from None
    click.get_current_context().meta[_ORIGIN] = str(path)
    return password


def _prompted_or_piped(why_not: str) -> str:
    meta = click.get_current_context().meta
    if sys.stdin.isatty():
        meta[_ORIGIN] = "the terminal"
        return str(click.prompt("Admin password", hide_input=True, err=True))
    password = secret_line(sys.stdin.readline())
    if not password:
        raise click.UsageError(
            f"no admin password: neither in a file ({why_not}), nor in {PASSWORD_VARIABLE}, nor on standard input. "
            "For a plain `pinlater serve` on this machine name its data folder with --data, as the user that it runs as"
        )
    meta[_ORIGIN] = "standard input"
    return password


def _elsewhere(client: Client) -> str:
    """The first of the servers that is not surely on this machine; "" where all are."""
    return next((str(each) for each in client.servers if not (isinstance(each, Address) and is_here(each.host))), "")


def is_here(host: str) -> bool:
    """
    >>> is_here("127.0.0.1"), is_here("::1"), is_here("localhost"), is_here("queue-1"), is_here("10.0.0.1")
    (True, True, True, False, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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

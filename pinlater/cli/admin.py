"""`pinlater admin`: what an operator needs before a server runs."""

from __future__ import annotations

import sys

import click

from pinlater.cli import EXIT_USAGE
from pinlater.password import hash_password


@click.group(
    "admin",
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
  pinlater serve --admin-password-hash "$(pinlater admin hash-password < password.txt)" """,
)
def hash_password_command() -> None:
    """Print the salted hash of a password, for --admin-password-hash.

    The password is the first line of standard input.
    """
    password = _asked() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not password:
        click.echo("pinlater: no password on standard input", err=True)
        raise SystemExit(EXIT_USAGE)
    click.echo(hash_password(password))


def _asked() -> str:
    password: str = click.prompt("Password", hide_input=True, confirmation_prompt="Again", err=True)
    return password

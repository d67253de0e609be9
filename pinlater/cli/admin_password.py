"""The admin password of a server, as a command gets it: never on the command line, where others can read it."""

from __future__ import annotations

import os
import sys

import click

PASSWORD_VARIABLE = "PINLATER_ADMIN_PASSWORD"
PASSWORD_HELP = (
    "The admin password of the server is taken from PINLATER_ADMIN_PASSWORD, asked for on a terminal, or read from the "
    "first line of standard input."
)


def admin_password() -> str:
    """Asks, where it has to; to be called once by a command, after all that may be wrong with its arguments."""
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is None and sys.stdin.isatty():
        password = str(click.prompt("Admin password", hide_input=True, err=True))
    if password is None:
        password = sys.stdin.readline().rstrip("\r\n")
        if not password:
            raise click.UsageError(f"no admin password: neither in {PASSWORD_VARIABLE} nor on standard input")
    return password

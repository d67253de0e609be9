"""The search for the admin password, one for all commands of operators.

A command never takes it from its own arguments, where others can read them. Looked at are the folder that was named,
the variables, the file in the data folder (for servers on this machine alone), the terminal, and standard input.
"""

from __future__ import annotations

import sys
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from pinlater.client.addresses import Address
from pinlater.data_folder.password import PASSWORD_FILE, PasswordFileUnsafe, read_password_file
from pinlater.redaction import SECRETS
from pinlater.written import secret_line, secret_variable, variable

if TYPE_CHECKING:
    from pinlater.client.async_client import AsyncClient
    from pinlater.client.client import Client

PASSWORD_VARIABLE = "PINLATER_ADMIN_PASSWORD"
FILE_VARIABLE = "PINLATER_ADMIN_PASSWORD_FILE"
DATA_VARIABLE = "PINLATER_DATA"
DATA_FOLDER = "pinlater-data"
DATA_HELP = (
    "The data folder of a server on this machine, for its admin password. [env: PINLATER_DATA; default: "
    "./pinlater-data]"
)
_NO_FILE = (
    "a server makes this file at its start, in its data folder, where it listens on a loopback address, keeps all jobs "
    "in SQLite, and no --admin-password-hash-file is configured"
)


class PasswordNotFound(ValueError):
    """The message says where it was looked for, and where to put it."""


class PasswordUnsafe(PasswordNotFound):
    """It is in a file that cannot be trusted."""


class FoundPassword(NamedTuple):
    """`origin`: where it came from, for messages."""

    text: str
    origin: str


def search_password(elsewhere: str, folder: str | None = None, *, may_ask: bool = True) -> FoundPassword:
    """`elsewhere`: a place that gets it and that is not surely on this machine; "" for none. `folder`: the data folder
    that the caller named. `may_ask`: on the terminal, else standard input. PasswordNotFound.
    """
    try:
        found = _search(elsewhere, folder, may_ask)
    except PasswordFileUnsafe as error:
        raise PasswordUnsafe(str(error)) from None
    SECRETS.keep([found.text])
    return found


def named_data_folder(folder: str | None) -> Path:
    """The one that is named, else the usual one."""
    return Path(folder or variable(DATA_VARIABLE) or DATA_FOLDER).expanduser()


def first_elsewhere(client: Client | AsyncClient) -> str:
    """The first of its servers that is not surely on this machine; "" where all are."""
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


def _search(elsewhere: str, folder: str | None, may_ask: bool) -> FoundPassword:
    if folder:
        return _named(elsewhere, Path(folder).expanduser() / PASSWORD_FILE, "--data")
    if password := secret_variable(PASSWORD_VARIABLE):
        return FoundPassword(password, PASSWORD_VARIABLE)
    if file := variable(FILE_VARIABLE):
        return _named(elsewhere, Path(file).expanduser(), FILE_VARIABLE)
    path = named_data_folder(None) / PASSWORD_FILE
    why_not = f"only servers on this machine get what may be in {path}"
    if not elsewhere:
        try:
            return FoundPassword(read_password_file(path), str(path))
        except OSError as error:
            why_not = f"{path}: {error.strerror}"
    if not may_ask:
        raise PasswordNotFound(
            f"no admin password: neither in a file ({why_not}), nor in {PASSWORD_VARIABLE}; put it there, or name "
            f"the data folder of a server on this machine in {DATA_VARIABLE}"
        )
    return _prompted_or_piped(why_not)


def _named(elsewhere: str, path: Path, by: str) -> FoundPassword:
    """What a file has that the caller named."""
    if elsewhere:
        raise PasswordNotFound(
            f"{by}: a password in a file is sent to servers on this machine only, and {elsewhere} is none; give it in "
            f"{PASSWORD_VARIABLE}"
        )
    try:
        return FoundPassword(read_password_file(path), str(path))
    except OSError as error:
        raise PasswordNotFound(f"{by}: {path}: {error.strerror}; {_NO_FILE}") from None


def _prompted_or_piped(why_not: str) -> FoundPassword:
    if sys.stdin.isatty():
        return FoundPassword(str(click.prompt("Admin password", hide_input=True, err=True)), "the terminal")
    password = secret_line(sys.stdin.readline())
    if not password:
        raise PasswordNotFound(
            f"no admin password: neither in a file ({why_not}), nor in {PASSWORD_VARIABLE}, nor on standard input. "
            "For a plain `pinlater serve` on this machine name its data folder with --data, as the user that it runs as"
        )
    return FoundPassword(password, "standard input")

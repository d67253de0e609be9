"""`pinlater token`: tokens for callers without a certificate. A token is made here; the servers get its hash."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from pinlater.cli.admin import PASSWORD_HELP, admin_password, needs_password
from pinlater.cli.completion import offer_roles, offer_tokens
from pinlater.cli.connection import EXIT_CODES, ServerGroup, say, say_missed, talks_to_server
from pinlater.cli.exit_codes import EXIT_FAILED, EXIT_INCOMPLETE
from pinlater.cli.output import FORMATS, Row, json_keys_option, output_option, renamed, whole, write_all
from pinlater.cli.times import duration_option, time_text
from pinlater.client.client import Client
from pinlater.client.token import Token
from pinlater.clock import SystemClock
from pinlater.data_folder.private_files import FILE_MODE, write_private_file
from pinlater.errors import MethodUnknown, PinLaterError
from pinlater.model import TokenView
from pinlater.password_search import PASSWORD_VARIABLE
from pinlater.printable import json_text
from pinlater.redaction import SECRETS
from pinlater.wire.access_methods import DELETE_TOKEN, UPDATE_TOKEN

COLUMNS = ("token", "roles", "made_by", whole("made", 5), whole("ends"), whole("last_used"))
_TOO_OLD = "this server is of an earlier version, which knows no tokens"
_RANDOM_BYTES = 32


@click.group(
    cls=ServerGroup,
    epilog=f"""\b
Examples:
  pinlater token create web --role producer --output web.token
  pinlater token list
  pinlater token revoke web

{EXIT_CODES}""",
)
def token() -> None:
    """Create, list and revoke tokens, which identify callers."""


@contextmanager
def _known() -> Iterator[None]:
    try:
        yield
    except MethodUnknown as unknown:
        raise MethodUnknown(_TOO_OLD) from unknown


@token.command(
    short_help="Create a token, and print it once.",
    help=f"""Create a token with roles, and print it: this once, as the servers keep only a hash of it.

    It counts everywhere within two seconds. A role is one that the servers' rules file has, or one of producer, worker,
    viewer (sees no bodies), operator and admin (docs/access.md). --output writes it where no other user can read it, as
    the clients want it; a file that has a token already gets the new one in its place.

    {PASSWORD_HELP} A token or a certificate with the role admin takes its place.""",
    epilog=f"""\b
Examples:
  pinlater token create web --role producer --expires 90d --output web.token
  pinlater token create mailer --role worker --role producer > /dev/shm/token
  pinlater token create web --role producer --replace --output web.token
  pinlater token create web --role producer -o json | jq -r .token
  {PASSWORD_VARIABLE}=… pinlater token create ops --role admin --output ~/.config/pinlater/ops.token""",
)
@click.argument("name")
@click.option(
    "--role",
    "roles",
    multiple=True,
    required=True,
    metavar="ROLE",
    shell_complete=offer_roles,
    help="A role that the token gives its caller; repeatable.",
)
@click.option("--expires", type=duration_option, metavar="DURATION", help="How long it is valid. [default: for ever]")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write it to this file, for this user's eyes only, and print nothing.",
)
@click.option(
    "-o",
    "format",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How to print it; in JSON with its name. As --output is the file, it has the short form alone.",
)
@json_keys_option
@click.option("--replace", is_flag=True, help="Also where there is one of this name, which is revoked by that.")
@needs_password
@talks_to_server
def create(
    client: Client,
    name: str,
    roles: tuple[str, ...],
    expires: int | None,
    output: Path | None,
    format: str,
    replace: bool,
) -> None:
    if output is not None and format != "table":
        raise click.UsageError(f"give -o {format} or --output {output}: with the file nothing is printed")
    made = f"plt_{secrets.token_urlsafe(_RANDOM_BYTES)}"
    fresh = None if output is None else _write_beside(output, made)
    try:
        with _known():
            changed = client.update_token(
                name,
                hashlib.sha256(made.encode()).hexdigest(),
                list(dict.fromkeys(roles)),
                admin_password(client, UPDATE_TOKEN),
                expires_ms=None if expires is None else SystemClock().now_ms() + expires,
                replace=replace,
            )
        if fresh is not None and output is not None:
            fresh.replace(output)
    finally:
        if fresh is not None:
            fresh.unlink(missing_ok=True)
    SECRETS.keep([made])
    say_missed(changed.missed_shards)
    if output is None:
        click.echo(made if format == "table" else json_text({"name": name, "token": made}))
        say("this is shown once; programs take it from PINLATER_TOKEN, or from a file in PINLATER_TOKEN_FILE")
    else:
        say(f"token {name} is in {output}, which no other user can read")


def _write_beside(path: Path, made: str) -> Path:
    """A file with the token, to be renamed when the servers know it. Whatever else has that name stays."""
    if path.exists():
        try:
            Token(file=str(path)).read()
        except ValueError as error:
            say(f"{error}; only a file that has a token is replaced")
            raise SystemExit(EXIT_FAILED) from None
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        write_private_file(fresh, f"{made}\n")
    except OSError as error:
        say(f"{path}: {error.strerror}")
        raise SystemExit(EXIT_FAILED) from None
    assert fresh.stat().st_mode & 0o777 == FILE_MODE
    return fresh


@token.command(
    "list",
    short_help="List the tokens: names, roles and expiries.",
    epilog="""\b
Examples:
  pinlater token list
  pinlater token list -o json | jq '.[] | select(.last_used_ms == null)'""",
)
@output_option
@talks_to_server
def list_tokens(client: Client, format: str) -> None:
    """List the tokens by name: roles, who made it and when, its end, and its last use.

    No token itself is known to the servers. The last use is right within ten minutes.
    """
    with _known():
        found = client.get_tokens()
    now_ms = SystemClock().now_ms()
    empty = "there are no tokens; `pinlater token create NAME --role ROLE` makes one"
    write_all(format, COLUMNS, found, partial(_row, now_ms=now_ms), empty=empty)


def _row(view: TokenView, now_ms: int) -> Row:
    return {
        **renamed(name="token", made_at_ms="made_ms")(asdict(view)),
        "made_by": view.made_by or None,
        "made": time_text(view.made_at_ms),
        "ends": time_text(view.expires_ms) or None,
        "has_ended": view.expires_ms is not None and view.expires_ms <= now_ms,
        "last_used": time_text(view.last_used_ms) or None,
    }


@token.command(
    short_help="Revoke tokens: they are refused within two seconds.",
    help=f"""Revoke tokens by their names. Every server refuses them within two seconds.

    {PASSWORD_HELP} A token or a certificate with the role admin takes its place.""",
    epilog="""\b
Examples:
  pinlater token revoke web
  pinlater token revoke web-1 web-2""",
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=offer_tokens)
@needs_password
@talks_to_server
def revoke(client: Client, names: tuple[str, ...]) -> None:
    password = admin_password(client, DELETE_TOKEN)
    missing, done = [], 0
    try:
        with _known():
            for name in dict.fromkeys(names):
                changed = client.delete_token(name, password)
                done += bool(changed.version)
                if not changed.version:
                    missing.append(name)
                say_missed(changed.missed_shards)
    except PinLaterError:
        if done:
            say(f"{done} of {len(names)} tokens were revoked before this:")
        raise
    if missing:
        say(f"there is no token {', '.join(missing)}")
        raise SystemExit(EXIT_INCOMPLETE)

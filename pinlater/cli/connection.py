"""Commands that talk to a server: their options, their client, and how they end.

A command that does not succeed ends with one line on stderr and an exit code.
"""

from __future__ import annotations

import errno
import functools
import getpass
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import pinlater
from pinlater.cli.admin import password_origin
from pinlater.cli.completion import offer_clusters
from pinlater.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OUTCOME_UNKNOWN, EXIT_UNREACHABLE, EXIT_USAGE
from pinlater.cli.target import Target
from pinlater.cli.times import duration_option
from pinlater.client.token import Token
from pinlater.command_group import CommandGroup
from pinlater.errors import (
    BodyTooLarge,
    FlowNotFound,
    Forbidden,
    ItemNotFound,
    LimitReached,
    OutcomeUnknown,
    PasswordInvalid,
    PinLaterError,
    PriorityNotSupported,
    ProtocolError,
    QueueNameInvalid,
    QueueNameTooLong,
    QueueNotFound,
    RequestInvalid,
    ServerUnreachable,
    ShardNotFound,
    StageSealed,
)
from pinlater.model import queue_order
from pinlater.near_names import meant_name
from pinlater.printable import printable
from pinlater.redaction import redact
from pinlater.standard_streams import OutputFailed

if TYPE_CHECKING:
    from pinlater.client.client import Client
    from pinlater.model import ClusterStatus, JobInfo

_NOT_ALLOWED = (RequestInvalid, BodyTooLarge, PriorityNotSupported, QueueNameInvalid, QueueNameTooLong)
"""A value that the servers do not allow."""
_REFUSED = (FlowNotFound, ItemNotFound, LimitReached, ShardNotFound, StageSealed)
"""Among them what is no mistake of the command line."""

_TOKEN = f"{__name__}.token"
_OPTIONS = {
    "numAttemptsAllowed": "--attempts",
    "bodyRegexToMatch": "--match",
    "bodyConditions": "--match",
    "statusConditions": "--status-match",
}
"""What a field of the wire is called on the command line."""

EXIT_CODES = """\b
Exit codes: 0 done, 1 refused or failed, 2 wrong command line, 3 no server could be reached, 4 it is not known whether
it was done, 5 done in part, 130 interrupted."""


class ServerGroup(CommandGroup):
    """Commands that talk to a server."""

    def invoke(self, ctx: click.Context) -> Any:
        with failures_as_exit_codes():
            return super().invoke(ctx)


class ServerCommand(click.Command):
    """A command that talks to a server and is in no group."""

    def invoke(self, ctx: click.Context) -> Any:
        with failures_as_exit_codes():
            return super().invoke(ctx)


@contextmanager
def failures_as_exit_codes() -> Iterator[None]:
    try:
        yield
    except PinLaterError as error:
        say(error_text(error))
        raise SystemExit(exit_code(error)) from None
    except (KeyboardInterrupt, click.Abort):
        say("interrupted")
        raise SystemExit(EXIT_INTERRUPTED) from None
    except OutputFailed:
        raise
    except OSError as error:
        reads = error.filename is None and error.errno in (errno.EBADF, errno.EIO, errno.EISDIR)
        place = "standard input " if reads else f"{error.filename}: " if isinstance(error.filename, str) else ""
        say(f"{place}failed: {error.strerror or error}")
        raise SystemExit(EXIT_FAILED) from None


def exit_code(error: PinLaterError) -> int:
    if isinstance(error, ServerUnreachable):
        return EXIT_UNREACHABLE
    if isinstance(error, OutcomeUnknown):
        return EXIT_OUTCOME_UNKNOWN
    is_mistake = isinstance(error, _NOT_ALLOWED) and not isinstance(error, _REFUSED)
    return EXIT_USAGE if is_mistake else EXIT_FAILED


def error_text(error: PinLaterError) -> str:
    """For a person, who needs no word for programs in front of what says where the mistake is."""
    if isinstance(error, ServerUnreachable | ProtocolError):
        return error.message
    text = error.wire_message().removeprefix(f"{RequestInvalid.reason}: ")
    if isinstance(error, _REFUSED):
        return text.removeprefix(f"{error.reason}: ")
    if isinstance(error, Forbidden):
        text, token = error.message, _token()
        return text if token is None else f"{text} (the token came from {token.origin})"
    if isinstance(error, PasswordInvalid) and (origin := password_origin()):
        return f"{text} (it came from {origin})"
    field, _, rest = text.partition(" ")
    return f"{_OPTIONS[field]} {rest}" if isinstance(error, RequestInvalid) and field in _OPTIONS else text


def _token() -> Token | None:
    """What this command showed."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_TOKEN)


def say(message: str) -> None:
    """One line for a person, without secrets."""
    click.echo(f"pinlater: {printable(redact(message))}", err=True)


def can_ask() -> bool:
    """Whether a person sees a question and can answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, if_not: str) -> None:
    """Ask on the terminal. SystemExit, and `if_not` is said, where it is not meant."""
    if not click.confirm(printable(question), err=True):
        say(if_not)
        raise SystemExit(EXIT_FAILED)


def say_missed(shards: Sequence[str]) -> None:
    """Name the shards that a change has yet to reach; the change counts all the same."""
    if len(shards) == 1:
        say(f"shard {shards[0]} was not reached; it gets the change before it serves again")
    elif shards:
        say(f"shards {', '.join(shards)} were not reached; they get the change before they serve again")


_DEFAULT_TIMEOUT_MS = 10_000
_LEAST_MS = 1_000
"""For one call of what waits: `--timeout 0` asks how it is now."""


_NO_QUEUE = re.compile(r"queue '([^']*)' does not exist")
"""The beginning of what servers say, as QueueNotFound.of writes it."""
_NOT_ON_ALL = "may not read on all queues"
"""In what servers say to who may read some."""
_MOST_NAMED = 10
_NEAR_WITHIN_S = 1.0


_TLS_FLAGS = {
    "ca": "The certificates that may sign those of the servers; they are called over TLS. [env: PINLATER_TLS_CA]",
    "client-cert": "The certificate that this command shows, in PEM. [env: PINLATER_TLS_CERT]",
    "client-key": "Its private key, where the file of the certificate does not hold it. [env: PINLATER_TLS_KEY]",
}


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say which servers are called and how; the command gets them as `target`."""

    @functools.wraps(command)
    def targeted(**options: Any) -> None:
        command(target=Target.taken_from(options), **options)

    return _with_server_options(targeted)


def _with_server_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--server-name",
            metavar="NAME",
            help="The name in the servers' certificates, where it is not the one they are called by. "
            "[env: PINLATER_TLS_SERVER_NAME]",
        ),
        *(
            click.option(f"--{flag}", type=click.Path(dir_okay=False), metavar="PATH", help=text)
            for flag, text in reversed(_TLS_FLAGS.items())
        ),
        click.option(
            "--token-file",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="PATH",
            help="The file with the caller's token. [env: PINLATER_TOKEN_FILE, or PINLATER_TOKEN with the "
            "token itself]",
        ),
        click.option(
            "--cluster",
            metavar="NAME",
            shell_complete=offer_clusters,
            help="The servers that clusters.toml has under this name. [env: PINLATER_CLUSTER]",
        ),
        click.option(
            "--server",
            "servers",
            multiple=True,
            metavar="HOST:PORT",
            help="A server, or dns:NAME:PORT for every address of a name; repeatable. "
            "[env: PINLATER_SERVER, with commas; default: 127.0.0.1:9010]",
        ),
    ):
        command = option(command)
    return command


def talks_to_server(command: Callable[..., None], *, patient: bool = False) -> Callable[..., None]:
    """Adds `server_options` and --timeout; the command gets a Client as its first argument.

    `patient`: shards that cannot be used are waited for until the timeout, else it is said at once.
    """

    @server_options
    @click.option(
        "--timeout",
        "timeout_ms",
        type=duration_option,
        metavar="DURATION",
        default=_DEFAULT_TIMEOUT_MS,
        help="How long one call may take, all its attempts together. [default: 10s]",
    )
    @functools.wraps(command)
    def connected(target: Target, timeout_ms: int, **options: Any) -> None:
        with target_client(target, timeout_ms, patient) as client, near_queue_named(client):
            command(client, **options)

    return connected


def talks_patiently(command: Callable[..., None]) -> Callable[..., None]:
    """For what stores jobs: a store that restarts is no reason to lose them."""
    return talks_to_server(command, patient=True)


def talks_while_waiting(command: Callable[..., None]) -> Callable[..., None]:
    """For what waits by itself, and has a --timeout of its own, which bounds its calls and their connections too."""

    @server_options
    @functools.wraps(command)
    def connected(target: Target, **options: Any) -> None:
        within_ms: int | None = options.get("timeout")
        call_ms = _DEFAULT_TIMEOUT_MS if within_ms is None else min(max(within_ms, _LEAST_MS), _DEFAULT_TIMEOUT_MS)
        with target_client(target, call_ms, patient=False) as client, near_queue_named(client):
            command(client, **options)

    return connected


def target_client(target: Target, timeout_ms: int, patient: bool, history: Path | None = None) -> Client:
    """A client of those servers; `history`: the folder where it records its calls, in place of what the environment
    says. click.UsageError.
    """
    try:
        token = target.token()
        click.get_current_context().meta[_TOKEN] = token
        return pinlater.Client(
            servers=target.servers,
            cluster=target.cluster,
            source=who(),
            timeout=timeout_ms / 1000,
            retry_unavailable=patient,
            tls=target.tls(),
            token=token or "",
            history=history,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def near_queue_named(client: Client) -> Iterator[None]:
    """The refusal of a queue that does not exist names one that is close to it, and that of all queues some, of those
    that the caller may read.
    """
    try:
        yield
    except Forbidden as error:
        if _NOT_ON_ALL not in error.message or not (named := _named_queues(client)):
            raise
        raise Forbidden(
            error.message.replace(_NOT_ON_ALL, f"{_NOT_ON_ALL}, but on {named}: name one of them", 1)
        ) from error
    except QueueNotFound as error:
        refusal = _NO_QUEUE.match(error.message)
        if refusal is None:
            raise
        raise QueueNotFound(refusal[0] + near_queue(client, refusal[1]) + error.message[refusal.end() :]) from error


def near_queue(client: Client, name: str) -> str:
    """What stands behind a queue's name that is unknown: the one that may be meant, if there is one."""
    try:
        return meant_name(name, client.queue_names(timeout=_NEAR_WITHIN_S))
    except PinLaterError:  # the refusal says enough
        return ""


def _named_queues(client: Client) -> str:
    """The first of those that the caller may read; "" where it is not known."""
    try:
        names = sorted(client.queue_names(timeout=_NEAR_WITHIN_S), key=queue_order)
    except PinLaterError:
        return ""
    more = f" and {len(names) - _MOST_NAMED:,} others" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def who() -> str:
    """Who changes something, as `pinlater audit` shows it."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def readable_status(client: Client, queues: Sequence[str] | None = None) -> ClusterStatus:
    """Servers and shards with these queues, or with all that the caller may read. Forbidden: it may read none."""
    try:
        return client.cluster_status(queues=queues)
    except Forbidden:
        if queues:
            raise
        names = sorted(client.queue_names())
        if not names:
            raise
        found = client.cluster_status(queues=names)
        return found if queues is None else replace(found, queues=[])


def readable_jobs(
    client: Client,
    descriptors: Sequence[str] = (),
    *,
    has_to_show: bool = False,
    include_body: bool = False,
    include_result: bool = False,
    **more: Any,
) -> dict[str, JobInfo]:
    """As Client.lookup; without bodies and results where the caller may not see them, unless it `has_to_show` these."""
    try:
        return client.lookup(descriptors, include_body=include_body, include_result=include_result, **more)
    except Forbidden:
        if has_to_show or not (include_body or include_result):
            raise
        return client.lookup(descriptors, **more)


def out_shards(client: Client) -> list[str]:
    """The shards that cannot be used now, as one of the servers sees it. None where the caller may not read that."""
    try:
        return [shard.id for shard in readable_status(client, []).shards if shard.state != "in"]
    except Forbidden:
        return []


def priority_option(help: str, *, required_level: bool = False) -> Callable[[Any], Any]:
    """--priority; without `required_level` all priorities are meant where it is not given."""
    default = 1 if required_level else None
    return click.option(
        "--priority", type=click.IntRange(1, 127), default=default, show_default=required_level, metavar="N", help=help
    )

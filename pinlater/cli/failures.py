"""How a command that talks to a server ends when it does not succeed: one line on stderr, and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from pinlater.cli import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_UNREACHABLE, EXIT_USAGE
from pinlater.cli.admin_password import password_origin
from pinlater.errors import (
    BodyTooLarge,
    OutcomeUnknown,
    PasswordInvalid,
    PinLaterError,
    PriorityNotSupported,
    QueueNameInvalid,
    QueueNameTooLong,
    RequestInvalid,
    ServerUnreachable,
)
from pinlater.printable import printable
from pinlater.redaction import redact

EXIT_OUTCOME_UNKNOWN = 4
EXIT_INCOMPLETE = 5
"""Part of what was named does not exist, was not in the state for it, or could not be read."""
EXIT_NO_READER = 141
_NOT_ALLOWED = (RequestInvalid, BodyTooLarge, PriorityNotSupported, QueueNameInvalid, QueueNameTooLong)
"""A value that the servers do not allow."""

_OPTIONS = {"numAttemptsAllowed": "--attempts", "bodyRegexToMatch": "--match"}
"""What a field of the wire is called on the command line."""

EXIT_CODES = """\b
Exit codes: 0 done, 1 refused or failed, 2 wrong command line, 3 no server could be reached, 4 it is not known whether
it was done, 5 done in part, 130 interrupted."""


class ServerGroup(click.Group):
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
        sys.stdout.flush()
    except PinLaterError as error:
        say(_told(error))
        raise SystemExit(exit_code(error)) from None
    except (KeyboardInterrupt, click.Abort):
        say("interrupted")
        raise SystemExit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        # The reader of stdout has gone, as `| head` does.
        _silence_stdout()
        raise SystemExit(EXIT_NO_READER) from None
    except OSError as error:
        _silence_stdout()
        say(f"standard input or output failed: {error.strerror or error}")
        raise SystemExit(EXIT_FAILED) from None


def _silence_stdout() -> None:
    """What is left in the buffer must not fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_code(error: PinLaterError) -> int:
    if isinstance(error, ServerUnreachable):
        return EXIT_UNREACHABLE
    if isinstance(error, OutcomeUnknown):
        return EXIT_OUTCOME_UNKNOWN
    return EXIT_USAGE if isinstance(error, _NOT_ALLOWED) else EXIT_FAILED


def _told(error: PinLaterError) -> str:
    """For a person, who needs no word for programs in front of what says where the mistake is."""
    if isinstance(error, ServerUnreachable):
        return error.message
    told = error.wire_message().removeprefix(f"{RequestInvalid.reason}: ")
    if isinstance(error, PasswordInvalid) and (origin := password_origin()):
        return f"{told} (it came from {origin})"
    field, _, rest = told.partition(" ")
    return f"{_OPTIONS[field]} {rest}" if isinstance(error, RequestInvalid) and field in _OPTIONS else told


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
        say(f"shard {shards[0]} was not reached; it hears of it before it serves again")
    elif shards:
        say(f"shards {', '.join(shards)} were not reached; they hear of it before they serve again")

"""`pinlater job`, and `pinlater job enqueue`: bodies from the command line, a file, or the lines of standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import click

from pinlater.cli.call_options import call_options
from pinlater.cli.completion import offer_queues
from pinlater.cli.connection import EXIT_CODES, ServerGroup, priority_option, talks_patiently
from pinlater.cli.job_changes import cancel, delete, retry
from pinlater.cli.job_keys import (
    enqueued_rows,
    extended,
    extended_job_options,
)
from pinlater.cli.job_log import log
from pinlater.cli.job_outcomes import reschedule, wait
from pinlater.cli.job_views import count, get, scan, slices
from pinlater.cli.output import lower_outcome, open_output, output_option
from pinlater.cli.progress import Progress
from pinlater.cli.times import moment_option
from pinlater.client.client import Client
from pinlater.model import ExtendedJob, Job

_SLICE_JOBS = 1_000
_SLICE_BYTES = 1024 * 1024
_LARGEST_BODY = 512 * 1024 * 1024
"""The most that a server's --max-body can be; input without an end is not read beyond it."""
_MOST_ATTEMPTS = 2**31 - 1


@click.command(
    epilog="""\b
Examples:
  pinlater job enqueue mail '{"to": "ada@example.org"}'
  pinlater job enqueue mail --job shop.send --args '{"to": "ada@example.org"}'
  pinlater job enqueue mail --file letter.json --priority 2 --run-after +10m
  make-letter | pinlater job enqueue mail -
  pinlater job enqueue mail --lines --file letters.jsonl -o jsonl > descriptors.jsonl
  pinlater job enqueue mail --dedupe-key welcome-17 --on-duplicate reject '{"to": "ada@example.org"}'
  pinlater job enqueue bank --serialize-key account-9 --expires 1h '{"book": 120}'
  pinlater job enqueue mail --tag tenant:7 --tag welcome '{"to": "ada@example.org"}'"""
)
@click.argument("queue", shell_complete=offer_queues)
@click.argument("body", required=False)
@call_options
@click.option("--body", "body_option", metavar="TEXT", help="The body, for one that begins with a dash; - as below.")
@click.option(
    "--file", "file", type=click.Path(allow_dash=True), help="The body is what this file holds; - for standard input."
)
@click.option(
    "--lines", is_flag=True, help="One job per line of the file or of standard input; empty lines are left out."
)
@priority_option("1 is the highest.", required_level=True)
@click.option("--run-after", type=moment_option, metavar="TIME", help="Not before this time: ISO, or +10m from now.")
@click.option(
    "--attempts",
    type=click.IntRange(1, _MOST_ATTEMPTS),
    default=2,
    show_default=True,
    help="How often it may be tried.",
)
@click.option("--status", default="", help="The custom status to begin with.")
@click.option("--resend", is_flag=True, help="Send again where the answer is lost; the jobs are stored once.")
@extended_job_options
@output_option
@talks_patiently
def enqueue(
    client: Client,
    queue: str,
    body: str | None,
    call: bytes | None,
    body_option: str | None,
    file: str | None,
    lines: bool,
    priority: int,
    run_after: int | None,
    attempts: int,
    status: str,
    resend: bool,
    extended_job: ExtendedJob | None,
    format: str,
) -> None:
    """Store jobs in QUEUE, and print their descriptors.

    With --job the body is a call of that type of job, as workers of the framework read it. Else it is BODY; for -, and
    without any, it is read from standard input, which must not be empty. With --lines jobs are stored in slices of
    1,000, and each slice is stored whole or not at all. With --resend, and with any option of keys or expiry, it is
    sent again by itself where an answer is lost, and is stored once all the same.

    With --dedupe-key it also prints what became of the job: STORED; KEPT, where another one has that key, whose
    descriptor it prints; or REPLACED.
    """
    named = extended_job is not None and extended_job.dedupe_key != ""
    if named and lines:
        raise click.UsageError("--dedupe-key is the name of one job; --lines enqueues many")
    source = _source(body, body_option, file, lines, call)
    output = open_output(format, ["descriptor", "outcome"] if named else ["descriptor"], to_json=lower_outcome)
    with Progress("jobs enqueued") as progress:
        plain = (Job(each, priority, run_after, attempts, status) for each in _bodies(source, lines))
        jobs = plain if extended_job is None else (extended(job, extended_job) for job in plain)
        for part in slices(jobs, _SLICE_JOBS, _SLICE_BYTES, lambda job: len(job.body)):
            descriptors = client.enqueue(queue, part, resend=resend or extended_job is not None)
            progress.add(len(part))
            output.write(enqueued_rows(descriptors, named))
    output.close()


def _source(
    body: str | None, body_option: str | None, file: str | None, lines: bool, call: bytes | None
) -> str | bytes:
    """A body as bytes, or the name of the file to read. UsageError: more than one of them, or none."""
    given = [each for each in (body, body_option, file) if each is not None]
    if call is not None:
        if given or lines:
            raise click.UsageError("--job makes the body; leave BODY, --body, --file and --lines out")
        return call
    if len(given) > 1:
        raise click.UsageError("give one of BODY, --body, --file and --job")
    if file is not None:
        return file
    if given and given != ["-"]:
        if lines:
            raise click.UsageError("--lines reads --file or standard input")
        return given[0].encode("utf-8", "surrogateescape")
    if not given and sys.stdin.isatty():
        raise click.UsageError("no body; give BODY, --file, or - to type it")
    return "-"


def _bodies(source: str | bytes, lines: bool) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
        return
    with opened(source) as stream:
        if not lines:
            body = stream.read(_LARGEST_BODY + 1)
            if not body and source == "-":
                raise click.UsageError("standard input is empty; a job without a body is asked for by --body ''")
            yield _bounded(body)
            return
        while line := stream.readline(_LARGEST_BODY + 1):
            body = _bounded(line).rstrip(b"\r\n")
            if body:
                yield body


def _bounded(body: bytes) -> bytes:
    if len(body) > _LARGEST_BODY:
        raise click.UsageError(f"the body has more than the {_LARGEST_BODY} bytes that a server can take")
    return body


@contextmanager
def opened(name: str) -> Iterator[BinaryIO]:
    """A file, or for - standard input. UsageError: it cannot be read."""
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(name, "rb")  # noqa: SIM115 (only the opening itself may fail so)
    except OSError as error:
        raise click.UsageError(f"{name}: {error.strerror}") from error
    with file:
        yield file


@click.group(
    cls=ServerGroup,
    epilog=f"""\b
Examples:
  pinlater job enqueue mail '{{"to": "ada@example.org"}}'
  pinlater job scan mail --state failed
  pinlater job retry --help                         the help of one command

{EXIT_CODES}""",
)
def job() -> None:
    """Enqueue, show, wait for, retry, reschedule, cancel and delete jobs."""


for command in (enqueue, get, log, wait, scan, count, retry, reschedule, cancel, delete):
    job.add_command(command)

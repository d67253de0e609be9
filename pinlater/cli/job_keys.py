"""Keys of jobs on the command line: of jobs to enqueue, and to name jobs by."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import click

from pinlater.cli.completion import offer_queues, one_of
from pinlater.cli.connection import readable_jobs, say
from pinlater.cli.times import duration_option, moment_option, seconds_or_duration_ms
from pinlater.client.client import Client
from pinlater.clock import SystemClock
from pinlater.model import (
    WHILE_KEPT,
    EnqueuedJobs,
    EnqueueOutcome,
    ExtendedJob,
    Job,
    JobInfo,
    KeyRef,
    OnDuplicate,
    ReplaceRunning,
)

_KEPT = "kept"


# -- keys of jobs to enqueue -------------------------------------------------------------------------------------------


def _window(text: str | int) -> int:
    return text if isinstance(text, int) else WHILE_KEPT if text == _KEPT else duration_option(text)


def _expiry(text: str | int) -> int:
    """A time, or so long from now."""
    if isinstance(text, int):
        return text
    try:
        return SystemClock().now_ms() + seconds_or_duration_ms(text)
    except ValueError:
        return moment_option(text)


def extended_job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What few jobs have, as the argument `extended_job`: an ExtendedJob without a body, or None."""

    @functools.wraps(command)
    def with_extended(
        dedupe_key: str,
        serialize_key: str,
        on_duplicate: str | None,
        replace_running: str | None,
        replace_within: int | None,
        dedupe_for: int | None,
        expires: int | None,
        claim_timeout: int | None,
        tags: tuple[str, ...],
        group: str,
        **options: Any,
    ) -> None:
        if not dedupe_key and (on_duplicate is not None or dedupe_for is not None):
            raise click.UsageError("--on-duplicate and --dedupe-for need --dedupe-key")
        choice = OnDuplicate[(on_duplicate or "keep").upper()]
        if choice is not OnDuplicate.REPLACE and (replace_running is not None or replace_within is not None):
            raise click.UsageError("--replace-running and --replace-within need --on-duplicate replace")
        job = ExtendedJob(
            b"",
            dedupe_key=dedupe_key,
            serialize_key=serialize_key,
            claim_timeout_ms=claim_timeout,
            on_duplicate=choice,
            dedupe_for_ms=dedupe_for or 0,
            expires_at_ms=expires,
            tags=tags,
            group=group,
            replace_running=ReplaceRunning[(replace_running or "keep").upper()],
            replace_within_ms=replace_within,
        )
        command(extended_job=None if job == ExtendedJob(b"") else job, **options)

    decorated: Callable[..., Any] = with_extended
    words = [each.name.lower() for each in OnDuplicate]
    of_running = [each.name.lower() for each in ReplaceRunning]
    for option in (
        click.option(
            "--group",
            default="",
            metavar="TEXT",
            help="Its group, such as a tenant: groups have fair shares of the queue, whatever each has waiting.",
        ),
        click.option(
            "--tag", "tags", multiple=True, metavar="TAG", help="A text by which jobs are found, as tenant:7; up to 10."
        ),
        click.option(
            "--claim-timeout",
            type=duration_option,
            metavar="DURATION",
            help="How long a worker may take, unless its dequeue asks for another time. [default: the queue's]",
        ),
        click.option(
            "--expires", type=_expiry, metavar="TIME", help="Not handed out from this time on: ISO, or 1h from now."
        ),
        click.option(
            "--dedupe-for",
            type=_window,
            metavar="DURATION",
            help="How long the key holds after the job's end; kept: as long as the job is kept. [default: 0]",
        ),
        click.option(
            "--replace-within",
            type=duration_option,
            metavar="DURATION",
            help="With --on-duplicate replace: the longest that a job is postponed, from its first enqueue on. "
            "[default: no bound]",
        ),
        click.option(
            "--replace-running",
            type=click.Choice(of_running),
            shell_complete=one_of(*of_running),
            help="With --on-duplicate replace: keep the job that runs, enqueue this one behind it, or also ask that "
            "one to stop. [default: keep]",
        ),
        click.option(
            "--on-duplicate",
            type=click.Choice(words),
            shell_complete=one_of(*words),
            help="Where the key is taken: keep that job, replace what it does, or fail. [default: keep]",
        ),
        click.option(
            "--serialize-key",
            default="",
            metavar="KEY",
            help="Jobs of one such key, of all queues, run one at a time, as they were enqueued.",
        ),
        click.option(
            "--dedupe-key", default="", metavar="KEY", help="The job's name in QUEUE: one at a time has that name."
        ),
    ):
        decorated = option(decorated)
    return decorated


def extended(job: Job, like: ExtendedJob) -> ExtendedJob:
    """That job with the keys and bounds of the other."""
    return replace(
        like,
        body=job.body,
        priority=job.priority,
        run_after_ms=job.run_after_ms,
        attempts_allowed=job.attempts_allowed,
        custom_status=job.custom_status,
    )


def enqueued_rows(descriptors: list[str], with_outcome: bool) -> list[dict[str, str]]:
    """Rows of an enqueue, each with what became of the job where it has a name that could be taken."""
    outcomes: Sequence[EnqueueOutcome] = descriptors.outcomes if isinstance(descriptors, EnqueuedJobs) else ()
    rows = []
    for number, descriptor in enumerate(descriptors):
        row = {"descriptor": descriptor}
        if with_outcome:
            row["outcome"] = (outcomes[number] if outcomes else EnqueueOutcome.STORED).name
        rows.append(row)
    return rows


# -- jobs that are named by keys ---------------------------------------------------------------------------------------


def key_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--key and --serialize-key, as the argument `keys`; the command has --queue."""

    @functools.wraps(command)
    def with_keys(named_keys: tuple[str, ...], serialize_key: str, **options: Any) -> None:
        keys = [KeyRef(key, serialize_key) for key in named_keys]
        if serialize_key and not keys:
            keys = [KeyRef("", serialize_key)]
        if keys and not options["queue"]:
            raise click.UsageError("--key names a job of a queue; give --queue too")
        command(keys=keys, **options)

    decorated: Callable[..., Any] = with_keys
    for option in (
        click.option("--serialize-key", default="", metavar="KEY", help="With --key, of a job that has both."),
        click.option("--key", "named_keys", multiple=True, metavar="KEY", help="The dedupe key of a job; repeatable."),
    ):
        decorated = option(decorated)
    return decorated


queue_of_keys_option = click.option(
    "--queue", metavar="QUEUE", shell_complete=offer_queues, help="The queue of the jobs that --key names."
)


def key_text(key: KeyRef) -> str:
    """As it is shown to people."""
    return "/".join(part for part in (key.dedupe_key, key.serialize_key) if part)


def found_by_keys(
    client: Client,
    queue: str,
    keys: Sequence[KeyRef],
    *,
    has_to_show: bool = False,
    include_body: bool = False,
    include_trail: bool = False,
) -> list[JobInfo]:
    """The jobs of these keys; names on stderr those that have none."""
    found = readable_jobs(
        client,
        queue=queue,
        keys=keys,
        has_to_show=has_to_show,
        include_body=include_body,
        include_result=True,
        include_trail=include_trail,
    )
    for key in keys:
        if not any(_has(info, key) for info in found.values()):
            say(f"not found: {key_text(key)} in queue {queue}")
    return list(found.values())


def _has(info: JobInfo, key: KeyRef) -> bool:
    return (not key.dedupe_key or info.dedupe_key == key.dedupe_key) and (
        not key.serialize_key or info.serialize_key == key.serialize_key
    )

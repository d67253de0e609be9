"""`pinlater-worker jobs` and `pinlater-worker retry`: the types of job of an app, and the delays of a policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

import click

from pinlater.durations import seconds_text
from pinlater.text_table import TextTable, terminal_width
from pinlater_workers.app.loader import load
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.execution.failure_text import describe
from pinlater_workers.imports import add_import_paths
from pinlater_workers.jobs.retry import DEFAULT_RETRY, Policy, RetryRules, delays
from pinlater_workers.jobs.retry_text import policy_text
from pinlater_workers.jobs.settings import retry_policy

_COLUMNS = ("job", "queue", "attempts", "retry", "limit", "priority", "pool", "encoding", "batch")


@click.command(
    epilog="""\b
Examples:
  pinlater-worker jobs --app shop.jobs:app
  pinlater-worker jobs --config conf/jobs.toml"""
)
@click.option("--app", metavar="MODULE:NAME", help="The app; the current folder is on the import path.")
@click.option("--config", metavar="FILE", type=click.Path(dir_okay=False), help="A TOML file with jobs, or the app.")
def jobs(app: str | None, config: str | None) -> None:
    """List the types of job of an app, with what counts for each."""
    rows = []
    for name, job_type in sorted(load(app, config).app.job_types.items()):
        settings = job_type.settings
        pool = settings.pool or ("event loop" if job_type.is_coroutine else "the worker's")
        encoding = "raw" if settings.raw else settings.encoding
        limit = seconds_text(settings.time_limit_s)
        rows.append(
            (
                name,
                settings.queue,
                settings.attempts_allowed,
                "; ".join(_retry_texts(settings.retry)),
                limit,
                settings.priority,
                pool,
                encoding,
                "-" if settings.batch is None else f"{settings.batch} in {seconds_text(settings.batch_wait_s)}",
            )
        )
    write_table(_COLUMNS, rows)


def _retry_texts(rules: RetryRules) -> Iterator[str]:
    yield policy_text(rules.default)
    for error, policy in rules.on.items():
        yield f"{error.__qualname__}: {policy_text(policy)}"


@click.command(
    epilog="""\b
Examples:
  pinlater-worker retry
  pinlater-worker retry "exponential first=1s factor=2 cap=1h retries=8"
  pinlater-worker retry "delays 1s 5s 1m"
  pinlater-worker retry --app shop.jobs:app --job thumbnail"""
)
@click.argument("policy", required=False)
@click.option(
    "--attempts", type=click.IntRange(1, 10_000), metavar="N", help="The number of attempts, in place of the policy's."
)
@click.option("--app", metavar="MODULE:NAME", help="The app that has the job.")
@click.option("--config", metavar="FILE", type=click.Path(dir_okay=False), help="The file that has the job.")
@click.option("--job", metavar="NAME", help="Show the policies of this type of job.")
def retry(policy: str | None, attempts: int | None, app: str | None, config: str | None, job: str | None) -> None:
    """Print the delays of a retry POLICY, or of the default one."""
    if job is None:
        if app or config:
            raise click.UsageError("--app and --config want --job NAME")
        _print(_parsed(policy) if policy else DEFAULT_RETRY, attempts)
        return
    if policy:
        raise click.UsageError("give a POLICY or --job, not both")
    found = load(app, config).app.find(job)
    if found is None:
        raise ConfigurationError(f"there is no job {job!r}; `pinlater-worker jobs` lists those that there are")
    _print(found.settings.retry, attempts or found.settings.attempts)


def _parsed(text: str) -> RetryRules:
    add_import_paths([Path.cwd()])
    try:
        policy = retry_policy(text)
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from error
    return policy if isinstance(policy, RetryRules) else RetryRules(policy)


def _print(rules: RetryRules, attempts: int | None) -> None:
    _print_policy(rules.default, attempts)
    for error, policy in rules.on.items():
        click.echo(f"\nfor {error.__qualname__}:")
        _print_policy(policy, attempts if attempts is None else min(attempts, policy.retries + 1))


def _print_policy(policy: Policy, attempts: int | None) -> None:
    try:
        waits = delays(policy, policy.retries + 1 if attempts is None else attempts)
    except Exception as error:
        raise ConfigurationError(f"the policy fails for an example, Exception: {describe(error)}") from error
    sums = accumulate(waits)
    rows = [
        (number, seconds_text(wait), seconds_text(total))
        for number, (wait, total) in enumerate(zip(waits, sums, strict=True), 2)
    ]
    write_table(("attempt", "comes after", "all waits"), [(1, "-", "-"), *rows])
    spread = f"; each wait is up to {policy.jitter:.0%} shorter or longer" if policy.jitter and waits else ""
    click.echo(f"{len(waits) + 1} attempts{spread}" if waits else "1 attempt, no retry")


def write_table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    click.echo("\n".join(TextTable(columns).lines(rows, terminal_width())))

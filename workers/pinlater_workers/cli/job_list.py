"""`pinlater-worker jobs`: the types of job that an app has, with what counts for each."""

from __future__ import annotations

from collections.abc import Iterator

import click

from pinlater_workers.cli.loading import load
from pinlater_workers.cli.tables import write_table
from pinlater_workers.durations import duration_text
from pinlater_workers.retry import RetryRules
from pinlater_workers.retry_text import policy_text

_COLUMNS = ("job", "queue", "attempts", "retry", "limit", "priority", "pool", "encoding")


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
        limit = duration_text(settings.time_limit_s)
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
            )
        )
    write_table(_COLUMNS, rows)


def _retry_texts(rules: RetryRules) -> Iterator[str]:
    yield policy_text(rules.default)
    for error, policy in rules.on.items():
        yield f"{error.__qualname__}: {policy_text(policy)}"

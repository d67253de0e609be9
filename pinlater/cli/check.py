"""`pinlater check`: for Nagios, Icinga and whatever else runs its plugins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import click

from pinlater.cli.check_limits import Limits, parse_limits
from pinlater.cli.check_plan import CheckPlan, plan_of
from pinlater.cli.check_verdict import Level, judge
from pinlater.cli.connection import talks_to_server
from pinlater.client.addresses import cluster_check, target_cluster
from pinlater.client.client import Client
from pinlater.errors import PinLaterError
from pinlater.printable import printable
from pinlater.redaction import redact


class CheckCommand(click.Command):
    """Whatever keeps it from a verdict is UNKNOWN, a wrong command line too: 2 would be CRITICAL."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*args, **options)
        except click.UsageError as error:
            _unknown(error.format_message())

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            _unknown(error.format_message())
        except PinLaterError as error:
            _unknown(error.message)
        except (KeyboardInterrupt, click.Abort):
            _unknown("interrupted")


def _unknown(why: str) -> NoReturn:
    click.echo(f"PINLATER UNKNOWN - {printable(redact(why)).replace('|', '/')}")
    raise SystemExit(Level.UNKNOWN)


@click.command(
    cls=CheckCommand,
    epilog="""\b
Examples:
  pinlater check --cluster mail                     thresholds from the cluster's table in clusters.toml
  pinlater check --warn ready=1000,oldest=5m --crit ready=10000,oldest=30m
  pinlater check --queue letters --crit oldest=2m,failed=100
  pinlater check --crit shards-out=0,servers=2

\b
A threshold is what may not be exceeded: ready, scheduled, in-progress, failed (jobs of each queue), oldest (for how
long the job that is ready for the longest has been so), shards-out, shards-full (shards), unready (server processes
that are not ready); of servers that are ready there must not be fewer. `none` takes a threshold away. Without any, a
shard that is out or full or a process that is not ready is a warning, and no ready server is critical, nor a shard
that is in, nor one with room for new jobs.

\b
Exit codes: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN (also: no server could be reached, a wrong command line).""",
)
@click.option("--warn", "warn", multiple=True, metavar="KEY=N,...", help="More is worth a warning; repeatable.")
@click.option("--crit", "crit", multiple=True, metavar="KEY=N,...", help="More is critical; repeatable.")
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Only this queue; repeatable. [default: all]")
@talks_to_server
def check(client: Client, warn: tuple[str, ...], crit: tuple[str, ...], queues: tuple[str, ...]) -> None:
    """Judge a cluster by thresholds, in one line with the figures, and by the exit code, as Nagios plugins do.

    They come from --warn and --crit, and else from the table `check` of the cluster that --cluster or PINLATER_CLUSTER
    names in clusters.toml.
    """
    plan = _plan(click.get_current_context().params, warn, crit, queues)
    level, line = judge(client.cluster_status(queues=queues or None), plan)
    click.echo(printable(line))
    raise SystemExit(level)


def _plan(
    target: Mapping[str, Any], warn: tuple[str, ...], crit: tuple[str, ...], queues: tuple[str, ...]
) -> CheckPlan:
    """`target` are the arguments that say which servers are meant."""
    try:
        cluster = target_cluster(target["servers"], target["cluster"])
        table = cluster_check(cluster) if cluster else {}
        return plan_of(table, Limits(parse_limits(warn), parse_limits(crit)), queues)
    except ValueError as error:
        raise click.UsageError(str(error)) from error

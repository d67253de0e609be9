"""`pinlater check`: thresholds, verdict and output of a plugin for Nagios, Icinga and their kind.

In order: what can be watched and how thresholds are written; the plan, from clusters.toml and the command line; the
verdict, which is pure; the command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NoReturn

import click

from pinlater.cli.cluster import oldest_age_ms, out_at, totals
from pinlater.cli.completion import offer_queues
from pinlater.cli.connection import readable_status, talks_to_server
from pinlater.cli.output import counted
from pinlater.cli.times import seconds_or_duration_ms
from pinlater.client.addresses import cluster_check, target_cluster
from pinlater.client.client import Client
from pinlater.durations import age_text
from pinlater.errors import MethodUnknown, PinLaterError
from pinlater.model import ClusterStatus, QueueStatus, ShardView
from pinlater.model.alarm_views import AlarmsPage, Severity
from pinlater.model.job_selection import JobPhase
from pinlater.printable import printable
from pinlater.redaction import redact
from pinlater.standard_streams import OutputFailed, drop_output

OF_QUEUES = ("ready", "scheduled", "waiting", "in_progress", "failed", "cancelled", "replayed", "oldest")
OF_CLUSTER = ("shards_out", "shards_full", "unready", "servers")
KEYS = OF_QUEUES + OF_CLUSTER
_OF_ENDED = ("failed", "cancelled", "replayed")
_BY_WORD = {JobPhase.IN_PROGRESS.word: "in_progress"}
_WORDS = {key: word for word, key in _BY_WORD.items()}
AT_LEAST = "servers"
"""The one of which there must not be fewer; of all others there must not be more."""

Values = Mapping[str, int | None]
"""Thresholds by key; `oldest` in ms; None: whatever it is, all is well."""


@dataclass(frozen=True)
class Limits:
    """What begins to be worth a warning, and what is critical."""

    warn: Values = field(default_factory=dict)
    crit: Values = field(default_factory=dict)

    def over(self, below: Limits) -> Limits:
        """These, and where they say nothing, those."""
        return Limits({**below.warn, **self.warn}, {**below.crit, **self.crit})


DEFAULT = Limits({"shards_out": 0, "shards_full": 0, "unready": 0}, {"servers": 1})
"""A shard is out or full, or a process not ready: a warning. No server is ready: critical."""


def parse_limits(texts: Iterable[str], allowed: Iterable[str] = KEYS) -> dict[str, int | None]:
    """The thresholds of `ready=1000,oldest=5m`, or of several such texts. ValueError.

    >>> parse_limits(["ready=1000,oldest=5m", "shards-out=none"])
    {'ready': 1000, 'oldest': 300000, 'shards_out': None}
    """
    pairs = [part.partition("=") for text in texts for part in text.split(",") if part.strip()]
    for key, equals, _ in pairs:
        if not equals:
            raise ValueError(f"{key!r} is not KEY=THRESHOLD")
    return limits_of({key.strip(): text.strip() for key, _, text in pairs}, allowed)


def limits_of(written: object, allowed: Iterable[str] = KEYS) -> dict[str, int | None]:
    """The thresholds of a table, where numbers may stand as such. ValueError."""
    if not isinstance(written, Mapping):
        raise ValueError(f"{written!r} is no table of thresholds")
    found: dict[str, int | None] = {}
    for name, value in written.items():
        key = _BY_WORD.get(str(name), str(name).replace("-", "_"))
        if key not in allowed:
            raise ValueError(
                f"{name!r} cannot be checked here; allowed: {', '.join(_WORDS.get(each, each) for each in allowed)}"
            )
        found[key] = _threshold(key, value)
    return found


def _threshold(key: str, value: object) -> int | None:
    if value == "none":
        return None
    if key == "oldest":
        return seconds_or_duration_ms(str(value))
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{key} is {value!r}; allowed: a whole number, or none")
    return int(text)


@dataclass(frozen=True)
class CheckPlan:
    """`given` comes from the command line, and counts first. `queues`: only these; empty: all of them."""

    for_all: Limits = field(default_factory=Limits)
    of_queue: Mapping[str, Limits] = field(default_factory=dict)
    given: Limits = field(default_factory=Limits)
    queues: tuple[str, ...] = ()

    def cluster(self) -> Limits:
        """What counts for servers and shards."""
        return self.given.over(self.for_all).over(DEFAULT)

    def limits(self, queue: str) -> Limits:
        """What counts for a queue."""
        return self.given.over(self.of_queue.get(queue, Limits())).over(self.for_all)


def plan_of(table: object, given: Limits, queues: tuple[str, ...]) -> CheckPlan:
    """From the table `check` of a cluster, as TOML gives it. ValueError, with the place."""
    if not isinstance(table, Mapping):
        raise ValueError(f"check is {table!r}; allowed: a table")
    of_queue = table.get("queues", {})
    if not isinstance(of_queue, Mapping):
        raise ValueError(f"check.queues is {of_queue!r}; allowed: a table for each queue")
    return CheckPlan(
        _limits({key: each for key, each in table.items() if key != "queues"}, "check", KEYS),
        {str(name): _limits(each, f"check.queues.{name}", OF_QUEUES) for name, each in of_queue.items()},
        given,
        queues,
    )


def _limits(table: object, place: str, allowed: Sequence[str]) -> Limits:
    if not isinstance(table, Mapping):
        raise ValueError(f"{place} is {table!r}; allowed: a table with warn and crit")
    for key in table:
        if key not in ("warn", "crit"):
            raise ValueError(
                f"{place} has the key {key!r}; allowed: warn, crit" + (", queues" if place == "check" else "")
            )
    try:
        return Limits(limits_of(table.get("warn", {}), allowed), limits_of(table.get("crit", {}), allowed))
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


_OLD_MS = 60_000
"""Counts that are older are said to be so."""


class Level(IntEnum):
    """The exit codes."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


_BAD_BY_THEMSELVES = ("shards_out", "shards_full", "unready")
"""That there are more than none of these needs no number."""

_WORST_FIRST = (Level.CRITICAL, Level.WARNING, Level.UNKNOWN, Level.OK)


class CheckVerdict:
    """What was found so far."""

    def __init__(self) -> None:
        self._found: list[tuple[Level, str]] = []
        self._figures: list[str] = []

    @property
    def level(self) -> Level:
        """The worst of all."""
        return min((level for level, _ in self._found), key=_WORST_FIRST.index, default=Level.OK)

    def add(self, level: Level, text: str) -> None:
        self._found.append((level, text))

    def judge(self, label: str, key: str, value: int, limits: Limits, text: str) -> None:
        """One figure, by its thresholds; `text` says what it is, for people."""
        warn, crit = limits.warn.get(key), limits.crit.get(key)
        at_least = key == AT_LEAST
        for level, limit in ((Level.CRITICAL, crit), (Level.WARNING, warn)):
            if limit is not None and (value < limit if at_least else value > limit):
                bound = age_text(limit) if key == "oldest" else f"{limit:,}"
                is_plain = key in _BAD_BY_THEMSELVES and not limit
                self.add(level, text if is_plain else f"{text} ({'fewer' if at_least else 'more'} than {bound})")
                break
        self._figures.append(f"{label}={_shown(key, value)};{_range(key, warn)};{_range(key, crit)}")

    def line(self, all_well: str) -> str:
        """One line: the verdict, the reasons for it with the worst first, and the figures behind a bar."""
        reasons = [text for each in _WORST_FIRST for level, text in self._found if level is each]
        text = printable("; ".join(reasons) or all_well).replace("|", "/")
        return f"PINLATER {self.level.name} - {text}" + (f" | {' '.join(self._figures)}" if self._figures else "")


_OF_FIGURES = ("shard_out", "shard_full", "server_unready", "server_problem")
"""Conditions that the figures of the cluster tell of, each with thresholds of its own."""

_LEVELS = {Severity.CRITICAL: Level.CRITICAL, Severity.WARNING: Level.WARNING}


def judge(status: ClusterStatus, plan: CheckPlan, alarms: AlarmsPage | None = None) -> tuple[Level, str]:
    """The exit code and the line. `alarms` None: they do not count."""
    verdict = CheckVerdict()
    _judge_cluster(verdict, status, plan.cluster())
    for alarm in alarms.alarms if alarms is not None else ():
        is_meant = not plan.queues or not alarm.queue or alarm.queue in plan.queues
        if alarm.severity in _LEVELS and is_meant and not alarm.is_muted and alarm.name not in _OF_FIGURES:
            verdict.add(_LEVELS[alarm.severity], alarm.title)
    known = {queue.name: queue for queue in status.queues}
    for name in sorted(plan.queues or plan.of_queue):
        if name not in known:
            verdict.add(Level.UNKNOWN, f"queue {name} does not exist")
    checked = [queue for queue in status.queues if not plan.queues or queue.name in plan.queues]
    for queue in checked:
        _judge_queue(verdict, queue, plan.limits(queue.name), status.now_ms)
    ready = sum(server.is_ready for server in status.servers)
    well = f"{ready} of {len(status.servers)} processes ready, {counted(len(status.shards), 'shard')} in, "
    well += counted(len(checked), "queue")
    return verdict.level, verdict.line(well)


def _judge_cluster(verdict: CheckVerdict, status: ClusterStatus, limits: Limits) -> None:
    out = [shard for shard in status.shards if shard.state != "in" or out_at(shard, status)]
    detail = ", ".join(_out(shard, status) for shard in out)
    if all(shard.state != "in" for shard in status.shards):
        verdict.add(Level.CRITICAL, "no shard is in")
    verdict.judge("shards_out", "shards_out", len(out), limits, detail or "no shard out")
    full = [shard for shard in status.shards if shard not in out and shard.is_full]
    detail = ", ".join(f"shard {each.id} full: {_shard_problem(each)}" for each in full)
    takers = [shard for shard in status.shards if shard.state == "in" and not shard.dequeue_only]
    if takers and all(shard.is_full for shard in takers):
        verdict.add(Level.CRITICAL, "no shard has room for new jobs")
    verdict.judge("shards_full", "shards_full", len(full), limits, detail or "no shard full")
    unready = [server for server in status.servers if not server.is_ready]
    detail = ", ".join(f"{each.server}/{each.process} not ready: {each.trouble}" for each in unready)
    verdict.judge("unready", "unready", len(unready), limits, detail or "all processes ready")
    for each in status.servers:
        if each.is_ready and each.trouble:
            verdict.add(Level.WARNING, f"{each.server}/{each.process}: {each.trouble}")
    ready = {server.server for server in status.servers if server.is_ready}
    verdict.judge("servers", "servers", len(ready), limits, f"{counted(len(ready), 'server')} ready")


def _out(shard: ShardView, status: ClusterStatus) -> str:
    """Where the process that answers can use it, who cannot."""
    if shard.state != "in":
        return f"shard {shard.id} {shard.state}: {_shard_problem(shard)}"
    return f"shard {shard.id} out at {', '.join(out_at(shard, status))}"


def _shard_problem(shard: ShardView) -> str:
    return shard.trouble.removeprefix(f"shard {shard.id}: ")


def _judge_queue(verdict: CheckVerdict, queue: QueueStatus, limits: Limits, now_ms: int) -> None:
    """Only the figures that have a threshold."""
    watched = [key for key in OF_QUEUES if limits.warn.get(key) is not None or limits.crit.get(key) is not None]
    if not watched:
        return
    if not queue.counted_at_ms:
        verdict.add(Level.UNKNOWN, f"{queue.name}: not counted yet")
        return
    counts = totals(queue)
    for key in watched:
        counted_at_ms = (queue.ended_counted_at_ms if key in _OF_ENDED else None) or queue.counted_at_ms
        age_ms = now_ms - counted_at_ms
        old = f", as counted {age_text(age_ms)} ago" if age_ms > _OLD_MS else ""
        if key == "oldest":
            value = oldest_age_ms(queue, now_ms) or 0
            text = f"{queue.name}: the oldest ready job waits for {age_text(value)}"
        else:
            value = counts[key]
            text = f"{queue.name}: {value:,} {_WORDS.get(key, key)}"
        verdict.judge(f"{queue.name}_{key}", key, value, limits, text + old)


def _shown(key: str, value: int) -> str:
    """Ages are in seconds there."""
    return f"{value / 1000:g}s" if key == "oldest" else str(value)


def _range(key: str, limit: int | None) -> str:
    if limit is None:
        return ""
    if key == "oldest":
        return f"{limit / 1000:g}"
    return f"{limit}:" if key == AT_LEAST else str(limit)


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
    _end(f"PINLATER UNKNOWN - {printable(redact(why)).replace('|', '/')}", Level.UNKNOWN)


def _end(line: str, level: Level) -> NoReturn:
    """The exit code is the verdict, also where the line cannot be written."""
    try:
        click.echo(line)
    except OutputFailed:
        drop_output()
    raise SystemExit(level)


@click.command(
    cls=CheckCommand,
    epilog="""\b
Examples:
  pinlater check --cluster mail                     thresholds from the cluster's table in clusters.toml
  pinlater check --warn ready=1000,oldest=5m --crit ready=10000,oldest=30m
  pinlater check --queue letters --crit oldest=2m,failed=100
  pinlater check --no-alarms                        by the thresholds alone
  pinlater check --crit shards-out=0,servers=2

\b
A threshold is what may not be exceeded: ready, scheduled, waiting, running, failed, cancelled, replayed (jobs of each
queue), oldest (for how long the job that is ready for the longest has been so), shards-out, shards-full (shards),
unready (server processes that are not ready); of servers that are ready there must not be fewer. `none` takes a
threshold away. Without any, a shard that is out or full or a process that is not ready is a warning, and no ready
server is critical, nor a shard that is in, nor one with room for new jobs.

\b
Exit codes: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN (also: no server could be reached, a wrong command line).""",
)
@click.option("--warn", "warn", multiple=True, metavar="KEY=N,...", help="More is worth a warning; repeatable.")
@click.option("--crit", "crit", multiple=True, metavar="KEY=N,...", help="More is critical; repeatable.")
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    shell_complete=offer_queues,
    help="Only this queue; repeatable. [default: all]",
)
@click.option("--no-alarms", is_flag=True, help="By the thresholds alone: alarms do not count.")
@talks_to_server
def check(
    client: Client, warn: tuple[str, ...], crit: tuple[str, ...], queues: tuple[str, ...], no_alarms: bool
) -> None:
    """Judge a cluster by its alarms and by thresholds, in one line with the figures, and by the exit code, as Nagios
    plugins do.

    Alarms are those of `pinlater alarms` that are not muted: a critical one is CRITICAL, a warning WARNING, and the
    others do not count. Thresholds come from --warn and --crit, and else from the table `check` of the cluster that
    --cluster or PINLATER_CLUSTER names in clusters.toml.
    """
    plan = _plan(click.get_current_context().params, warn, crit, queues)
    status = readable_status(client, queues or None)
    level, line = judge(status, plan, None if no_alarms else _alarms(client))
    _end(printable(line), level)


def _alarms(client: Client) -> AlarmsPage | None:
    """None: the server is of an earlier version, which judges none."""
    try:
        return client.get_alarms()
    except MethodUnknown:
        return None


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

"""The verdict of `pinlater check` over a cluster, and its line in the form that Nagios and its kind read. Pure."""

from __future__ import annotations

from enum import IntEnum

from pinlater.cli.check_limits import AT_LEAST, OF_QUEUES, Limits
from pinlater.cli.check_plan import CheckPlan
from pinlater.cli.cluster_rows import oldest_age_ms, out_at, totals
from pinlater.cli.output import counted
from pinlater.cli.times import age_text
from pinlater.model import ClusterStatus, QueueStatus, ShardView
from pinlater.printable import printable

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


class Verdict:
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


def judge(status: ClusterStatus, plan: CheckPlan) -> tuple[Level, str]:
    """The exit code and the line."""
    verdict = Verdict()
    _judge_cluster(verdict, status, plan.cluster())
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


def _judge_cluster(verdict: Verdict, status: ClusterStatus, limits: Limits) -> None:
    out = [shard for shard in status.shards if shard.state != "in" or out_at(shard, status)]
    told = ", ".join(_out(shard, status) for shard in out)
    if all(shard.state != "in" for shard in status.shards):
        verdict.add(Level.CRITICAL, "no shard is in")
    verdict.judge("shards_out", "shards_out", len(out), limits, told or "no shard out")
    full = [shard for shard in status.shards if shard not in out and shard.is_full]
    told = ", ".join(f"shard {each.id} full: {_trouble(each)}" for each in full)
    takers = [shard for shard in status.shards if shard.state == "in" and not shard.dequeue_only]
    if takers and all(shard.is_full for shard in takers):
        verdict.add(Level.CRITICAL, "no shard has room for new jobs")
    verdict.judge("shards_full", "shards_full", len(full), limits, told or "no shard full")
    unready = [server for server in status.servers if not server.is_ready]
    told = ", ".join(f"{each.server}/{each.process} not ready: {each.trouble}" for each in unready)
    verdict.judge("unready", "unready", len(unready), limits, told or "all processes ready")
    for each in status.servers:
        if each.is_ready and each.trouble:
            verdict.add(Level.WARNING, f"{each.server}/{each.process}: {each.trouble}")
    ready = {server.server for server in status.servers if server.is_ready}
    verdict.judge("servers", "servers", len(ready), limits, f"{counted(len(ready), 'server')} ready")


def _out(shard: ShardView, status: ClusterStatus) -> str:
    """Where the process that answers can use it, who cannot."""
    if shard.state != "in":
        return f"shard {shard.id} {shard.state}: {_trouble(shard)}"
    return f"shard {shard.id} out at {', '.join(out_at(shard, status))}"


def _trouble(shard: ShardView) -> str:
    return shard.trouble.removeprefix(f"shard {shard.id}: ")


def _judge_queue(verdict: Verdict, queue: QueueStatus, limits: Limits, now_ms: int) -> None:
    """Only the figures that have a threshold."""
    watched = [key for key in OF_QUEUES if limits.warn.get(key) is not None or limits.crit.get(key) is not None]
    if not watched:
        return
    if not queue.counted_at_ms:
        verdict.add(Level.UNKNOWN, f"{queue.name}: not counted yet")
        return
    counts = totals(queue)
    age_ms = now_ms - queue.counted_at_ms
    old = f", as counted {age_text(age_ms)} ago" if age_ms > _OLD_MS else ""
    for key in watched:
        if key == "oldest":
            value = oldest_age_ms(queue, now_ms) or 0
            text = f"{queue.name}: the oldest ready job waits for {age_text(value)}"
        else:
            value = counts[key]
            text = f"{queue.name}: {value:,} {key.replace('_', ' ')}"
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

"""The pictures of `pinlater top`: a cluster with its queues, the worst first, and one queue."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pinlater.cli.cluster import flags_text, no_queues, oldest_age_ms, state_text, totals
from pinlater.cli.job_text import last_status_line
from pinlater.cli.output import counted
from pinlater.cli.times import time_text
from pinlater.durations import age_text
from pinlater.model import (
    DEAD_LETTERS,
    ClusterStatus,
    JobInfo,
    LevelView,
    QueueStatus,
    ServerView,
    ShardView,
    WorkersPage,
    queue_order,
)
from pinlater.model.alarm_views import Alarm, AlarmsPage
from pinlater.model.job_selection import PHASE_WORDS
from pinlater.text_table import Column, TextTable, cut_text, text_width

_SERVERS = (
    Column("SERVER", 9),
    Column("ADDRESS", 5),
    Column("STATE", 8),
    Column("UP", 3, True),
    Column("MAINTAINS", 4),
    Column("OUT", 6),
    Column("OVERFLOW", 2, True),
    Column("TROUBLE", 7),
)
_SHARDS = (
    Column("SHARD", 9),
    Column("STATE", 8),
    Column("JOBS", 6, True),
    Column("GOOD", 5, True),
    Column("STORE", 2),
    Column("TROUBLE", 7),
)
_RATES = ("enqueued", "dequeued", "succeeded", "failed", "retried")
_LIMITED = Column("LIMITED", 6, True)
"""The ready jobs whose groups are paused or at their limits; only where there are any."""

_QUEUES = (
    Column("QUEUE", 9),
    Column("READY", 8, True),
    _LIMITED,
    Column("SCHEDULED", 4, True),
    Column("WAITING", 5, True),
    Column("RUNNING", 8, True),
    Column("FAILED", 5, True),
    Column("CANCELLED", 3, True),
    Column("REPLAYED", 2, True),
    Column("OLDEST", 7, True),
    Column("IN/S", 6, True),
    Column("OUT/S", 6, True),
    Column("DONE/S", 3, True),
    Column("FAIL/S", 4, True),
    Column("RETRY/S", 3, True),
    Column("FLAGS"),
)


_WORTH = {"ready": 8, "running": 8, "failed": 8, "cancelled": 4, "replayed": 3}
_LETTER_STATES = ("ready", "scheduled", "waiting", "in_progress", "failed")
_LEVELS = (
    Column("PRIORITY", 9, True),
    *(Column(word.upper(), _WORTH.get(word, 5), True) for word in PHASE_WORDS.values()),
    _LIMITED,
    Column("OLDEST", 7, True),
)
_KEYS = "q quit  arrows mark  Enter open  p pause or resume  s sort: {order}"
_KEYS_OF_QUEUE = "q back  p pause or resume"
_MARK, _NO_MARK = "> ", "  "


@dataclass
class TopView:
    """What is looked at: the order of the queues, the one that is marked, and the one that is open ("": none)."""

    order: str = "worst"
    marked: str = ""
    opened: str = ""
    asks: str = ""
    """A question, which the next key answers."""

    tells: str = ""
    """What became of the last command."""

    def next_order(self) -> None:
        orders = list(ORDERS)
        self.order = orders[(orders.index(self.order) + 1) % len(orders)]

    def move(self, names: Sequence[str], by: int) -> None:
        """Mark another one of these, so many further on."""
        if names:
            at = names.index(self.marked) if self.marked in names else 0
            self.marked = names[max(0, min(len(names) - 1, at + by))]


class QueueLook:
    """A queue of a picture, and its place among the alarms, the worst first; None: it has none. Jobs of a dead-letter
    queue, and of one that is paused, wait for an operator alone.
    """

    def __init__(self, queue: QueueStatus, now_ms: int, alarm_at: int | None) -> None:
        self.queue = queue
        self.counts = totals(queue)
        self.alarm_at = alarm_at
        self.is_letters = DEAD_LETTERS in queue.flags
        self.oldest_ms = oldest_age_ms(queue, now_ms)

    def rate(self, word: str) -> float:
        return self.queue.rates.get(word, 0.0)

    @property
    def worst(self) -> tuple[Any, ...]:
        """Alarms, then failures, then waits, then what moves, then what lies there; letters last."""
        is_held = self.is_letters or "paused" in self.queue.flags
        waits_ms = 0 if is_held else self.oldest_ms or 0
        moving = self.rate("enqueued") + self.rate("dequeued")
        lies = self.counts["ready"] + self.counts["in_progress"]
        alarm = math.inf if self.alarm_at is None else self.alarm_at
        failed = -round(self.rate("failed"), 1)
        return alarm, self.is_letters, failed, -(waits_ms // 10_000), -round(moving, 1), -lies


ORDERS: dict[str, Callable[[QueueLook], tuple[Any, ...]]] = {
    "worst": lambda look: look.worst,
    "name": lambda look: (),
    "ready": lambda look: (-look.counts["ready"],),
    "running": lambda look: (-look.counts["in_progress"],),
    "failed": lambda look: (-look.counts["failed"],),
    "oldest": lambda look: (-(look.oldest_ms or 0),),
}
"""By name, what queues are sorted by, and then by their names."""


def looks_in_order(status: ClusterStatus, alarms: AlarmsPage | None, order: str) -> list[QueueLook]:
    places: dict[str, int] = {}
    for at, alarm in enumerate(_unmuted(alarms)):
        places.setdefault(alarm.queue, at)
    looks = [QueueLook(each, status.now_ms, places.get(each.name)) for each in status.queues]
    key = ORDERS[order]
    return sorted(looks, key=lambda look: (*key(look), queue_order(look.queue.name)))


def _unmuted(alarms: AlarmsPage | None) -> list[Alarm]:
    """Those that nobody has muted, the worst first."""
    return [each for each in alarms.alarms if not each.is_muted] if alarms is not None else []


def alarm_line(alarms: AlarmsPage | None) -> str:
    """The worst of the alarms first, in one line; "" where all is well, or nobody judges."""
    titles = [each.title for each in _unmuted(alarms)]
    return f"{counted(len(titles), 'alarm')}: {'; '.join(titles)}" if titles else ""


def frame(
    status: ClusterStatus,
    servers: str,
    width: int,
    height: int | None = None,
    alarms: AlarmsPage | None = None,
    order: str = "worst",
    view: TopView | None = None,
) -> list[str]:
    """Servers, shards, and the queues with the worst first, in at most `height` lines (None: all of it).

    `servers` are the addresses that were asked; `alarms` None: nobody judges. With a `view` one queue is marked and
    always in the picture, and the last line is about keys.
    """
    looks = looks_in_order(status, alarms, order)
    names = [look.queue.name for look in looks]
    if view is not None and names and view.marked not in names:
        view.marked = names[0]
    head = [*_head(status, servers, looks, width), *filter(None, [alarm_line(alarms)]), ""]
    machines = _machines(status, width)
    heading, *rows = _rows(looks, status, width, view)
    foot = [] if view is None else [_foot(view)]
    if height is not None:
        room = height - len(head) - len(foot) - 1
        machines = _cut(machines, max(0, room - min(len(rows), room // 2)), "more lines")
        at = names.index(view.marked) if view is not None and names else 0
        rows = _window(rows, at, room - len(machines))
    lines = [cut_text(line, width) for line in [*head, *machines, heading, *rows]]
    if height is not None:
        lines = _cut(lines, max(1, height - len(foot)), "more lines")
    return lines + [cut_text(line, width) for line in foot]


def _head(status: ClusterStatus, servers: str, looks: Sequence[QueueLook], width: int) -> list[str]:
    """The cluster, and its jobs without dead letters, which are counted apart."""
    ready = sum(each.is_ready for each in status.servers)
    out = sum(each.state != "in" for each in status.shards)
    full = sum(each.is_full for each in status.shards)
    head = f"  {ready}/{len(status.servers)} processes ready"
    head += f"  {len(status.shards) - out}/{len(status.shards)} shards in" + (f", {full} full" if full else "")
    others = [look for look in looks if not look.is_letters]
    letters = sum(sum(look.counts[key] for key in _LETTER_STATES) for look in looks if look.is_letters)
    oldest_ms = max((look.oldest_ms for look in others if look.oldest_ms is not None), default=None)
    words = {"ready": "ready", "in_progress": "running", "scheduled": "scheduled", "failed": "failed"}
    jobs = [f"{sum(look.counts[key] for look in others):,} {word}" for key, word in words.items()]
    jobs += [] if oldest_ms is None else [f"oldest {age_text(oldest_ms)}"]
    jobs += [counted(letters, "dead letter")] if letters else []
    queues = f"  {counted(len(looks), 'queue')}"
    moment, time = time_text(status.now_ms)[:19], time_text(status.now_ms)[11:19]
    heads = [f"pinlater {servers}  {at}Z{head}{more}" for at, more in ((moment, queues), (time, queues), (time, ""))]
    return [next((each for each in heads if text_width(each) <= width), heads[-1]), "  ".join(jobs)]


def _machines(status: ClusterStatus, width: int) -> list[str]:
    """Servers and shards, those first that have a problem."""
    servers = sorted(status.servers, key=lambda each: each.is_ready and not each.trouble)
    shards = sorted(status.shards, key=lambda each: each.state == "in" and not each.is_full)
    lines = TextTable(_SERVERS).lines([_server(each, status.now_ms) for each in servers], width)
    return [*lines, "", *TextTable(_SHARDS).lines([_shard(each) for each in shards], width), ""]


def _rows(looks: Sequence[QueueLook], status: ClusterStatus, width: int, view: TopView | None) -> list[str]:
    """The heading of the queues, and a line for each."""
    if not looks:
        return [no_queues(status)]
    rows = [_queue(look.queue, status.now_ms) for look in looks]
    if view is None:
        return _lines(_QUEUES, rows, width)
    heading, *lines = _lines(_QUEUES, rows, max(1, width - len(_MARK)))
    marks = [_MARK if look.queue.name == view.marked else _NO_MARK for look in looks]
    return [_NO_MARK + heading, *map(str.__add__, marks, lines)]


def _lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """A table, without the limited jobs where there are none."""
    at = columns.index(_LIMITED)
    shown = [place for place in range(len(columns)) if place != at or any(row[at] for row in rows)]
    return TextTable([columns[place] for place in shown]).lines(
        [[row[place] for place in shown] for row in rows], width
    )


def _window(rows: list[str], at: int, room: int) -> list[str]:
    """As many rows as there is room for, that of `at` among them; a line counts the others."""
    if len(rows) <= room:
        return rows
    shown = max(1, room - 1)
    begin = max(0, min(at - shown // 2, len(rows) - shown))
    return [*rows[begin : begin + shown], f"... {len(rows) - shown} more queues"]


def _cut(lines: list[str], most: int, what: str) -> list[str]:
    return lines if len(lines) <= most else [*lines[: most - 1], f"... {len(lines) - most + 1} {what}"][:most]


def _foot(view: TopView) -> str:
    if view.asks or view.tells:
        return view.asks or view.tells
    return _KEYS_OF_QUEUE if view.opened else _KEYS.format(order=view.order)


def queue_frame(
    queue: QueueStatus | None,
    workers: WorkersPage,
    failed: Sequence[JobInfo],
    now_ms: int,
    size: tuple[int, int],
    view: TopView,
) -> list[str]:
    """One queue: its jobs by priority, what holds it back, its workers, and its last failures. None: it is gone."""
    width, height = size
    lines = [f"queue {view.opened}  {time_text(now_ms)[11:19]}Z", ""]
    if queue is None:
        lines.append("it does not exist any more")
    else:
        rates = [f"{word} {_per_second(queue.rates.get(word, 0.0))}/s" for word in _RATES]
        lines += [flags_text(queue, now_ms) or "nothing holds it back", "  ".join(rates), ""]
        rows = [_level(each, now_ms) for each in queue.levels]
        lines += _lines(_LEVELS, rows, width) if rows else ["it has no jobs"]
        busy = f", {workers.busy_slots:,} of {workers.slots:,} slots busy" if workers.total else ""
        lines += ["", f"{counted(workers.total, 'worker')}{busy}", ""]
        lines += ["last failures" if failed else "no job has failed"]
        lines += ["  ".join((info.descriptor, last_status_line(info.custom_status))) for info in failed]
    lines = _cut([cut_text(line, width) for line in lines], height - 1, "more lines")
    return [*lines, cut_text(_foot(view), width)]


def _level(level: LevelView, now_ms: int) -> list[str]:
    oldest = "" if level.oldest_ready_ms is None else age_text(max(0, now_ms - level.oldest_ready_ms))
    phases = [f"{getattr(level, key):,}" for key in PHASE_WORDS]
    return [str(level.priority), *phases, f"{level.ready_limited:,}" if level.ready_limited else "", oldest]


def _server(view: ServerView, now_ms: int) -> list[str]:
    return [
        f"{view.server}/{view.process}",
        view.address,
        "ready" if view.is_ready else "NOT READY",
        age_text(now_ms - view.started_ms),
        ",".join(view.maintains),
        ",".join(view.shards_out),
        "" if view.overflow_jobs is None else f"{view.overflow_jobs:,}",
        view.trouble,
    ]


def _shard(view: ShardView) -> list[str]:
    word = state_text(view)
    state = word if word == "in" else word.upper()
    return [
        view.id,
        f"{state}, dequeue only" if view.dequeue_only else state,
        "?" if view.jobs is None else f"{view.jobs:,}",
        f"{view.good}/{view.samples}",
        view.store,
        view.trouble,
    ]


def _queue(queue: QueueStatus, now_ms: int) -> list[str]:
    counts, limited = totals(queue), sum(level.ready_limited for level in queue.levels)
    oldest_ms = oldest_age_ms(queue, now_ms)
    return [
        queue.name,
        f"{counts['ready']:,}",
        f"{limited:,}" if limited else "",
        f"{counts['scheduled']:,}",
        f"{counts['waiting']:,}" if counts["waiting"] else "",
        f"{counts['in_progress']:,}",
        f"{counts['failed']:,}",
        f"{counts['cancelled']:,}" if counts["cancelled"] else "",
        f"{counts['replayed']:,}" if counts["replayed"] else "",
        "" if oldest_ms is None else age_text(oldest_ms),
        *(_per_second(queue.rates.get(word, 0.0)) for word in _RATES),
        flags_text(queue, now_ms),
    ]


def _per_second(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}".replace("0.0", "0")

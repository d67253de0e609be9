"""`pinlater watch`: what happens in queues, as lines: how many jobs were enqueued, started and ended, which failed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from pinlater.cli.cluster import flags_text
from pinlater.cli.completion import offer_queues
from pinlater.cli.connection import EXIT_CODES, ServerCommand, say, talks_to_server
from pinlater.cli.job_text import last_status_line
from pinlater.cli.output import Row, open_output, output_option
from pinlater.cli.times import duration_option, time_text
from pinlater.client.client import Client
from pinlater.counter_ledger import CounterLedger
from pinlater.errors import PinLaterError, QueueNotFound
from pinlater.model import ClusterStatus, queue_order
from pinlater.model.callers import matches
from pinlater.model.job_selection import JobPhase, JobSelection
from pinlater.text_table import Column

EVENTS = ("enqueued", "started", "succeeded", "failed", "retried")
"""As processes count them, in their order."""

_HELD = "held"
_OVERLAP_MS = 20_000
"""So long a count may be on its way from the process that it is of."""

_MOST_FAILURES = 20
_COLUMNS = ("at", "queue", "event", Column("jobs", is_number=True), "detail")


class QueueEvent(NamedTuple):
    """Something that happened in a queue, to so many jobs; `job`: one that failed."""

    at_ms: int
    queue: str
    event: str
    jobs: int | None = None
    detail: str = ""
    job: str | None = None


class WatchedQueues:
    """What happened in queues since the last look."""

    def __init__(self, client: Client, patterns: Sequence[str], *, names_failures: bool) -> None:
        self._client = client
        self._patterns = patterns
        self._is_named = bool(patterns) and all("*" not in each for each in patterns)
        self._names_failures = names_failures
        self._ledger = CounterLedger()
        self._known_until_ms: int | None = None
        self._held: dict[str, str] = {}
        self._named: dict[str, int] = {}
        """The failures that were named, and when they ended: as far as a further look may find them again."""

    def look(self) -> list[QueueEvent]:
        """By queue; nothing the first time. PinLaterError, then also QueueNotFound: of a queue that is named."""
        since_ms = 0 if self._known_until_ms is None else max(0, self._known_until_ms - _OVERLAP_MS)
        names = self._patterns if self._is_named else None
        status = self._client.cluster_status(queues=names, counters_since_ms=since_ms)
        new = self._ledger.take(status.counters or (), self._known_until_ms or status.now_ms, status.now_ms)
        is_first, before_ms = self._known_until_ms is None, self._known_until_ms or status.now_ms
        self._known_until_ms = status.now_ms
        there = {queue.name for queue in status.queues}
        for name in names or () if is_first else ():
            if name not in there:
                raise QueueNotFound.of(name)
        events = list(self._of_settings(status))
        for queue in sorted(new, key=queue_order):
            if self._is_wanted(queue):
                counts = zip(EVENTS, new[queue], strict=True)
                events += [QueueEvent(status.now_ms, queue, event, jobs) for event, jobs in counts if jobs]
                if self._names_failures and new[queue][EVENTS.index("failed")] and not is_first:
                    events += self._failures(queue, before_ms)
        return [] if is_first else events

    def _is_wanted(self, queue: str) -> bool:
        return not self._patterns or any(matches(each, queue) for each in self._patterns)

    def _of_settings(self, status: ClusterStatus) -> Iterator[QueueEvent]:
        """Queues that something else holds back than before."""
        for queue in status.queues:
            held = " ".join(queue.flags)
            if self._is_wanted(queue.name) and self._held.get(queue.name, "") != held:
                text = flags_text(queue, status.now_ms) or "nothing any more"
                yield QueueEvent(status.now_ms, queue.name, _HELD, detail=text)
            self._held[queue.name] = held

    def _failures(self, queue: str, since_ms: int) -> Iterator[QueueEvent]:
        from_ms = max(0, since_ms - _OVERLAP_MS)
        self._named = {job: ended_ms for job, ended_ms in self._named.items() if ended_ms >= from_ms}
        selection = JobSelection(queue, [JobPhase.FAILED], ended_after_ms=from_ms)
        for info in self._client.search_jobs(selection, limit=_MOST_FAILURES).jobs:
            if info.descriptor not in self._named:
                self._named[info.descriptor] = ended_ms = info.finished_at_ms or info.updated_at_ms
                text = last_status_line(info.custom_status)
                yield QueueEvent(ended_ms, queue, "failed", detail=text, job=info.descriptor)


def _row(event: QueueEvent) -> Row:
    """As a table has it: the time of day is enough, and where the jobs are counted no job is named."""
    detail = " ".join(each for each in (event.job, event.detail) if each)
    return {**event._asdict(), "at": f"{time_text(event.at_ms)[11:19]}Z", "detail": detail}


def _json(event: QueueEvent) -> Row:
    return {key: value for key, value in event._asdict().items() if value not in (None, "")}


@click.command(
    cls=ServerCommand,
    epilog=f"""\b
Examples:
  pinlater watch
  pinlater watch mail 'sms-*' --jobs
  pinlater watch --event failed --event retried
  pinlater watch mail --for 10m -o jsonl > events.jsonl

{EXIT_CODES}""",
)
@click.argument("queues", nargs=-1, metavar="[QUEUE]...", shell_complete=offer_queues)
@click.option(
    "--event",
    "wanted",
    multiple=True,
    type=click.Choice((*EVENTS, _HELD)),
    help="Only such events; repeatable. [default: all]",
)
@click.option("--jobs", "names_failures", is_flag=True, help="Name the jobs that failed, with their last error.")
@click.option(
    "--interval",
    "interval_ms",
    type=duration_option,
    metavar="DURATION",
    default=1_000,
    help="The time between two polls. [default: 1s]",
)
@click.option(
    "--for", "for_ms", type=duration_option, metavar="DURATION", help="How long to watch. [default: until Ctrl-C]"
)
@output_option
@talks_to_server
def watch(
    client: Client,
    queues: tuple[str, ...],
    wanted: tuple[str, ...],
    names_failures: bool,
    interval_ms: int,
    for_ms: int | None,
    format: str,
) -> None:
    """Print what happens in queues, as it happens; * in a QUEUE stands for any characters.

    A line says how many jobs of a queue were enqueued, started (a worker got them), succeeded, failed for good or
    failed and are retried since the line before; held: what holds the queue back now, as a pause. Servers tell of their
    counts every few seconds. While no server answers, it goes on trying, and says so.
    """
    events = WatchedQueues(client, queues, names_failures=names_failures)
    events.look()  # where there is no server, that is said at once
    output = open_output(format, _COLUMNS, _row, _json)
    ends_s = None if for_ms is None else time.monotonic() + for_ms / 1000
    problem = ""
    try:
        while ends_s is None or time.monotonic() < ends_s:
            time.sleep(interval_ms / 1000)
            try:
                found = events.look()
                problem = ""
            except PinLaterError as error:
                if error.message != problem:
                    problem = error.message
                    say(problem)
                continue
            output.write(each for each in found if not wanted or each.event in wanted)
    finally:
        output.close()

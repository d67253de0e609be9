"""The conditions of workers, and of relays of outboxes. Pure functions of the evidence."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator

from pinlater.alarms.alarm_texts import jobs_line, jobs_page, names_text, some_jobs, waiting_text
from pinlater.alarms.condition import Finding, found_before
from pinlater.alarms.evidence import Evidence, LostWorker, QueueFacts
from pinlater.durations import span_text
from pinlater.model import OutboxReport, WorkerInfo
from pinlater.model.alarm_views import Severity

LOST_FOR_MS = 900_000
"""How long a lost worker is reported where others are left."""

UNKNOWN_MS = 300_000
"""How long before its workers a deploy may bring jobs of a new type."""

_WORKERS_PAGE = "/dashboard/workers"


def worker_gone(evidence: Evidence) -> Iterator[Finding]:
    """One for each queue that lost a worker which did not announce a stop."""
    now = evidence.now
    if now.workers is None:
        return
    by_queue: dict[str, list[LostWorker]] = {}
    for each in evidence.past.lost():
        for taken_from in each.worker.queues:
            by_queue.setdefault(taken_from, []).append(each)
    yield from _gone_before(evidence, by_queue)
    for name, gone in by_queue.items():
        left = now.polled.get(name, 0)
        lost = [each for each in gone if not _is_replaced(evidence, each, name)]
        if left and (not lost or now.now_ms - max(each.noticed_ms for each in lost) > LOST_FOR_MS):
            continue
        if not lost or name in now.dead_letter_queues:
            continue
        queue = now.queues.get(name, QueueFacts(name=name))
        severity = Severity.INFO if left or queue.is_paused else Severity.CRITICAL
        who = sorted(f"{each.worker.name} on {each.worker.host}" for each in lost)
        many = f"{len(lost):,} worker{' is' if len(lost) == 1 else 's are'} gone"
        yield Finding(
            subject=name,
            title=f"{name}: {many}, {left:,} left" if left else f"{name}: {many}, and none is left",
            queue=name,
            since_ms=min(each.worker.seen_ms for each in lost),
            severity=severity,
            size=max(queue.ready, len(lost)),
            why=f"{names_text(who)}: no report any more, and no notice of a stop.",
            impact=waiting_text(queue.ready),
            action="See on that machine why it ended (killed, out of memory, network), and start it again.",
            command=f"pinlater worker list --queue {name}",
            path=_WORKERS_PAGE,
        )


def _gone_before(evidence: Evidence, known: Collection[str]) -> Iterator[Finding]:
    """What a judge before this one found, which alone saw these workers: until somebody takes from the queue."""
    now = evidence.now
    for queue, alarm in evidence.remembered("worker_gone"):
        if queue not in known and not now.polled.get(queue):
            yield found_before(alarm, size=max(now.queues[queue].ready if queue in now.queues else 0, 1))


def _is_replaced(evidence: Evidence, lost: LostWorker, queue: str) -> bool:
    """A worker of the same name, which takes from that queue, began after its last report."""
    return any(
        each.worker.name == lost.worker.name
        and queue in each.worker.queues
        and each.worker.started_ms >= lost.worker.seen_ms - 60_000
        for each in evidence.now.workers or ()
    )


def worker_silent(evidence: Evidence) -> Iterator[Finding]:
    silent = [each.worker for each in evidence.now.workers or () if each.worker.silent_since_ms is not None]
    if silent:
        names = sorted(f"{each.name} on {each.host}" for each in silent)
        yield Finding(
            subject="",
            title=f"{len(silent):,} worker{' is' if len(silent) == 1 else 's are'} silent, although the process is "
            "there",
            since_ms=min(each.silent_since_ms or 0 for each in silent),
            size=len(silent),
            why="Its event loop does not run, while its heartbeat process goes on.",
            impact=f"the jobs of {names_text(names)} do not go on",
            action="See what keeps it busy: a job that never yields in the asyncio pool, swap, a stopped process.",
            command="pinlater worker list",
            path=_WORKERS_PAGE,
        )


def slots_stuck(evidence: Evidence) -> Iterator[Finding]:
    stuck = [each.worker for each in evidence.now.workers or () if each.worker.stuck_slots]
    if stuck:
        slots = sum(each.stuck_slots for each in stuck)
        names = sorted(f"{each.name} on {each.host}" for each in stuck)
        yield Finding(
            subject="",
            title=f"{slots:,} slot{' of workers is' if slots == 1 else 's of workers are'} stuck",
            size=slots,
            why="Jobs did not end when they were to stop.",
            impact=f"these slots of {names_text(names)} run no jobs",
            action="See what these jobs wait for; the slots come back with a restart of the worker.",
            command="pinlater worker list --running",
            path=_WORKERS_PAGE,
        )


def type_unknown(evidence: Evidence) -> Iterator[Finding]:
    """Jobs of a type that no worker of their queue knows, for longer than a deploy takes."""
    for each in evidence.past.unknown():
        subject = f"{each.queue}/{each.job_type}" if each.job_type else each.queue
        is_new = evidence.now.now_ms - each.since_ms < UNKNOWN_MS
        if is_new and not evidence.stands("type_unknown", subject):
            continue
        jobs = f"jobs of type {each.job_type}" if each.job_type else "jobs whose bodies they cannot read"
        line = jobs_line(each.queue, "scheduled", each.job_type)
        yield Finding(
            subject=subject,
            title=f"{each.queue}: no worker knows {jobs}",
            queue=each.queue,
            since_ms=each.since_ms,
            size=max(1, each.jobs),
            why=f"The workers of this queue met {jobs}, the last {span_text(evidence.now.now_ms - each.last_ms)} ago, "
            "and none of them can run these: the type is of a release that no worker has yet, of another app, or "
            "misspelt.",
            impact="they are tried ever less often, and fail after --unknown-limit of the workers (24 h)",
            action="Start workers that know this type, or correct the queue that these jobs are enqueued into.",
            command=f"pinlater job get --filter {shlex.quote(line)}",
            path=jobs_page(line),
        )


def outbox_not_relayed(evidence: Evidence) -> Iterator[Finding]:
    """An outbox whose relays are all gone and announced no stop, or in which jobs wait for too long."""
    now = evidence.now
    if now.workers is None:
        return
    here: dict[str, WorkerInfo] = {}
    for each in now.workers:
        relay = each.worker
        if relay.outbox is not None and not each.is_stopping:
            last = here.get(relay.outbox.name)
            here[relay.outbox.name] = relay if last is None or relay.seen_ms > last.seen_ms else last
    gone = {each.worker.outbox.name: each.worker for each in evidence.past.lost() if each.worker.outbox is not None}
    for relay in gone.values():
        yield _relay_gone(relay, now.now_ms)
    for name, alarm in evidence.remembered("outbox_not_relayed"):
        if name not in here and name not in gone:
            yield found_before(alarm, size=max(1, alarm.size))
    for relay in here.values():
        outbox = relay.outbox
        if outbox is not None and outbox.waiting and outbox.oldest_ms > outbox.goal_ms > 0:
            yield _jobs_late(relay, outbox)


def _relay_gone(relay: WorkerInfo, now_ms: int) -> Finding:
    outbox = relay.outbox
    assert outbox is not None
    waiting = f", and {some_jobs(outbox.waiting, 'committed')} waited there then" if outbox.waiting else ""
    return Finding(
        subject=outbox.name,
        title=f"Outbox {outbox.name} is not relayed: its relay is gone",
        since_ms=relay.seen_ms,
        severity=Severity.CRITICAL,
        size=max(1, outbox.waiting),
        why=f"The relay on {relay.host}, process {relay.pid}, sent its last report "
        f"{span_text(now_ms - relay.seen_ms)} ago and announced no stop, and no other one runs{waiting}.",
        impact="jobs that the application commits from now on reach no queue",
        action="See on that machine why it ended (killed, out of memory, network), and start a relay again.",
        command="pinlater-worker outbox --database URL --app YOUR.MODULE:app",
        path=_WORKERS_PAGE,
        has_own_cause=True,
    )


def _jobs_late(relay: WorkerInfo, outbox: OutboxReport) -> Finding:
    oldest_at_ms = relay.seen_ms - outbox.oldest_ms
    return Finding(
        subject=outbox.name,
        title=f"Outbox {outbox.name}: the oldest job waits for {span_text(outbox.oldest_ms)}",
        since_ms=oldest_at_ms + outbox.goal_ms,
        size=outbox.waiting,
        why=f"Its relay on {relay.host} has not handed it over, and none is to wait for more than "
        f"{span_text(outbox.goal_ms)}.",
        error=outbox.problem,
        impact=f"{some_jobs(outbox.waiting, 'committed')} {'has' if outbox.waiting == 1 else 'have'} reached no queue",
        action="See what keeps them: the queue, the servers, or more jobs than one relay hands over.",
        command="pinlater-worker outbox status --database URL",
        path=_WORKERS_PAGE,
    )

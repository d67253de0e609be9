"""The conditions of queues. Pure functions of the evidence."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from pinlater.alarms.alarm_texts import jobs_line, jobs_page, some_jobs, waiting_text
from pinlater.alarms.condition import Finding
from pinlater.alarms.evidence import Ends, Evidence, LimitSet, QueueFacts, TypeSample
from pinlater.durations import span_text
from pinlater.model.alarm_views import Severity
from pinlater.queues.settings import BREAKER
from pinlater.setting_kinds import rate_text

NO_WORKER_MS = 60_000
THROTTLED_MS = 60_000
"""For a queue that is limited to nothing; others have the time that their jobs may wait."""

LATENCY_MS = 300_000
PAUSED_MS = 3_600_000
LEAST_ENDED, FAILED_SHARE, RECOVERED_SHARE, TIMES_AS_MANY = 10, 0.2, 0.1, 2.0
WATCHED_MS = 900_000
"""A judge that has watched for less knows too little of a queue in which hardly anything ended before."""

LEAST_WAITS = 20
"""Of fewer jobs no percentile is told."""

GROWTH = 1.05
"""By so much at least a backlog grows in ten minutes."""


def throttled(evidence: Evidence) -> Iterator[Finding]:
    """A queue with ready jobs whose limits let nothing through: none at all, or none for as long as jobs may wait."""
    now = evidence.now
    for queue in now.working:
        limit = now.limits.get(queue.name, LimitSet())
        if not queue.ready or queue.oldest_ready_ms is None or queue.dequeued_per_second:
            continue
        goal_ms = now.latency_goals.get(queue.name, LATENCY_MS)
        if limit.jobs_per_second == 0 or limit.in_progress == 0:
            what, bound_ms = "is limited to no jobs at all", THROTTLED_MS
        elif _is_at_limit(queue, limit):
            what, bound_ms = f"has {queue.running:,} jobs in progress, as many as it may", goal_ms
        elif limit.jobs_per_second and 1000 / limit.jobs_per_second > goal_ms:
            what, bound_ms = f"is limited to {rate_text(limit.jobs_per_second)}", goal_ms
        else:
            continue
        since_ms = max(queue.oldest_ready_ms, evidence.past.dequeued_ms(queue.name)) + bound_ms
        if now.now_ms > since_ms:
            yield Finding(
                subject=queue.name,
                title=f"{queue.name}: its limits let none of its {some_jobs(queue.ready, 'ready')} through",
                queue=queue.name,
                since_ms=since_ms,
                size=queue.ready,
                why=f"It {what}, and nothing was handed out for {span_text(now.now_ms - since_ms + bound_ms)}.",
                impact=waiting_text(queue.ready),
                action="Raise or take away its limits (max_jobs_per_second, max_in_progress), or see why the jobs in "
                "progress do not end.",
                command=f"pinlater queue show {queue.name}",
                path=f"/dashboard/queues/{queue.name}",
            )


def _is_at_limit(queue: QueueFacts, limit: LimitSet) -> bool:
    """Whether no worker gets a job of the queue, whoever asks."""
    return limit.jobs_per_second == 0 or (limit.in_progress is not None and queue.running >= limit.in_progress)


def no_worker(evidence: Evidence) -> Iterator[Finding]:
    """A queue of whose jobs none was taken lately, and that no worker says it takes from."""
    now = evidence.now
    if now.workers is None:
        return
    for queue in now.working:
        if queue.name in now.limits and _is_at_limit(queue, now.limits[queue.name]):
            continue
        if not queue.ready or queue.oldest_ready_ms is None or queue.dequeued_per_second or queue.name in now.polled:
            continue
        past = evidence.past
        waits_ms = now.now_ms - max(queue.oldest_ready_ms, past.dequeued_ms(queue.name), past.paused_ms(queue.name))
        if waits_ms > NO_WORKER_MS:
            yield Finding(
                subject=queue.name,
                title=f"{queue.name}: no worker takes its {some_jobs(queue.ready, 'ready')}",
                queue=queue.name,
                since_ms=now.now_ms - waits_ms + NO_WORKER_MS,
                size=queue.ready,
                why=f"The oldest waits for {span_text(now.now_ms - queue.oldest_ready_ms)}, nothing was handed out "
                "lately, and no worker names this queue.",
                impact=waiting_text(queue.ready),
                action="Start a worker for this queue, or pause the queue if that is meant.",
                command=f"pinlater-worker --app YOUR.MODULE:app --queues {queue.name}",
                path=f"/dashboard/queues/{queue.name}",
            )


def failing(evidence: Evidence) -> Iterator[Finding]:
    """Jobs that failed for good, of those that ended in the last minutes: by type where that is known."""
    for queue, ends in evidence.past.ends().items():
        samples = evidence.now.types.get(queue, {})
        by_type = {
            name: each
            for name, each in ends.of_types(samples).items()
            if _fails(each, evidence.stands("failing", f"{queue}/{name}"))
        }
        for name, each in by_type.items():
            yield _failing(queue, f"{queue}/{name}", each, samples[name], name)
        if not by_type and _fails(ends, evidence.stands("failing", queue)):
            yield _failing(queue, queue, ends, _joined(samples))


def _fails(ends: Ends, stands: bool) -> bool:
    least, share = (1, RECOVERED_SHARE) if stands else (LEAST_ENDED, FAILED_SHARE)
    return ends.ended >= least and ends.failed_share >= share


def _joined(samples: Mapping[str, TypeSample]) -> TypeSample:
    """What is known of all types."""
    types = samples.values()
    return TypeSample(
        sum(each.succeeded for each in types),
        sum(each.failed for each in types),
        next((each.error for each in types if each.error), ""),
        sum(each.over_budget for each in types),
        sum(each.unheard for each in types),
    )


def _used_up(sample: TypeSample) -> str:
    """What those jobs that nobody reported had used up: the crash budget, or the attempts."""
    if not sample.over_budget and not sample.unheard:
        return ""
    parts = []
    if sample.over_budget:
        parts.append(f"{sample.over_budget:,} had used up the crash budget, as each time their worker was lost")
    if sample.unheard:
        parts.append(f"{sample.unheard:,} had used up their attempts, and the worker of the last one was lost")
    return f" Of {sample.failed:,} failed jobs that were examined {'; '.join(parts)}."


def _failing(queue: str, subject: str, ends: Ends, sample: TypeSample, job_type: str = "") -> Finding:
    about, of_type = ("about ", f" of type {job_type}") if job_type else ("", "")
    line = jobs_line(queue, "failed", job_type)
    return Finding(
        subject=subject,
        title=f"{subject}: {ends.failed_share:.0%} of the jobs fail",
        queue=queue,
        size=ends.failed,
        why=f"In 5 minutes {about}{ends.failed:,} of {ends.ended:,} jobs{of_type} that ended failed for good."
        + _used_up(sample),
        impact=f"{some_jobs(ends.failed, 'failed')} in 5 minutes",
        error=sample.error,
        action="Read the errors; retry the jobs when the cause is mended.",
        command=f"pinlater job get --filter {shlex.quote(line)}",
        path=jobs_page(line),
    )


def attempts_failing(evidence: Evidence) -> Iterator[Finding]:
    """Attempts that failed, of jobs that are tried again, and twice as often as in the hour before."""
    for queue, ends in evidence.past.ends().items():
        share = ends.failed_attempts_share
        if evidence.stands("attempts_failing", queue):
            is_found = share >= RECOVERED_SHARE
        else:
            before = evidence.past.ends_before(queue)
            is_known = before.attempts >= LEAST_ENDED or evidence.past.watched_ms >= WATCHED_MS
            is_worse = is_known and share >= TIMES_AS_MANY * before.failed_attempts_share
            is_found = ends.attempts >= LEAST_ENDED and share >= FAILED_SHARE and is_worse
        if is_found:
            yield Finding(
                subject=queue,
                title=f"{queue}: {share:.0%} of the attempts fail",
                queue=queue,
                size=ends.failed + ends.retried,
                why=f"In 5 minutes {ends.failed + ends.retried:,} of {ends.attempts:,} attempts failed, at least twice "
                "as often as in the hour before.",
                action="Read the errors of jobs that wait for their next attempt.",
                command=f"pinlater job scan {queue} --state scheduled",
                path=jobs_page(jobs_line(queue, "scheduled")),
            )


def jobs_expired(evidence: Evidence) -> Iterator[Finding]:
    """Jobs that failed in the last minutes since they were not handed out in time."""
    for queue, ends in evidence.past.ends().items():
        if ends.expired:
            are_many = ends.expired >= LEAST_ENDED and ends.expired_share >= FAILED_SHARE
            yield Finding(
                subject=queue,
                title=f"{queue}: {ends.expired:,} job{'' if ends.expired == 1 else 's'} expired",
                queue=queue,
                severity=Severity.CRITICAL if are_many else None,
                size=ends.expired,
                why=f"In 5 minutes {some_jobs(ends.expired, 'pending')} failed: the time until which they were to be "
                "handed out was over.",
                impact=f"{some_jobs(ends.expired, 'failed')} in 5 minutes",
                action="Start more workers for this queue, or give its jobs more time; retry those that are still "
                "wanted.",
                command=f"pinlater job scan {queue} --state failed",
                path=jobs_page(jobs_line(queue, "failed")),
            )


def jobs_crashed(evidence: Evidence) -> Iterator[Finding]:
    """Jobs that failed in the last minutes since their workers were lost too often."""
    for queue, ends in evidence.past.ends().items():
        if ends.crashed:
            sample = _joined(evidence.now.types.get(queue, {}))
            line = jobs_line(queue, "failed", error="too many crashes" if sample.over_budget else "")
            budget = ", their crash budget used up" if sample.over_budget else ""
            jobs = f"{ends.crashed:,} job{'' if ends.crashed == 1 else 's'}"
            yield Finding(
                subject=queue,
                title=f"{queue}: {jobs} failed as workers were lost{budget}",
                queue=queue,
                size=ends.crashed,
                why=f"In 5 minutes {some_jobs(ends.crashed, 'running')} failed without a word of their workers: these "
                "were lost, or took longer than the claim time-out, until the crash budget or the attempts were used "
                f"up.{_used_up(sample)}",
                impact=f"{some_jobs(ends.crashed, 'failed')} in 5 minutes",
                action="See what ends the workers (killed, out of memory), or raise claim_timeout where jobs take "
                "longer without a heartbeat; then retry them.",
                command=f"pinlater job get --filter {shlex.quote(line)}",
                path=jobs_page(line),
            )


def waits_long(evidence: Evidence) -> Iterator[Finding]:
    """The oldest ready job waits for too long; else one in twenty of those that were handed out lately had."""
    now = evidence.now
    for queue in now.working:
        if not queue.ready or queue.oldest_ready_ms is None:
            yield from _waited(evidence, queue)
            continue
        goal_ms = now.latency_goals.get(queue.name, LATENCY_MS)
        from_ms = max(queue.oldest_ready_ms, evidence.past.paused_ms(queue.name))
        waits_ms = now.now_ms - from_ms
        if waits_ms > goal_ms:
            yield Finding(
                subject=queue.name,
                title=f"{queue.name}: the oldest ready job waits for {span_text(waits_ms)}",
                queue=queue.name,
                since_ms=from_ms + goal_ms,
                size=queue.ready,
                why=f"{some_jobs(queue.ready, 'ready')}, {queue.dequeued_per_second:.1f}/s are handed out, and none is "
                f"to wait for more than {span_text(goal_ms)}.",
                impact=waiting_text(queue.ready),
                action="Start more workers for this queue, or see what its jobs wait for.",
                command=f"pinlater worker list --queue {queue.name} --running",
                path=f"/dashboard/queues/{queue.name}",
            )
        else:
            yield from _waited(evidence, queue)


def _waited(evidence: Evidence, queue: QueueFacts) -> Iterator[Finding]:
    """By a sample of jobs that succeeded, where the queue has a goal; the time of a pause does not count."""
    goal_ms = evidence.now.latency_goals.get(queue.name)
    paused_ms = evidence.past.paused_ms(queue.name)
    waits = sorted(
        max(0, each.claimed_ms - max(each.due_ms, paused_ms)) for each in evidence.now.waits.get(queue.name, ())
    )
    if goal_ms is None or len(waits) < LEAST_WAITS:
        return
    p95_ms = waits[len(waits) * 95 // 100]
    if p95_ms > goal_ms:
        yield Finding(
            subject=queue.name,
            title=f"{queue.name}: one job in twenty waited for {span_text(p95_ms)} or longer",
            queue=queue.name,
            size=sum(each > goal_ms for each in waits),
            why=f"Of {len(waits):,} jobs that were examined, handed out in the last 5 minutes, 95 % waited for less; "
            f"none is to wait for more than {span_text(goal_ms)}.",
            impact=waiting_text(queue.ready),
            action="Start more workers for this queue, or see why its jobs come in bursts.",
            command=f"pinlater worker list --queue {queue.name} --running",
            path=f"/dashboard/queues/{queue.name}",
        )


def backlog_grows(evidence: Evidence) -> Iterator[Finding]:
    for queue in evidence.now.working:
        readings = evidence.past.backlog(queue.name)
        if not readings:
            continue
        first, middle, last = readings[0], readings[len(readings) // 2], readings[-1]
        if not (last > middle > first and last >= first * GROWTH):
            continue
        per_minute = (last - first) / (len(readings) - 1)
        surplus = queue.dequeued_per_second - queue.enqueued_per_second
        empty = f"empty in {span_text(int(queue.ready / surplus * 1000))}" if surplus > 0 else "never empty"
        yield Finding(
            subject=queue.name,
            title=f"{queue.name}: its backlog of {some_jobs(queue.ready, 'ready')} grows by {per_minute:,.0f} a minute",
            queue=queue.name,
            size=queue.ready,
            why=f"It has grown for 10 minutes; {queue.enqueued_per_second:.1f}/s come, "
            f"{queue.dequeued_per_second:.1f}/s are handed out: {empty} at these rates.",
            impact=waiting_text(queue.ready),
            action="Start more workers for this queue, or slow down who enqueues.",
            command=f"pinlater worker list --queue {queue.name}",
            path=f"/dashboard/queues/{queue.name}",
        )


def breaker_open(evidence: Evidence) -> Iterator[Finding]:
    """A queue that its circuit breaker has paused."""
    for queue in evidence.now.queues.values():
        if queue.is_paused and queue.paused_by == BREAKER:
            yield Finding(
                subject=queue.name,
                title=f"{queue.name}: its circuit breaker is open, with {some_jobs(queue.ready, 'ready')}",
                queue=queue.name,
                since_ms=queue.paused_since_ms,
                size=queue.ready,
                why=f"{queue.paused_why}.",
                impact=waiting_text(queue.ready),
                action="Read the errors, and mend what its jobs fail at: the breaker closes by itself then. A resume "
                "of the queue closes it at once.",
                command=f"pinlater queue show {queue.name}",
                path=f"/dashboard/queues/{queue.name}",
            )


def paused_long(evidence: Evidence) -> Iterator[Finding]:
    now = evidence.now
    for queue in now.queues.values():
        since_ms = queue.paused_since_ms
        if not queue.is_paused or not queue.ready or since_ms is None or queue.paused_until_ms is not None:
            continue
        if queue.paused_by == BREAKER:
            continue
        if now.now_ms - since_ms > PAUSED_MS:
            by = f" by {queue.paused_by}" if queue.paused_by else ""
            held = some_jobs(queue.ready, "ready")
            yield Finding(
                subject=queue.name,
                title=f"{queue.name}: paused, with {held}",
                queue=queue.name,
                since_ms=since_ms,
                size=queue.ready,
                why=f"It was paused{by}, with no end{f': {queue.paused_why}' if queue.paused_why else '.'}",
                impact=waiting_text(queue.ready),
                action="Resume it if the reason is gone.",
                command=f"pinlater queue resume {queue.name}",
                path=f"/dashboard/queues/{queue.name}",
            )

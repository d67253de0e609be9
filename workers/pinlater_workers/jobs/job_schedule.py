"""The schedule of a type of job: what `cron` or `every` in its declaration asks of the cluster."""

from __future__ import annotations

from pinlater.model import SCHEDULE_NAME_ALLOWED, Schedule, is_schedule_name
from pinlater.timetable import CronTimetable, IntervalTimetable
from pinlater_workers.envelope import TAGS_HEADER
from pinlater_workers.errors import ArgumentsInvalid, ConfigurationError
from pinlater_workers.jobs.job_type import JobType


def schedule_of(job_type: JobType, made_by: str = "") -> Schedule | None:
    """None: it has none. ConfigurationError: its function wants arguments, or its name cannot be a schedule's."""
    settings = job_type.settings
    if not settings.cron and settings.every_s is None:
        return None
    if not is_schedule_name(job_type.name):
        raise ConfigurationError(
            f"job {job_type.name!r} has a schedule, which has the name of the job; allowed: {SCHEDULE_NAME_ALLOWED}"
        )
    try:
        headers = {TAGS_HEADER: "\n".join(settings.tags)} if settings.tags and not job_type.is_raw else {}
        body = job_type.write_body((b"",) if job_type.is_raw else (), {}, headers)
        key = (job_type.serialize.key((), {}) or "") if job_type.serialize else ""
        group = (job_type.group.key((), {}) or "") if job_type.group else ""
    except ArgumentsInvalid as error:
        raise ConfigurationError(
            f"job {job_type.name!r} has a schedule, and cannot be called without arguments; give them defaults, or let "
            f"a job without any enqueue it ({error})"
        ) from error
    return Schedule(
        name=job_type.name,
        queue=settings.queue,
        body=body,
        cron=settings.cron,
        timezone=settings.timezone,
        every_ms=None if settings.every_s is None else round(settings.every_s * 1000),
        priority=settings.priority,
        attempts_allowed=settings.attempts_allowed,
        serialize_key=key,
        misfire=settings.misfire,
        jitter_ms=round(settings.jitter_s * 1000),
        made_by=made_by,
        tags=settings.tags,
        group=group,
    )


def timetable(schedule: Schedule, anchor_ms: int) -> CronTimetable | IntervalTimetable:
    """Its times."""
    if schedule.every_ms is not None:
        return IntervalTimetable(schedule.every_ms, anchor_ms)
    return CronTimetable(schedule.cron, schedule.timezone)

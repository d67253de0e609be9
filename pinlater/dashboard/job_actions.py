"""Changes of one job: retry, cancel, ask to stop, delete, replay, reschedule with another body, and a copy of it."""

from __future__ import annotations

import re

from aiohttp import web

from pinlater.dashboard.formats import segment
from pinlater.dashboard.job_detail import PATH, body_text, descriptor_of, find_job
from pinlater.dashboard.job_list import PATH as JOBS
from pinlater.dashboard.page import Page, PageRoute
from pinlater.errors import RequestInvalid
from pinlater.job_filters.job_filter import LENGTH, moment_ms
from pinlater.model import CancelOutcome, ExtendedJob, Job, JobAction, RescheduleJob, RescheduleOutcome
from pinlater.model.job_selection import FoundJobsChange, JobSelection

_WHEN = "now, a length of time such as +10m, or a time such as 2026-11-25T10:00, in UTC unless it names a zone"
_LATER = re.compile(r"\+\s*(.+)")
_CANCELLED = {
    CancelOutcome.CANCELLED: ("The job was cancelled, and is gone.", False),
    CancelOutcome.REQUESTED: ("Its worker is asked to stop. It ends as cancelled, unless it succeeds first.", False),
    CancelOutcome.IN_PROGRESS: ("A worker has taken it meanwhile: it was not cancelled.", True),
    CancelOutcome.ENDED: ("It has ended meanwhile.", True),
    CancelOutcome.NOT_FOUND: ("It is not there any more.", True),
}
_RESCHEDULED = {
    RescheduleOutcome.RESCHEDULED: ("The job was changed.", False),
    RescheduleOutcome.IN_PROGRESS: ("A worker has taken it meanwhile: nothing was changed.", True),
    RescheduleOutcome.ENDED: ("It has ended meanwhile: nothing was changed.", True),
    RescheduleOutcome.NOT_FOUND: ("It is not there any more.", True),
    RescheduleOutcome.CHANGED: ("It was changed meanwhile: read it again. Nothing was changed.", True),
}


def _begin(page: Page) -> tuple[str, str]:
    """The queue and the descriptor; where the change fails, the job's page says why."""
    descriptor = descriptor_of(page)
    page.back = f"{JOBS}/{segment(descriptor)}"
    return descriptor.partition(":")[0], descriptor


def when_ms(text: str, now_ms: int) -> int | None:
    """A time as people write it in a form; None: now. RequestInvalid."""
    text = text.strip()
    if text in ("", "now"):
        return None
    later = _LATER.fullmatch(text)
    try:
        at_ms = moment_ms(text) if later is None else now_ms + LENGTH.parse(later[1])
    except ValueError:
        at_ms = None
    if at_ms is None:
        raise RequestInvalid.of("the time", text, _WHEN)
    return at_ms


def number_typed(page: Page, name: str, most: int) -> int | None:
    """None: it was left empty. RequestInvalid."""
    text = page.form.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:11]) <= most):
        raise RequestInvalid.of(name, text, f"1 to {most:,}")
    return int(text)


def tags_typed(text: str) -> tuple[str, ...]:
    """One a line."""
    return tuple(tag for line in text.split("\n") if (tag := line.strip()))


def _body(page: Page) -> bytes:
    """Browsers send the ends of lines as CR LF."""
    return page.form.get("body", "").replace("\r\n", "\n").encode("utf-8", "surrogatepass")


async def _change(
    page: Page, action: JobAction, done: str, attempts: int | None = None, after: str = ""
) -> web.Response:
    queue, descriptor = _begin(page)
    change = FoundJobsChange(JobSelection(queue, descriptors=[descriptor]), action, attempts=attempts)
    answer = await page.api.change_found_jobs(change, context=page.context)
    if answer.changed:
        return page.redirect(after or page.back, done)
    refused = next(iter(answer.refusals.values()), "")
    if answer.missing_shards:
        refused = f"shard {', '.join(answer.missing_shards)} cannot be reached"
    text = f"Nothing was changed: {refused}." if refused else "Nothing was changed: the job is in another state by now."
    return page.redirect(page.back, text, is_bad=True)


async def retry(page: Page) -> web.Response:
    _begin(page)
    attempts = number_typed(page, "attempts", 2**31 - 1)
    return await _change(page, JobAction.RETRY, "The job waits for a worker again.", attempts)


async def delete(page: Page) -> web.Response:
    queue, _ = _begin(page)
    return await _change(page, JobAction.DELETE, "The job was deleted.", after=f"{JOBS}?filter=queue%3A{queue}")


async def replay(page: Page) -> web.Response:
    queue, _ = _begin(page)
    done = "The dead letter went back to the queue that it came from."
    return await _change(page, JobAction.REPLAY, done, after=f"{JOBS}?filter=queue%3A{queue}")


async def cancel(page: Page) -> web.Response:
    """Of a job that waits, and of one that runs, whose worker is asked to stop."""
    queue, descriptor = _begin(page)
    running = bool(page.form.get("running"))
    outcomes = await page.api.cancel(queue, [descriptor], running=running, context=page.context)
    outcome = outcomes.get(descriptor, CancelOutcome.NOT_FOUND)
    message, is_bad = _CANCELLED[outcome]
    gone = outcome is CancelOutcome.CANCELLED
    return page.redirect(f"{JOBS}?filter=queue%3A{queue}" if gone else page.back, message, is_bad=is_bad)


async def reschedule(page: Page) -> web.Response:
    """What is left as it is in the form is not changed."""
    queue, descriptor = _begin(page)
    change = RescheduleJob(descriptor, attempts_allowed=number_typed(page, "attempts", 2**31 - 1))
    when = page.form.get("when", "").strip()
    if when:
        change.run_after_ms = when_ms(when, page.now_ms) or page.now_ms
    seen = page.form.get("updated_at", "")
    if seen.isascii() and seen.isdecimal() and len(seen) <= 16:
        change.only_if_updated_at_ms = int(seen)
    if "body" in page.form:
        info = await find_job(page, descriptor, with_body=True)
        before = None if info.body is None else body_text(info.body)
        body = _body(page)
        if before is None or before.replace("\r\n", "\n").encode() != body:
            change.body = body
    if change.body is None and change.run_after_ms is None and change.attempts_allowed is None:
        return page.redirect(page.back, "Nothing was to be changed.", is_bad=True)
    (outcome,) = await page.api.reschedule(queue, [change], audited=True, context=page.context)
    message, is_bad = _RESCHEDULED[outcome]
    return page.redirect(page.back, message, is_bad=is_bad)


async def copy(page: Page) -> web.Response:
    """A new job with the same body, or with the one of the form."""
    queue, descriptor = _begin(page)
    info = await find_job(page, descriptor, with_body=True)
    body = _body(page) if "body" in page.form else info.body
    if body is None:
        raise RequestInvalid("its body cannot be read, so there can be no copy of it")
    target = page.form.get("queue", "").strip() or queue
    attempts = number_typed(page, "attempts", 2**31 - 1) or info.attempts_allowed
    priority = number_typed(page, "priority", 127) or info.priority
    run_after_ms = when_ms(page.form.get("when", ""), page.now_ms)
    serialize_key = page.form.get("serialize", "").strip()
    tags, group = info.tags or (), info.group or ""
    job: Job = Job(body, priority, run_after_ms, attempts)
    if serialize_key or tags or group:
        job = ExtendedJob(body, priority, run_after_ms, attempts, serialize_key=serialize_key, tags=tags, group=group)
    (made,) = await page.api.enqueue(target, [job], context=page.context)
    return page.redirect(f"{JOBS}/{segment(made)}", f"This is the copy of {descriptor}.")


PAGES = (
    PageRoute("POST", f"{PATH}/retry", retry, None),
    PageRoute("POST", f"{PATH}/cancel", cancel, None),
    PageRoute("POST", f"{PATH}/delete", delete, None),
    PageRoute("POST", f"{PATH}/replay", replay, None),
    PageRoute("POST", f"{PATH}/reschedule", reschedule, None),
    PageRoute("POST", f"{PATH}/copy", copy, None),
)

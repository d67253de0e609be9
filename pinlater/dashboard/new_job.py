"""A form for a new job: a call of the worker framework, by its type and its arguments, or a text as the body."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec
from aiohttp import web

from pinlater.api import Api
from pinlater.dashboard.formats import segment
from pinlater.dashboard.job_actions import number_typed, tags_typed, when_ms
from pinlater.dashboard.job_list import PATH as JOBS
from pinlater.dashboard.page import Page, PageRoute, PartFailed
from pinlater.errors import RequestInvalid
from pinlater.job_body import call_body, describe_body
from pinlater.model import AccessAction, ExtendedJob, Job, is_queue_name, queue_order
from pinlater.model.job_selection import JobSelection
from pinlater.wire.methods import ENQUEUE

PATH = f"{JOBS}/new"
MAX_NAMES = 1_000
LATEST_JOBS = 50
"""Of a queue, whose types are offered."""

TYPES_WITHIN_MS = 300


async def new_job(page: Page) -> web.Response:
    """The form. Types of jobs are offered that workers know or run now, and that the latest jobs of the queue have."""
    queue = page.query.get("queue", "").strip()
    names = await page.part(lambda: page.load(Api.queue_names))
    able = [] if isinstance(names, PartFailed) else [name for name in names if page.rights.may_call(ENQUEUE, name)]
    return page.render(
        "new_job.html",
        path=PATH,
        queue=queue,
        queues=sorted(able, key=queue_order)[:MAX_NAMES],
        types=sorted(await _types(page, queue))[:MAX_NAMES],
    )


async def _types(page: Page, queue: str) -> set[str]:
    """As far as the caller may see them."""
    workers = await page.part(lambda: page.snapshots.workers(page.context, queue if is_queue_name(queue) else ""))
    types: set[str] = set()
    if not isinstance(workers, PartFailed):
        able = [each for each in workers.workers if any(map(page.rights.sees_bodies, each.queues))]
        types |= {name for worker in able for name in worker.job_types}
        running = [job for worker in workers.workers for job in worker.running]
        types |= {job.job_type for job in running if page.rights.sees_bodies(job.job_descriptor.partition(":")[0])}
    if is_queue_name(queue) and page.rights.sees_bodies(queue):
        selection = JobSelection(queue)
        found = await page.part(
            lambda: page.api.search_jobs(
                selection, limit=LATEST_JOBS, include_body=True, max_ms=TYPES_WITHIN_MS, context=page.context
            )
        )
        if not isinstance(found, PartFailed):
            calls = [describe_body(job.body) for job in found.jobs if job.body is not None]
            types |= {call.job for call in calls if call is not None}
    return types - {""}


def body_typed(job_type: str, text: str) -> bytes:
    """A call, where there is a type of job; else the text itself. RequestInvalid."""
    if not job_type:
        return text.replace("\r\n", "\n").encode("utf-8", "surrogatepass")
    try:
        arguments = msgspec.json.decode(text.strip().encode("utf-8", "surrogatepass") or b"[]")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestInvalid(f"the arguments are no JSON: {error}") from None
    if not isinstance(arguments, list | dict):
        raise RequestInvalid('the arguments are to be a list, as ["a.jpg"], or a map by name, as {"picture": "a.jpg"}')
    try:
        return call_body(job_type, arguments)
    except ValueError as error:
        raise RequestInvalid(str(error)) from None


async def enqueue_typed(page: Page) -> web.Response:
    typed = {name: page.form.get(name, "").strip() for name in ("queue", "type", "dedupe", "serialize", "group")}
    page.back = f"{PATH}?{urlencode({'queue': typed['queue']})}"
    job: Job = Job(body_typed(typed["type"], page.form.get("body", "")))
    tags = tags_typed(page.form.get("tags", ""))
    if typed["dedupe"] or typed["serialize"] or typed["group"] or tags:
        job = ExtendedJob(
            job.body,
            dedupe_key=typed["dedupe"],
            serialize_key=typed["serialize"],
            tags=tags,
            group=typed["group"],
        )
    job.priority = number_typed(page, "priority", 127) or job.priority
    job.attempts_allowed = number_typed(page, "attempts", 2**31 - 1) or job.attempts_allowed
    job.run_after_ms = when_ms(page.form.get("when", ""), page.now_ms)
    (descriptor,) = await page.api.enqueue(typed["queue"], [job], context=page.context)
    return page.redirect(f"{JOBS}/{segment(descriptor)}", f"The job is in queue {typed['queue']}.")


PAGES = (
    PageRoute("GET", PATH, new_job, AccessAction.ENQUEUE),
    PageRoute("POST", PATH, enqueue_typed, AccessAction.ENQUEUE),  # the servers ask for it on the queue that was typed
)

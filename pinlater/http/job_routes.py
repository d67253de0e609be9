"""The routes about jobs: for producers, for workers, and for those who read or change jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pinlater.api import Api
from pinlater.http import answers, forms, operator_forms, search_forms
from pinlater.http.encodings import refusal
from pinlater.http.model_map import answer_of, answers_of, arguments_of, request_of, requests_of, words_of
from pinlater.http.problems import NotThere
from pinlater.http.route import IDEMPOTENCY_HEADER, Incoming, RouteTable
from pinlater.model import (
    DequeuedFromQueues,
    DequeuedJob,
    DequeueFromQueuesRequest,
    DequeueRequest,
    HeartbeatAnswers,
    JobChange,
    JobFilter,
    RescheduleJob,
)
from pinlater.model.job_selection import FoundJobsChange, JobSelection
from pinlater.wire import found_job_methods, methods

J = TypeVar("J", list[DequeuedJob], DequeuedFromQueues)
R = TypeVar("R", DequeueRequest, DequeueFromQueuesRequest)
JOBS, WORKERS = "Jobs", "Work"
JOB_ROUTES = RouteTable()


# -- producers ---------------------------------------------------------------------------------------------------------


@JOB_ROUTES.add(JOBS, "POST /v1/queues/{queue}/jobs", methods.ENQUEUE, status=201, has_idempotency_key=True)
async def _enqueue(incoming: Incoming, form: forms.JobForm) -> answers.EnqueuedAnswer:
    """Enqueue a job."""
    key = incoming.headers.get(IDEMPOTENCY_HEADER)
    if key is not None:
        forms.with_idempotency_key([form], key, is_batch=False)
    descriptors = await incoming.api.enqueue(incoming.queue, [form.made()], context=incoming.context)
    return answers.enqueued(descriptors)[0]


@JOB_ROUTES.add(JOBS, "POST /v1/queues/{queue}/jobs/batch", methods.ENQUEUE, status=201, has_idempotency_key=True)
async def _enqueue_batch(incoming: Incoming, form: forms.JobsForm) -> answers.EnqueuedJobsAnswer:
    """Enqueue many jobs: all or none, as far as they have no keys."""
    key = incoming.headers.get(IDEMPOTENCY_HEADER)
    if key is not None:
        forms.with_idempotency_key(form.jobs, key, is_batch=True)
    jobs = [each.made(f"jobs[{at}].") for at, each in enumerate(form.jobs)]
    descriptors = await incoming.api.enqueue(incoming.queue, jobs, context=incoming.context)
    return answers.EnqueuedJobsAnswer(answers.enqueued(descriptors))


# -- workers -----------------------------------------------------------------------------------------------------------


@JOB_ROUTES.add(WORKERS, "POST /v1/queues/{queue}/dequeue", methods.DEQUEUE)
async def _dequeue(incoming: Incoming, form: forms.DequeueForm) -> answers.DequeuedAnswer:
    """Claim jobs of a queue, or wait for some."""
    request = form.request(incoming.queue)
    jobs, bound = await _claim(incoming, Api.dequeue, request)
    incoming.claims.acked(request.succeeded, request.failed)
    return answers.dequeued(jobs, form.encoding, bound)


@JOB_ROUTES.add(WORKERS, "POST /v1/dequeue", methods.DEQUEUE_FROM_QUEUES)
async def _dequeue_from_queues(
    incoming: Incoming, form: forms.DequeueFromQueuesForm
) -> answers.DequeuedFromQueuesAnswer:
    """Claim jobs of several queues, or wait for some."""
    request = form.request()
    jobs, bound = await _claim(incoming, Api.dequeue_from_queues, request)
    for each in request.acks:
        incoming.claims.acked(each.succeeded, each.failed)
    return answers.dequeued_from_queues(jobs, form.encoding, bound)


async def _claim(incoming: Incoming, call: Callable[..., Awaitable[J]], request: R) -> tuple[J, bool | None]:
    """Jobs of a dequeue, and whether their claims are bound to the connection of the request; None: it did not ask.

    A caller that goes away while it waits costs no job an attempt: what is on its way from the server then is not
    confirmed, and what has come in that very moment is put back.
    """
    wants_binding = request.release_on_disconnect
    connection = incoming.bound_connection() if wants_binding else None
    request.release_on_disconnect = connection is not None
    request.confirms_receipt = request.wait_ms > 0
    api = incoming.api if connection is None else connection.client
    with incoming.waiting(request.wait_ms):
        jobs = await getattr(api, call.__name__)(request, context=incoming.context)
    if incoming.is_gone():  # before the first turn of the loop that could cancel this
        incoming.claims.put_back(jobs, incoming.context)
    elif connection is not None:
        incoming.claims.dequeued(connection, jobs, incoming.context)
    return jobs, connection is not None if wants_binding else None


@JOB_ROUTES.add(WORKERS, "POST /v1/queues/{queue}/ack", methods.ACK)
async def _ack(incoming: Incoming, form: forms.AcksForm) -> answers.AckedAnswer:
    """Say what became of claimed jobs."""
    acks = form.acks()
    outcomes = await incoming.api.ack(incoming.queue, *acks, context=incoming.context)
    incoming.claims.acked(*acks)
    return answers.AckedAnswer(words_of(outcomes))


@JOB_ROUTES.add(WORKERS, "POST /v1/queues/{queue}/heartbeat", methods.HEARTBEAT)
async def _heartbeat(incoming: Incoming, form: forms.HeartbeatsForm) -> answers.HeartbeatsAnswer:
    """Keep claims, and say how far the jobs are."""
    report = arguments_of(Api.heartbeat, form, 2)
    found = await incoming.claims.heartbeat(incoming.queue, form.signs(), **report, context=incoming.context)
    outcomes = answers_of(answers.HeartbeatOutcomeAnswer, found)
    sent = found.command if isinstance(found, HeartbeatAnswers) else None
    if sent is None:
        return answers.HeartbeatsAnswer(outcomes)
    (word,) = words_of([sent.command])
    return answers.HeartbeatsAnswer(outcomes, word, sent.number)


@JOB_ROUTES.add(WORKERS, "POST /v1/queues/{queue}/checkpoint", methods.CHECKPOINT)
async def _checkpoint(incoming: Incoming, form: forms.CheckpointsForm) -> None:
    """Keep claims, and change the jobs or give them back."""
    await incoming.claims.checkpoint(incoming.queue, **arguments_of(Api.checkpoint, form, 1), context=incoming.context)


# -- looking -----------------------------------------------------------------------------------------------------------


@JOB_ROUTES.add(JOBS, "GET /v1/jobs/{descriptor}", methods.LOOKUP)
async def _get_job(incoming: Incoming, query: operator_forms.LookupQuery) -> answers.JobAnswer:
    """Read a job, or wait for its end."""
    descriptor = incoming.path["descriptor"]
    with incoming.waiting(query.wait_ms):
        found = await incoming.call(Api.lookup, query, [descriptor])
    info = found.get(descriptor)
    if info is None:
        raise NotThere(f"there is no job {descriptor[:200]!r}")
    return answer_of(answers.JobAnswer, info, query.encoding)


@JOB_ROUTES.add(JOBS, "GET /v1/jobs/{descriptor}/hold", found_job_methods.EXPLAIN_JOBS)
async def _explain_job(incoming: Incoming) -> answers.ExplainedAnswer:
    """Ask why a job does not run."""
    holds = await incoming.api.explain_jobs([incoming.path["descriptor"]], context=incoming.context)
    return answers.ExplainedAnswer(*answers_of(answers.JobHoldAnswer, holds))


@JOB_ROUTES.add(JOBS, "POST /v1/lookup", methods.LOOKUP)
async def _lookup_jobs(incoming: Incoming, form: forms.LookupForm) -> answers.JobsAnswer:
    """Read jobs by descriptor or key, or wait until the first of them has ended."""
    if form.keys and form.queue is None:
        raise refusal("queue", "keys are of jobs of a queue: name it")
    with incoming.waiting(form.wait_ms):
        found = await incoming.call(Api.lookup, form, form.descriptors)
    return answers.JobsAnswer(answers_of(answers.JobAnswer, found.values(), form.encoding))


@JOB_ROUTES.add(JOBS, "GET /v1/queues/{queue}/jobs", methods.SCAN_JOBS)
async def _scan_jobs(incoming: Incoming, query: operator_forms.JobPageQuery) -> answers.JobPageAnswer:
    """A page of the jobs of a queue in one state."""
    wanted = request_of(JobFilter, query, queue=incoming.queue)
    return answer_of(answers.JobPageAnswer, await incoming.call(Api.scan, query, wanted))


@JOB_ROUTES.add(JOBS, "GET /v1/queues/{queue}/jobs/count", methods.GET_JOB_COUNT)
async def _count_jobs(incoming: Incoming, query: operator_forms.CountQuery) -> answers.CountAnswer:
    """How many jobs match."""
    wanted = request_of(JobFilter, query, queue=incoming.queue)
    return answers.CountAnswer(await incoming.call(Api.count, query, wanted))


# -- changing ----------------------------------------------------------------------------------------------------------


@JOB_ROUTES.add(JOBS, "POST /v1/queues/{queue}/jobs/cancel", methods.CANCEL)
async def _cancel_jobs(incoming: Incoming, form: forms.CancelForm) -> answers.CancelledAnswer:
    """Remove pending jobs, and ask running ones to stop."""
    return answers.cancelled(await incoming.call(Api.cancel, form, incoming.queue))


@JOB_ROUTES.add(JOBS, "POST /v1/queues/{queue}/jobs/reschedule", methods.RESCHEDULE)
async def _reschedule_jobs(incoming: Incoming, form: forms.ReschedulesForm) -> answers.RescheduledAnswer:
    """Give pending jobs another time, body or number of attempts."""
    changes = requests_of(RescheduleJob, form.jobs, "jobs")
    outcomes = await incoming.api.reschedule(incoming.queue, changes, audited=form.audited, context=incoming.context)
    return answers.RescheduledAnswer(words_of(outcomes))


@JOB_ROUTES.add(JOBS, "POST /v1/queues/{queue}/jobs/change", methods.CHANGE_JOBS)
async def _change_jobs(incoming: Incoming, form: forms.JobChangeForm) -> answers.JobsChangedAnswer:
    """Retry, delete, cancel or replay all jobs that match, slice by slice."""
    change = request_of(JobChange, form, queue=incoming.queue)
    changed = await incoming.api.change_jobs(change, context=incoming.context)
    return answer_of(answers.JobsChangedAnswer, changed, form.encoding)


@JOB_ROUTES.add(JOBS, "POST /v1/queues/{queue}/jobs/search", found_job_methods.SEARCH_JOBS)
async def _search_jobs(incoming: Incoming, form: search_forms.SearchForm) -> answers.FoundJobsAnswer:
    """A page of the jobs of a queue that meet conditions on their state, times, keys, status or body."""
    selection = request_of(JobSelection, form, queue=incoming.queue)
    found = await incoming.call(Api.search_jobs, form, selection)
    return answer_of(answers.FoundJobsAnswer, found, form.encoding)


@JOB_ROUTES.add(JOBS, "POST /v1/queues/{queue}/jobs/search/change", found_job_methods.CHANGE_FOUND_JOBS)
async def _change_found_jobs(incoming: Incoming, form: search_forms.FoundJobsChangeForm) -> answers.JobsChangedAnswer:
    """Retry, delete, cancel or replay all jobs that a search finds, slice by slice."""
    selection = request_of(JobSelection, form, queue=incoming.queue)
    change = request_of(FoundJobsChange, form, selection=selection)
    changed = await incoming.api.change_found_jobs(change, context=incoming.context)
    return answer_of(answers.JobsChangedAnswer, changed, form.encoding)

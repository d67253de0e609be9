"""The routes about jobs: for producers, for workers, and for those who look at jobs or change them."""

from __future__ import annotations

from typing import Any

from pinlater.http import answers, forms, operator_forms, search_forms
from pinlater.http.encodings import refusal
from pinlater.http.model_map import answer_of, answers_of, request_of, requests_of, words_of
from pinlater.http.problems import NotThere
from pinlater.http.route import IDEMPOTENCY_HEADER, Incoming, Route
from pinlater.model import CONTINUATION_START, Checkpoint, JobFilter, KeyRef, RescheduleJob
from pinlater.wire import found_job_methods, methods

JOBS, WORKERS = "Jobs", "Work"


# -- producers ---------------------------------------------------------------------------------------------------------


async def _enqueue(incoming: Incoming) -> answers.EnqueuedAnswer:
    form: forms.JobForm = incoming.form
    key = incoming.headers.get(IDEMPOTENCY_HEADER)
    if key is not None:
        forms.with_idempotency_key([form], key, is_batch=False)
    descriptors = await incoming.api.enqueue(incoming.queue, [form.job()], context=incoming.context)
    return answers.enqueued(descriptors)[0]


async def _enqueue_batch(incoming: Incoming) -> answers.EnqueuedJobsAnswer:
    listed: list[forms.JobForm] = incoming.form.jobs
    key = incoming.headers.get(IDEMPOTENCY_HEADER)
    if key is not None:
        forms.with_idempotency_key(listed, key, is_batch=True)
    jobs = [form.job(f"jobs[{at}].") for at, form in enumerate(listed)]
    descriptors = await incoming.api.enqueue(incoming.queue, jobs, context=incoming.context)
    return answers.EnqueuedJobsAnswer(answers.enqueued(descriptors))


# -- workers -----------------------------------------------------------------------------------------------------------


async def _dequeue(incoming: Incoming) -> answers.DequeuedAnswer:
    form: forms.DequeueForm = incoming.form
    request = form.request(incoming.queue)
    with incoming.waiting(request.wait_ms):
        jobs = await incoming.api.dequeue(request, context=incoming.context)
    return answers.dequeued(jobs, form.encoding)


async def _dequeue_from_queues(incoming: Incoming) -> answers.DequeuedFromQueuesAnswer:
    form: forms.DequeueFromQueuesForm = incoming.form
    request = form.request()
    with incoming.waiting(request.wait_ms):
        jobs = await incoming.api.dequeue_from_queues(request, context=incoming.context)
    return answers.dequeued_from_queues(jobs, form.encoding)


async def _ack(incoming: Incoming) -> answers.AckedAnswer:
    form: forms.AcksForm = incoming.form
    outcomes = await incoming.api.ack(incoming.queue, *form.acks(), context=incoming.context)
    return answers.AckedAnswer(words_of(outcomes))


async def _heartbeat(incoming: Incoming) -> answers.HeartbeatsAnswer:
    form: forms.HeartbeatsForm = incoming.form
    worker = forms.report_of(form.worker)
    found = await incoming.api.heartbeat(incoming.queue, form.signs(), worker=worker, context=incoming.context)
    return answers.HeartbeatsAnswer(answers_of(answers.HeartbeatOutcomeAnswer, found))


async def _checkpoint(incoming: Incoming) -> None:
    form: forms.CheckpointsForm = incoming.form
    checkpoints = requests_of(Checkpoint, form.checkpoints, "checkpoints")
    worker = forms.report_of(form.worker)
    await incoming.api.checkpoint(incoming.queue, checkpoints, worker=worker, context=incoming.context)


# -- looking -----------------------------------------------------------------------------------------------------------


async def _get_job(incoming: Incoming) -> answers.JobAnswer:
    query: operator_forms.LookupQuery = incoming.query
    descriptor = incoming.path["descriptor"]
    with incoming.waiting(query.wait_ms):
        found = await incoming.api.lookup(
            [descriptor],
            include_body=query.include_body,
            include_result=query.include_result,
            wait_ms=query.wait_ms,
            context=incoming.context,
        )
    info = found.get(descriptor)
    if info is None:
        raise NotThere(f"there is no job {descriptor[:200]!r}")
    return answer_of(answers.JobAnswer, info, query.encoding)


async def _lookup(incoming: Incoming) -> answers.JobsAnswer:
    form: forms.LookupForm = incoming.form
    of_queue: dict[str, Any] = {}
    if form.queue is not None:
        of_queue = {"queue": form.queue, "keys": requests_of(KeyRef, form.keys, "keys")}
    elif form.keys:
        raise refusal("queue", "keys are of jobs of a queue: name it")
    with incoming.waiting(form.wait_ms):
        found = await incoming.api.lookup(
            form.descriptors,
            include_body=form.include_body,
            include_result=form.include_result,
            wait_ms=form.wait_ms,
            **of_queue,
            context=incoming.context,
        )
    return answers.JobsAnswer(answers_of(answers.JobAnswer, found.values(), form.encoding))


def _filter(queue: str, query: operator_forms.FilterQuery) -> JobFilter:
    return request_of(JobFilter, query, queue=queue)


async def _scan(incoming: Incoming) -> answers.JobPageAnswer:
    query: operator_forms.JobPageQuery = incoming.query
    page = await incoming.api.scan(
        _filter(incoming.queue, query),
        continuation=query.cursor or CONTINUATION_START,
        limit=query.limit,
        context=incoming.context,
    )
    return answer_of(answers.JobPageAnswer, page)


async def _count(incoming: Incoming) -> answers.CountAnswer:
    query: operator_forms.CountQuery = incoming.query
    wanted = _filter(incoming.queue, query)
    count = await incoming.api.count(wanted, allow_partial=query.allow_partial, context=incoming.context)
    return answers.CountAnswer(count)


# -- changing ----------------------------------------------------------------------------------------------------------


async def _cancel(incoming: Incoming) -> answers.CancelledAnswer:
    form: forms.CancelForm = incoming.form
    outcomes = await incoming.api.cancel(
        incoming.queue,
        form.descriptors,
        keys=requests_of(KeyRef, form.keys, "keys"),
        running=form.running,
        context=incoming.context,
    )
    return answers.cancelled(outcomes)


async def _reschedule(incoming: Incoming) -> answers.RescheduledAnswer:
    form: forms.ReschedulesForm = incoming.form
    changes = requests_of(RescheduleJob, form.jobs, "jobs")
    outcomes = await incoming.api.reschedule(incoming.queue, changes, context=incoming.context)
    return answers.RescheduledAnswer(words_of(outcomes))


async def _change_jobs(incoming: Incoming) -> answers.JobsChangedAnswer:
    form: forms.JobChangeForm = incoming.form
    changed = await incoming.api.change_jobs(form.change(incoming.queue), context=incoming.context)
    return answer_of(answers.JobsChangedAnswer, changed, form.encoding)


async def _search(incoming: Incoming) -> answers.FoundJobsAnswer:
    form: search_forms.SearchForm = incoming.form
    found = await incoming.api.search_jobs(
        form.selection(incoming.queue),
        limit=form.limit,
        include_body=form.include_body,
        max_ms=form.max_ms,
        continuation=form.cursor or CONTINUATION_START,
        context=incoming.context,
    )
    return answer_of(answers.FoundJobsAnswer, found, form.encoding)


async def _change_found_jobs(incoming: Incoming) -> answers.JobsChangedAnswer:
    form: search_forms.FoundJobsChangeForm = incoming.form
    changed = await incoming.api.change_found_jobs(form.change(incoming.queue), context=incoming.context)
    return answer_of(answers.JobsChangedAnswer, changed, form.encoding)


JOB_ROUTES = (
    Route(
        name="enqueue",
        verb="POST",
        path="/v1/queues/{queue}/jobs",
        tag=JOBS,
        summary="Enqueue a job",
        method=methods.ENQUEUE,
        call=_enqueue,
        form=forms.JobForm,
        answer=answers.EnqueuedAnswer,
        status=201,
        has_idempotency_key=True,
    ),
    Route(
        name="enqueue_batch",
        verb="POST",
        path="/v1/queues/{queue}/jobs/batch",
        tag=JOBS,
        summary="Enqueue many jobs: all or none, as far as they have no keys",
        method=methods.ENQUEUE,
        call=_enqueue_batch,
        form=forms.JobsForm,
        answer=answers.EnqueuedJobsAnswer,
        status=201,
        has_idempotency_key=True,
    ),
    Route(
        name="dequeue",
        verb="POST",
        path="/v1/queues/{queue}/dequeue",
        tag=WORKERS,
        summary="Claim jobs of a queue, or wait for some",
        method=methods.DEQUEUE,
        call=_dequeue,
        form=forms.DequeueForm,
        answer=answers.DequeuedAnswer,
    ),
    Route(
        name="dequeue_from_queues",
        verb="POST",
        path="/v1/dequeue",
        tag=WORKERS,
        summary="Claim jobs of several queues, or wait for some",
        method=methods.DEQUEUE_FROM_QUEUES,
        call=_dequeue_from_queues,
        form=forms.DequeueFromQueuesForm,
        answer=answers.DequeuedFromQueuesAnswer,
    ),
    Route(
        name="ack",
        verb="POST",
        path="/v1/queues/{queue}/ack",
        tag=WORKERS,
        summary="Say what became of claimed jobs",
        method=methods.ACK,
        call=_ack,
        form=forms.AcksForm,
        answer=answers.AckedAnswer,
    ),
    Route(
        name="heartbeat",
        verb="POST",
        path="/v1/queues/{queue}/heartbeat",
        tag=WORKERS,
        summary="Keep claims, and say how far the jobs are",
        method=methods.HEARTBEAT,
        call=_heartbeat,
        form=forms.HeartbeatsForm,
        answer=answers.HeartbeatsAnswer,
    ),
    Route(
        name="checkpoint",
        verb="POST",
        path="/v1/queues/{queue}/checkpoint",
        tag=WORKERS,
        summary="Keep claims, and change the jobs or give them back",
        method=methods.CHECKPOINT,
        call=_checkpoint,
        form=forms.CheckpointsForm,
    ),
    Route(
        name="get_job",
        verb="GET",
        path="/v1/jobs/{descriptor}",
        tag=JOBS,
        summary="Look at a job, or wait for its end",
        method=methods.LOOKUP,
        call=_get_job,
        query=operator_forms.LookupQuery,
        answer=answers.JobAnswer,
    ),
    Route(
        name="lookup_jobs",
        verb="POST",
        path="/v1/lookup",
        tag=JOBS,
        summary="Look at jobs by descriptor or key, or wait until the first of them has ended",
        method=methods.LOOKUP,
        call=_lookup,
        form=forms.LookupForm,
        answer=answers.JobsAnswer,
    ),
    Route(
        name="scan_jobs",
        verb="GET",
        path="/v1/queues/{queue}/jobs",
        tag=JOBS,
        summary="A page of the jobs of a queue in one state",
        method=methods.SCAN_JOBS,
        call=_scan,
        query=operator_forms.JobPageQuery,
        answer=answers.JobPageAnswer,
    ),
    Route(
        name="count_jobs",
        verb="GET",
        path="/v1/queues/{queue}/jobs/count",
        tag=JOBS,
        summary="How many jobs match",
        method=methods.GET_JOB_COUNT,
        call=_count,
        query=operator_forms.CountQuery,
        answer=answers.CountAnswer,
    ),
    Route(
        name="cancel_jobs",
        verb="POST",
        path="/v1/queues/{queue}/jobs/cancel",
        tag=JOBS,
        summary="Remove pending jobs, and ask running ones to stop",
        method=methods.CANCEL,
        call=_cancel,
        form=forms.CancelForm,
        answer=answers.CancelledAnswer,
    ),
    Route(
        name="reschedule_jobs",
        verb="POST",
        path="/v1/queues/{queue}/jobs/reschedule",
        tag=JOBS,
        summary="Give pending jobs another time, body or number of attempts",
        method=methods.RESCHEDULE,
        call=_reschedule,
        form=forms.ReschedulesForm,
        answer=answers.RescheduledAnswer,
    ),
    Route(
        name="change_jobs",
        verb="POST",
        path="/v1/queues/{queue}/jobs/change",
        tag=JOBS,
        summary="Retry, delete, cancel or replay all jobs that match, slice by slice",
        method=methods.CHANGE_JOBS,
        call=_change_jobs,
        form=forms.JobChangeForm,
        answer=answers.JobsChangedAnswer,
    ),
    Route(
        name="search_jobs",
        verb="POST",
        path="/v1/queues/{queue}/jobs/search",
        tag=JOBS,
        summary="A page of the jobs of a queue that meet conditions on their state, times, keys, status or body",
        method=found_job_methods.SEARCH_JOBS,
        call=_search,
        form=search_forms.SearchForm,
        answer=answers.FoundJobsAnswer,
    ),
    Route(
        name="change_found_jobs",
        verb="POST",
        path="/v1/queues/{queue}/jobs/search/change",
        tag=JOBS,
        summary="Retry, delete, cancel or replay all jobs that a search finds, slice by slice",
        method=found_job_methods.CHANGE_FOUND_JOBS,
        call=_change_found_jobs,
        form=search_forms.FoundJobsChangeForm,
        answer=answers.JobsChangedAnswer,
    ),
)

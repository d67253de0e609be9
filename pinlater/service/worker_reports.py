"""The reports of workers, within the rights of the callers that send them."""

from __future__ import annotations

from dataclasses import replace

from pinlater.cluster.worker_entries import bounded
from pinlater.model import ANONYMOUS, ANY_QUEUE, RequestContext, WorkerReport
from pinlater.service.cluster_parts import ReportedWorkers
from pinlater.service.rights import CONSUME, ENQUEUE, may


def receive(workers: ReportedWorkers, report: WorkerReport, context: RequestContext | None) -> None:
    """What a worker says of itself counts as its caller's, and for the queues that this one may consume: one that names
    other queues alone is no worker, unless it says that it has stopped. A relay of an outbox is whoever may enqueue.
    Raises nothing.
    """
    report = bounded(report)
    if report.outbox is not None:
        if not may(context, ENQUEUE, ANY_QUEUE):
            return
        report = replace(report, queues={}, running=(), job_types=(), slots=0)
    queues = {name: weight for name, weight in report.queues.items() if may(context, CONSUME, name)}
    if report.queues and not queues and not report.has_stopped:
        return
    running = [job for job in report.running if may(context, CONSUME, job.job_descriptor.partition(":")[0])]
    identity = reporter(context)
    if context is not None and context.connection is not None:
        context.connection.worker = identity, report.id
    unknown = [each for each in report.unknown_types if may(context, CONSUME, each.queue)]
    workers.receive(replace(report, queues=queues, running=running, unknown_types=unknown), identity)


def reporter(context: RequestContext | None) -> str:
    """Whose an entry of the list is. Where no rules are in force, all callers that show nothing are one."""
    caller = None if context is None else context.caller
    if context is None or caller is None:
        return ANONYMOUS
    return context.holder if caller.has_rules else caller.identity

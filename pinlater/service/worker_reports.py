"""The reports of workers, within the rights of the callers that send them."""

from __future__ import annotations

from dataclasses import replace

from pinlater.cluster.worker_entries import bounded
from pinlater.model import ANONYMOUS, RequestContext, WorkerReport
from pinlater.model.connection_ref import host_of
from pinlater.service.cluster_parts import HeardWorkers
from pinlater.service.rights import CONSUME, may


def hear(workers: HeardWorkers, report: WorkerReport, context: RequestContext | None) -> None:
    """What a worker says of itself counts as its caller's, and for the queues that this one may consume: one that names
    other queues alone is no worker, unless it says that it has stopped. Raises nothing.
    """
    told = bounded(report)
    queues = {name: weight for name, weight in told.queues.items() if may(context, CONSUME, name)}
    if told.queues and not queues and not told.has_stopped:
        return
    running = [job for job in told.running if may(context, CONSUME, job.job_descriptor.partition(":")[0])]
    workers.hear(replace(told, queues=queues, running=running), reporter(context))


def reporter(context: RequestContext | None) -> str:
    """The identity of a caller. Where rules are in force, which may tell callers that show nothing apart by their
    addresses, that of such a caller has its address.
    """
    caller = None if context is None else context.caller
    if caller is None or context is None:
        return ANONYMOUS
    if caller.identity != ANONYMOUS or not caller.has_rules:
        return caller.identity
    peer = None if context.connection is None else context.connection.peer
    return f"{ANONYMOUS} at {host_of(peer if caller.address is None else (caller.address, 0))}"

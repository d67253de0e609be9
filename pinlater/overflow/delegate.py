"""An Api that hands on to another one whatever its class does not do itself: as attributes, so at no cost per call."""

from __future__ import annotations

from pinlater.server.calls import Service


class Delegating:
    """The calls that mean the same whether a job is on a shard or in an overflow shard."""

    def __init__(self, inner: Service) -> None:
        self.create_queue = inner.create_queue
        self.delete_queue = inner.delete_queue
        self.queue_names = inner.queue_names
        self.count = inner.count
        self.scan = inner.scan
        self.retry_failed = inner.retry_failed
        self.delete_jobs = inner.delete_jobs
        self.get_queues = inner.get_queues
        self.update_queue = inner.update_queue
        self.update_shard = inner.update_shard
        self.cluster_status = inner.cluster_status
        self.change_jobs = inner.change_jobs
        self.audit = inner.audit

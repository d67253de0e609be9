"""What an operator can say of a worker, at the command line or in a file: one table, one meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pinlater_workers.job_settings import PoolName


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """`queues`: their weights. Times are seconds.

    `lease_s`: how long a claim holds without a heartbeat. `grace_s`: how long running jobs may go on after SIGTERM.
    `recycle_jobs`, `recycle_mib`: after so many jobs, or above so much memory, a process of the pool is replaced; 0:
    never. `unknown_delay_s`: how long a job of an unknown type stays away. `http` and `statsd`: HOST:PORT, "": none.
    """

    queues: Mapping[str, int] = field(default_factory=dict)
    concurrency: int = 8
    pool: PoolName = "thread"
    lease_s: float = 30.0
    grace_s: float = 30.0
    poll_wait_s: float = 20.0
    ack_delay_s: float = 0.05
    recycle_jobs: int = 0
    recycle_mib: int = 0
    unknown_delay_s: float = 10.0
    http: str = ""
    statsd: str = ""
    statsd_prefix: str = "pinlater_worker"
    create_queues: bool = False

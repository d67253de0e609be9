"""What an operator can say of a worker, at the command line or in a file: one table, one meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pinlater.model import is_queue_name
from pinlater_workers.job_settings import POOLS, QUEUE_NAME, PoolName
from pinlater_workers.settings_table import DAY_S, Key, duration, flag, integer, read_table, text, word

MAX_WEIGHT = 1000
ALLOWED_QUEUES = f"names of queues ({QUEUE_NAME}), each with a weight of 1 to {MAX_WEIGHT}, as in mail=3,b"
MAX_CONCURRENCY = 10_000
LONGEST_POLL_S = 20.0
POLLS_PER_LEASE = 3


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """`queues`: their weights. Times are seconds.

    `lease_s`: how long a claim holds without a heartbeat. `poll_wait_s`: how long a server may hold back its answer; it
    counts up to a third of the lease (None: that, or LONGEST_POLL_S). `grace_s`: how long running jobs may go on after
    SIGTERM.
    `recycle_jobs`, `recycle_mib`: after so many jobs, or above so much memory, a process of the pool is replaced; 0:
    never. `unknown_delay_s`: how long a job of an unknown type stays away. `http` and `statsd`: HOST:PORT, "": none.
    """

    queues: Mapping[str, int] = field(default_factory=dict)
    concurrency: int = 8
    pool: PoolName = "thread"
    lease_s: float = 30.0
    grace_s: float = 30.0
    poll_wait_s: float | None = None
    ack_delay_s: float = 0.05
    recycle_jobs: int = 0
    recycle_mib: int = 0
    unknown_delay_s: float = 10.0
    http: str = ""
    statsd: str = ""
    statsd_prefix: str = "pinlater_worker"
    create_queues: bool = False

    @property
    def poll_s(self) -> float:
        """How long a dequeue waits at most: so fewer jobs go to callers that a stalled network has cut off."""
        told_s = LONGEST_POLL_S if self.poll_wait_s is None else self.poll_wait_s
        return min(told_s, self.lease_s / POLLS_PER_LEASE)

    @property
    def polls_too_long(self) -> bool:
        """It was told to wait for longer than it does."""
        return self.poll_wait_s is not None and self.poll_wait_s > self.lease_s / POLLS_PER_LEASE


def queue_weights(value: object) -> dict[str, int]:
    """Of a table {a = 3, b = 1}, a list ["a", "b"], or a text "a=3,b". ValueError or TypeError.

    >>> queue_weights("mail=3, reports")
    {'mail': 3, 'reports': 1}
    """
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
        if not value:
            raise ValueError("it names no queue; left out, it means all of the app's jobs")
    if isinstance(value, Mapping):
        return {name: _weight(weight, name) for name, weight in value.items()}
    if not isinstance(value, list | tuple):
        raise TypeError
    weights = {}
    for part in value:
        if not isinstance(part, str):
            raise TypeError(f"{part!r} is no name of a queue")
        name, equals, text = (each.strip() for each in part.partition("="))
        if name in weights:
            raise ValueError(f"queue {name!r} stands there twice")
        weight = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text
        weights[name] = _weight(weight if equals else 1, name)
    return weights


def _weight(weight: object, name: str) -> int:
    if not is_queue_name(name):
        raise ValueError(f"no queue can have the name {name!r}")
    if not isinstance(weight, int) or isinstance(weight, bool) or not 1 <= weight <= MAX_WEIGHT:
        raise ValueError(f"queue {name!r} has weight {weight!r}")
    return weight


def _is_host_port(value: str) -> bool:
    host, colon, port = value.rpartition(":")
    return value == "" or (bool(host and colon) and port.isdecimal() and int(port) <= 65535)


KEYS: dict[str, Key] = {
    "queues": Key("queues", queue_weights, ALLOWED_QUEUES),
    "concurrency": integer("concurrency", 1, MAX_CONCURRENCY),
    "pool": word("pool", POOLS),
    "lease": duration("lease_s", 3.0, DAY_S),
    "grace": duration("grace_s", 0.0, DAY_S),
    "poll_wait": duration("poll_wait_s", 0.0, 60.0),
    "ack_delay": duration("ack_delay_s", 0.0, 1.0),
    "recycle_jobs": integer("recycle_jobs", 0),
    "recycle_mib": integer("recycle_mib", 0),
    "unknown_delay": duration("unknown_delay_s", 0.0, DAY_S),
    "http": text("http", "HOST:PORT, or nothing", _is_host_port),
    "statsd": text("statsd", "HOST:PORT, or nothing", _is_host_port),
    "statsd_prefix": text("statsd_prefix", "a text"),
    "create_queues": flag("create_queues"),
}


def worker_settings(options: Mapping[str, object], where: str, base: WorkerSettings | None = None) -> WorkerSettings:
    """The settings that these keys say, on top of others. ConfigurationError."""
    return replace(base or WorkerSettings(), **read_table(KEYS, options, where))

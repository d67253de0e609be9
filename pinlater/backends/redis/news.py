"""What is published when jobs become pending, on a channel per queue: `ORIGIN READY DUE`.

READY jobs are eligible now, and the earliest of the others will be at DUE (0: there are no others). ORIGIN is the
process that enqueued them, which knows already, or "-".
"""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.base import Notification
from pinlater.model import Job

UNCLEAR = Notification(1, None)
"""What a message of another form is taken for."""


def channel(base: bytes) -> bytes:
    """Of the queue whose keys begin with `base`."""
    return base + b":news"


def announcement(origin: bytes, jobs: Sequence[Job], now_ms: int) -> bytes:
    """What to publish of new jobs."""
    later = [time_ms for job in jobs if (time_ms := job.run_after_ms) is not None and time_ms > now_ms]
    return b"%s %d %d" % (origin, len(jobs) - len(later), min(later, default=0))


def read(message: bytes) -> tuple[bytes, Notification]:
    """The origin, and what it tells. ValueError for what is not of this form."""
    origin, ready, due_ms = message.split(b" ")
    return origin, Notification(int(ready), int(due_ms) or None)

"""What a worker says of itself when it is asked: for its health page and its gauges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class QueueView:
    """`state` is a word or two for a person: polling, full, paused, not found, no server. `trouble`: the last error."""

    weight: int
    state: str
    running: int = 0
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """`since_good_poll_s`: seconds since a server last answered a dequeue; since the start where none has yet.

    Any answer counts, one of a paused or unknown queue too. While all slots are taken there is nothing to poll for: it
    is 0 then, and counts again from when a slot became free.

    `running` are the jobs that run; `stuck` the slots beside these whose thread or coroutine goes on although its job
    has ended; what is left of `slots` is free. `unacked` are the results that no server has confirmed yet.
    """

    since_good_poll_s: float
    slots: int
    running: int = 0
    stuck: int = 0
    unacked: int = 0
    is_stopping: bool = False
    queues: Mapping[str, QueueView] = field(default_factory=dict)

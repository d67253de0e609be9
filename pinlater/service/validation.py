"""The validation of requests, by the names of the wire.

What is stored or claimed is checked before anything is done; of acks and checkpoints an invalid one keeps no other from
being carried out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NoReturn

from pinlater.errors import (
    PinLaterError,
    QueueNameInvalid,
    QueueNameTooLong,
    QueueNotFound,
    RequestInvalid,
)
from pinlater.job_limits import JobLimits
from pinlater.model import (
    MAX_QUEUE_NAME_CHARS,
    MAX_QUEUES,
    MAX_TIME_MS,
    MAX_WEIGHT,
    QUEUE_NAME_ALLOWED,
    DequeueFromQueuesRequest,
    DequeueRequest,
    JobFilter,
    JobState,
    RequestContext,
)
from pinlater.model import is_queue_name as is_queue_name
from pinlater.service.settings import ServiceSettings

_NAME_CHARS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*", re.ASCII)
_STATES = frozenset(JobState)


_MOST_MESSAGES = 5
"""The most entries that were not carried out whose messages are given."""


class EntryErrors:
    """Entries of one request that are not carried out, while the others are: how many, and what is wrong with the
    first few. A text of bounded length, however many they are.
    """

    count = 0
    _first: tuple[PinLaterError, ...] = ()

    def add(self, error: PinLaterError) -> None:
        self.count += 1
        if self.count <= _MOST_MESSAGES:
            self._first += (error,)

    def extend(self, others: EntryErrors) -> None:
        """Add the errors of further entries, behind these."""
        self.count += others.count
        self._first = (self._first + others._first)[:_MOST_MESSAGES]

    def summary(self, what: str, total: int, *, acks_applied: bool | None = None) -> PinLaterError:
        """The error of the call, of the kind of its first entry's, when all other entries were carried out."""
        messages = "; ".join(error.message for error in self._first)
        more = "" if self.count <= _MOST_MESSAGES else f"; and {self.count - _MOST_MESSAGES} more"
        text = f"{self.count} of {total} {what} were not carried out, all others were: {messages}{more}"
        return type(self._first[0])(text, acks_applied=acks_applied)


class Validator(JobLimits):
    """The limits of requests, for one service."""

    def __init__(self, settings: ServiceSettings) -> None:
        super().__init__(settings.num_priority_levels, settings.max_body_bytes, settings.max_jobs)
        self._settings = settings
        self.max_claim_timeout_ms = settings.max_claim_timeout_ms
        self.priorities: tuple[int, ...] = tuple(range(1, settings.num_priority_levels + 1))

    def source(self, context: RequestContext | None) -> str:
        if context is None:
            return ""
        if len(context.source) > self._settings.max_source_chars:
            self._refuse_source(context.source)
        return context.source

    def limit(self, limit: int) -> int:
        """A limit of a dequeue or scan, cut to its bound."""
        at_least_1("limit", limit)
        return min(limit, self._settings.max_jobs)

    def dequeue(self, request: DequeueRequest, source: str) -> int:
        """The limit of a dequeue, cut to its bound. RequestInvalid; QueueNotFound for what cannot be a queue's name."""
        if request.limit < 1:
            at_least_1("limit", request.limit)
        if not 0 <= request.coverage <= 1:  # NaN compares false too
            raise RequestInvalid.of("coverage", request.coverage, "0 to 1")
        if request.wait_ms < 0:
            raise RequestInvalid.of("waitMillis", request.wait_ms, "0 or more")
        if request.claim_timeout_ms is not None and request.claim_timeout_ms < 1:
            at_least_1("claimTimeoutMillis", request.claim_timeout_ms)
        if request.prefetch < 0:
            raise RequestInvalid.of("prefetch", request.prefetch, "0 or more")
        if len(source) > self._settings.max_source_chars:
            self._refuse_source(source)
        if not is_queue_name(request.queue):
            raise QueueNotFound.of(request.queue[:100])
        return min(request.limit, self.max_jobs)

    def dequeue_from_queues(self, request: DequeueFromQueuesRequest, source: str) -> int:
        """The limit of a dequeue from many queues, cut to its bound. RequestInvalid. A name that can be no queue's is
        left to those who look for the queue.
        """
        queues = request.queues
        if not 1 <= len(queues) <= MAX_QUEUES:
            raise RequestInvalid.of("the length of queues", len(queues), f"1 to {MAX_QUEUES}")
        names = {share.queue for share in queues}
        if len(names) < len(queues):
            twice = next(name for name, amount in Counter([share.queue for share in queues]).items() if amount > 1)
            raise RequestInvalid.of("queues", twice[:MAX_QUEUE_NAME_CHARS], "each queue once")
        for share in queues:
            if not 1 <= share.weight <= MAX_WEIGHT:
                raise RequestInvalid.of("weight", share.weight, f"1 to {MAX_WEIGHT}")
            if share.prefetch < 0:
                raise RequestInvalid.of("prefetch", share.prefetch, "0 or more")
        if request.limit < 1:
            at_least_1("limit", request.limit)
        if request.wait_ms < 0:
            raise RequestInvalid.of("waitMillis", request.wait_ms, "0 or more")
        if request.claim_timeout_ms is not None and request.claim_timeout_ms < 1:
            at_least_1("claimTimeoutMillis", request.claim_timeout_ms)
        if len(source) > self._settings.max_source_chars:
            self._refuse_source(source)
        return min(request.limit, self.max_jobs)

    def _refuse_source(self, source: str) -> NoReturn:
        raise RequestInvalid.of("source", source, f"at most {self._settings.max_source_chars} characters")

    def filter(self, filter: JobFilter) -> Sequence[int]:
        """The priorities that a filter means. QueueNotFound for what cannot be a queue's name."""
        existing_queue(filter.queue)
        if filter.state not in _STATES:
            raise RequestInvalid.of(
                "jobState", filter.state, ", ".join(f"{state.name} {state:d}" for state in JobState)
            )
        if filter.priority is None:
            return self.priorities
        self.priority(filter.priority)
        return (filter.priority,)

    def latest_expiry_ms(self, now_ms: int) -> int:
        """The latest expiry that a checkpoint may give a claim by a run_after in the future."""
        return min(now_ms + self._settings.max_claim_timeout_ms, MAX_TIME_MS)


def new_queue(name: str) -> None:
    """A name that a queue may be given."""
    if not _NAME_CHARS.fullmatch(name):
        raise QueueNameInvalid(f"queue name {name[:100]!r} is invalid; allowed: {QUEUE_NAME_ALLOWED}")
    if len(name) > MAX_QUEUE_NAME_CHARS:
        raise QueueNameTooLong(f"a queue name has {len(name)} characters; allowed: 1 to {MAX_QUEUE_NAME_CHARS}")


def existing_queue(name: str) -> None:
    """A queue of such a name can exist; else QueueNotFound, as for any other that does not."""
    if not is_queue_name(name):
        raise QueueNotFound.of(name[:100])


def at_least_1(field: str, value: int) -> None:
    if value < 1:
        raise RequestInvalid.of(field, value, "1 or more")


def no_descriptor(text: str) -> RequestInvalid:
    return RequestInvalid.of("jobDescriptor", text, "a descriptor as an enqueue or dequeue gave it")

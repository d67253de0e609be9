"""The texts that name jobs and claims.

`DescriptorParser` finds the jobs on the shards: the text before the id repeats from job to job, and is read once.
`ClaimTokens` makes the names of claims, `SERVER:PROCESS:START:COUNTER:SOURCE`, each used for one dequeue call only. A
claim that is bound to its caller's connection says so in its counter, with its time-out in ms: `42r30000`. So every
server that gets a checkpoint which names it knows that it is to be bound, although nothing is shared but the store.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TypeVar

from pinlater.backends.acks import AckKind, Acks
from pinlater.backends.base import CheckpointRequest, ClaimRequest, JobKey
from pinlater.data_folder.identity import is_overflow_id
from pinlater.errors import RequestInvalid
from pinlater.model import (
    CLAIM_PARTS_BEFORE_SOURCE,
    MAX_STATUS_CHARS,
    MAX_TIME_MS,
    Ack,
    AckOutcome,
    Checkpoint,
    JobRef,
    claim_source,
    is_descriptor,
    parse_descriptor,
)
from pinlater.queues.settings import QueueSettings
from pinlater.service.overflow_calls import NamesOverflow
from pinlater.service.validation import EntryErrors, no_descriptor

S = TypeVar("S")
T = TypeVar("T")

_ID_DIGITS = 16
_MIN_ID = 10 ** (_ID_DIGITS - 1)
_MAX_PREFIXES = 10_000
_LAST_DIGITS = {f"{number:03}": number for number in range(1000)}


class DescriptorParser:
    """Reads descriptors. What names another queue than the request, or no job that a store here can have made, is left
    out; so is what is no descriptor at all, which is an error of its entry where a call says nothing of each job.
    """

    def __init__(self) -> None:
        self._prefixes: dict[str, JobRef] = {}
        self._refuses_overflow = False

    def refuse_overflow(self) -> None:
        """From now on each method that reads a descriptor of an overflow shard raises NamesOverflow."""
        self._refuses_overflow = True

    def parse(self, descriptor: str) -> JobRef | None:
        """The job meant; None for a text that no store can have made."""
        place = self._prefixes.get(descriptor[:-_ID_DIGITS]) or self._learn(descriptor)
        if place is None:
            return None
        job_id = _job_id(descriptor)
        return JobRef(place[0], place[1], place[2], job_id) if job_id else None

    def _learn(self, descriptor: str) -> JobRef | None:
        ref = parse_descriptor(descriptor)
        if ref is not None:
            if self._refuses_overflow and is_overflow_id(ref.shard):
                raise NamesOverflow(descriptor)
            if len(self._prefixes) >= _MAX_PREFIXES:
                self._prefixes.clear()
            self._prefixes[descriptor[:-_ID_DIGITS]] = ref
        return ref

    def require_shards(self, descriptors: Iterable[str]) -> None:
        """NamesOverflow, before a call in several steps begins with the first."""
        for descriptor in descriptors:
            self.parse(descriptor)

    def acks(
        self,
        queue: str,
        succeeded: Sequence[Ack],
        failed: Sequence[Ack],
        now_ms: int,
        errors: EntryErrors,
        settings: Callable[[str], QueueSettings] = lambda _: QueueSettings(),
    ) -> dict[str, Acks]:
        """The acks to send to each shard, by its id. A delay below 0 is none; one beyond all time is an error of its
        entry; a success with a larger result is a failure. A descriptor that differs from the one before in its last
        three digits only is not read anew.
        """
        groups: dict[str, Acks] = {}
        last_digits = _LAST_DIGITS
        for is_success, acks in ((True, succeeded), (False, failed)):
            before, thousand, others = None, 0, None
            ids: list[int] = []
            for ack in acks:
                text = ack.descriptor
                own = (ack.append_status, ack.retry_delay_ms, ack.claim_descriptor, ack.permanent, ack.result)
                if own == others and text[:-3] == before:
                    digits = last_digits.get(text[-3:])
                    if digits is not None:
                        ids.append(thousand + digits)
                        continue
                status, delay_ms, claim_descriptor, permanent, result = others = own
                before = None
                place = self._prefixes.get(text[:-_ID_DIGITS]) or self._learn(text)
                job_id = 0 if place is None else _job_id(text)
                if place is None or not job_id:
                    if not is_descriptor(text):
                        errors.add(no_descriptor(text))
                    continue
                if delay_ms and not 0 < delay_ms <= MAX_TIME_MS - now_ms:
                    if delay_ms > 0 and not is_success:
                        errors.add(_absurd(text, delay_ms))
                        continue
                    delay_ms = 0
                if place[0] != queue:
                    continue
                before, thousand = text[:-3], job_id - job_id % 1000
                if result is None:
                    status = status[:MAX_STATUS_CHARS]
                    kind = AckKind(place[2], is_success, status, delay_ms, claim_descriptor, permanent)
                else:
                    max_bytes = settings(queue).max_result_bytes
                    kind = _with_result(place[2], ack, is_success, delay_ms, max_bytes)
                group = groups.get(place[1])
                if group is None:
                    group = groups[place[1]] = Acks()
                ids = group.run(kind)
                ids.append(job_id)
        return groups

    def outcomes(
        self, queue: str, acks: Iterable[Ack], by_shard: Mapping[str, Sequence[AckOutcome]]
    ) -> list[AckOutcome]:
        """The outcome of each ack, in order, from those that each shard gave for its part of the acks in that order."""
        results = {shard_id: iter(outcomes) for shard_id, outcomes in by_shard.items()}
        found: list[AckOutcome] = []
        for ack in acks:
            ref = self.parse(ack.descriptor)
            own = results.get(ref.shard) if ref is not None and ref.queue == queue else None
            found.append(AckOutcome.IGNORED if own is None else next(own, AckOutcome.IGNORED))
        return found

    def checkpoints(
        self,
        queue: str,
        source: str,
        requests: Sequence[Checkpoint],
        errors: EntryErrors,
        latest_expiry_ms: int = MAX_TIME_MS,
    ) -> dict[str, list[CheckpointRequest]]:
        """The checkpoints to send to each shard, by its id. What is no descriptor is an error of its entry."""
        for request in requests:
            if self.parse(request.descriptor) is None and not is_descriptor(request.descriptor):
                errors.add(no_descriptor(request.descriptor))
        return self._group(
            queue,
            ((request.descriptor, request) for request in requests),
            lambda ref, request: CheckpointRequest(
                ref.priority,
                ref.id,
                source,
                request.claim_descriptor,
                request.new_body,
                request.move_to_pending,
                request.run_after_ms,
                request.attempts_allowed,
                request.prepend_status[:MAX_STATUS_CHARS],
                latest_expiry_ms,
            ),
        )

    def keys(self, queue: str, descriptors: Iterable[str]) -> dict[str, list[tuple[str, JobKey]]]:
        """Per shard, each descriptor with the job it names."""
        pairs = ((descriptor, descriptor) for descriptor in descriptors)
        return self._group(queue, pairs, lambda ref, text: (text, JobKey(ref.priority, ref.id)))

    def places(self, descriptors: Iterable[str]) -> dict[tuple[str, str], list[tuple[str, JobKey]]]:
        """Per (shard, queue), each descriptor with the job it names."""
        groups: dict[tuple[str, str], list[tuple[str, JobKey]]] = {}
        for descriptor in descriptors:
            ref = self.parse(descriptor)
            if ref is not None:
                key = JobKey(ref.priority, ref.id)
                groups.setdefault((ref.shard, ref.queue), []).append((descriptor, key))
        return groups

    def _group(self, queue: str, items: Iterable[tuple[str, S]], make: Callable[[JobRef, S], T]) -> dict[str, list[T]]:
        groups: dict[str, list[T]] = {}
        for descriptor, item in items:
            ref = self.parse(descriptor)
            if ref is not None and ref.queue == queue:
                groups.setdefault(ref.shard, []).append(make(ref, item))
        return groups


def _with_result(priority: int, ack: Ack, is_success: bool, delay_ms: int, max_bytes: int) -> AckKind:
    """A result comes with a success; one that is too large makes a failure of it."""
    status, result = ack.append_status, ack.result if is_success else None
    if result is not None and len(result) > max_bytes:
        why = f"allowed: at most {max_bytes}, the max_result of the queue"
        status, result, is_success = with_result_too_large(status, len(result), why), None, False
    return AckKind(
        priority, is_success, status[:MAX_STATUS_CHARS], delay_ms, ack.claim_descriptor, ack.permanent, result
    )


def with_result_too_large(status: str, result_bytes: int, why: str) -> str:
    """The status that an ack appends whose result is not kept: its own, as far as there is room, and why."""
    line = f"[RESULT_TOO_LARGE: {result_bytes} bytes; {why}]\n"
    return status[: MAX_STATUS_CHARS - len(line)] + line


def _absurd(descriptor: str, delay_ms: int) -> RequestInvalid:
    return RequestInvalid.of(f"retryDelayMillis of {descriptor}", delay_ms, f"up to {MAX_TIME_MS} less the time now")


def _job_id(descriptor: str) -> int:
    """The id that ends a descriptor, or 0. A number in this range needs all 16 characters to be digits."""
    try:
        job_id = int(descriptor[-16:])
    except ValueError:
        return 0
    return job_id if _MIN_ID <= job_id <= MAX_TIME_MS and descriptor.isascii() else 0


_BOUND = "r"
_MOST_DIGITS = 16
"""A caller can name any claim; int() refuses thousands of digits."""


class ClaimTokens:
    """Names that no other server, process or start of it makes. A colon in the server's name becomes a dash."""

    def __init__(self, server: str, process: int | str, started_ms: int) -> None:
        self.server = server
        self.process = f"{server.replace(':', '-')}:{str(process).replace(':', '-')}:{started_ms}"
        """The name of this process, which no other one has, nor had."""
        self._prefix = f"{self.process}:"
        self._counter = count(1)

    def next(self, source: str, timeout_ms: int | None = None) -> str:
        """`timeout_ms`: the time-out of a claim that is bound to its connection."""
        if timeout_ms is None:
            return f"{self._prefix}{next(self._counter)}:{source}"
        return f"{self._prefix}{next(self._counter)}{_BOUND}{timeout_ms}:{source}"

    def next_secret(self, source: str) -> str:
        """One that nobody can guess, for a holder that shows it in place of what proves who it is."""
        return f"{self._prefix}{next(self._counter)}-{secrets.token_hex(16)}:{source}"

    def renew(self, claim: ClaimRequest) -> ClaimRequest:
        """The same claim under a new name: the old one may still be under way."""
        source, timeout_ms = claim_source(claim.claim_descriptor), bound_timeout(claim.claim_descriptor)
        return replace(claim, claim_descriptor=self.next(source, timeout_ms))


def bound_timeout(claim_descriptor: str) -> int | None:
    """The time-out in ms of a claim that is bound to its connection; None: it is not.

    >>> bound_timeout("web-1:4711:1790000000000:42r30000:worker:7"), bound_timeout("web-1:4711:1790:42:worker")
    (30000, None)
    """
    parts = claim_descriptor.split(":", CLAIM_PARTS_BEFORE_SOURCE)
    if len(parts) <= CLAIM_PARTS_BEFORE_SOURCE:
        return None
    _, _, timeout_ms = parts[CLAIM_PARTS_BEFORE_SOURCE - 1].partition(_BOUND)
    return int(timeout_ms) if timeout_ms.isdecimal() and len(timeout_ms) <= _MOST_DIGITS else None

"""Workers as they are kept: a report within its bounds, when it was heard, and its form in a key-value entry.

An entry holds the reports of many workers, one JSON object a line, compressed. Pure.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import msgspec

from pinlater.job_body import UNREADABLE
from pinlater.model import (
    MAX_TIME_MS,
    OutboxReport,
    UnknownType,
    WorkerInfo,
    WorkerJob,
    WorkerJobInfo,
    WorkerReport,
)

MAX_CHARS = 100
"""Of an id, a name, a host, a version."""

MAX_JOB_CHARS = 200
"""Of a job's type and descriptor, and of an outbox's name."""

MAX_SLOTS = 10_000
"""Of one process: more would be a joke in the sums of an autoscaler."""

MAX_QUEUES = 100
MAX_RUNNING = 100
MAX_VERSIONS = 20
MAX_JOB_TYPES = MAX_UNKNOWN_TYPES = 100
ENTRY_BYTES = 131_072
"""A longer entry, before it is compressed, becomes two."""

_MAX_READ_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SeenWorker:
    """What a worker said last, when a server heard it, and the identity that said it; None: a server of an earlier
    version heard it, which does not keep that.
    """

    report: WorkerReport
    seen_ms: int
    identity: str | None = None
    lost_ms: int | None = None
    """Since then the connection by which it reported is broken."""

    @property
    def key(self) -> tuple[str | None, str]:
        """Whose entry it is: of two callers that use the same id, none speaks for the other."""
        return self.identity, self.report.id

    @property
    def order(self) -> tuple[str, str, int, str]:
        """The place in the list of all."""
        report = self.report
        return report.name, report.host, report.pid, f"{report.id} {self.identity or ''}"

    def view(self, *, include_running: bool) -> WorkerInfo:
        """For operators. Times are those of the server that heard it, whatever clock the worker has."""
        report, seen_ms = self.report, self.seen_ms
        jobs = report.running
        return WorkerInfo(
            report.id,
            report.name,
            report.host,
            report.pid,
            dict(report.queues),
            report.slots,
            report.busy_slots,
            report.stuck_slots,
            [WorkerJobInfo(job.job_descriptor, job.job_type, _ago(seen_ms, job.running_ms)) for job in jobs]
            if include_running
            else [],
            _ago(seen_ms, max(job.running_ms for job in jobs)) if jobs else None,
            dict(report.versions),
            report.is_stopping,
            _ago(seen_ms, report.up_ms),
            seen_ms,
            _ago(seen_ms, report.silent_ms) if report.silent_ms else None,
            self.identity,
            report.is_quiet,
            list(report.job_types) if include_running else [],
            report.outbox,
            list(report.unknown_types),
        )


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(SeenWorker)
"""Checks every type, and passes over what another version adds."""


def _ago(now_ms: int, ms: int) -> int:
    return max(0, now_ms - ms)


def bounded(report: WorkerReport) -> WorkerReport:
    """The report within its bounds: it came from anybody. What is too long is cut, and a number below 0 counts as 0."""
    return WorkerReport(
        report.id[:MAX_CHARS],
        report.name[:MAX_CHARS],
        _number(report.up_ms),
        report.host[:MAX_CHARS],
        _number(report.pid),
        {name[:MAX_CHARS]: _number(weight) for name, weight in islice(report.queues.items(), MAX_QUEUES)},
        _number(report.slots, MAX_SLOTS),
        _number(report.busy_slots, MAX_SLOTS),
        _number(report.stuck_slots, MAX_SLOTS),
        [
            WorkerJob(job.job_descriptor[:MAX_JOB_CHARS], job.job_type[:MAX_JOB_CHARS], _number(job.running_ms))
            for job in sorted(report.running, key=lambda job: -job.running_ms)[:MAX_RUNNING]
        ],
        {name[:MAX_CHARS]: text[:MAX_CHARS] for name, text in islice(report.versions.items(), MAX_VERSIONS)},
        report.is_stopping,
        report.has_stopped,
        _number(report.silent_ms),
        report.is_quiet,
        tuple(name[:MAX_JOB_CHARS] for name in islice(report.job_types, MAX_JOB_TYPES)),
        None if report.outbox is None else _bounded_outbox(report.outbox),
        tuple(
            UnknownType(
                each.queue[:MAX_CHARS], each.job_type[:MAX_JOB_CHARS], _number(each.jobs), _number(each.last_ms)
            )
            for each in islice(report.unknown_types, MAX_UNKNOWN_TYPES)
        ),
    )


def _bounded_outbox(outbox: OutboxReport) -> OutboxReport:
    return OutboxReport(
        outbox.name[:MAX_JOB_CHARS],
        _number(outbox.waiting),
        _number(outbox.oldest_ms),
        _number(outbox.goal_ms),
        outbox.problem[:MAX_JOB_CHARS],
    )


def _number(value: int, most: int = MAX_TIME_MS) -> int:
    return min(max(value, 0), most)


def newest(workers: Iterable[SeenWorker]) -> list[SeenWorker]:
    """What each said last. What servers of an earlier version heard counts where nobody else heard of that id."""
    found: dict[tuple[str | None, str], SeenWorker] = {}
    for worker in workers:
        known = found.get(worker.key)
        if known is None or known.report.up_ms < worker.report.up_ms:
            found[worker.key] = worker
    owned = {id for identity, id in found if identity is not None}
    return [worker for (identity, id), worker in found.items() if identity is not None or id not in owned]


def encode_worker(worker: SeenWorker) -> bytes:
    """One line of an entry."""
    return _encoder.encode(worker)


def entries(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The bodies of as many entries as these lines need; one at least. Each is made when it is asked for."""
    parts: list[bytes] = []
    size = 0
    for line in lines:
        if parts and size + len(line) > ENTRY_BYTES:
            yield zlib.compress(b"\n".join(parts), 1)
            parts, size = [], 0
        parts.append(line)
        size += len(line)
    yield zlib.compress(b"\n".join(parts), 1)


def decode_entry(body: bytes) -> list[SeenWorker]:
    """What `entries` made, in this version or another one. ValueError."""
    try:
        found = _decoder.decode_lines(zlib.decompressobj().decompress(body, _MAX_READ_BYTES))
    except (zlib.error, *UNREADABLE) as error:
        raise ValueError("not an entry of workers") from error
    return [replace(each, report=bounded(each.report)) for each in found]


async def decode_entries(bodies: Mapping[str, bytes]) -> dict[str, list[SeenWorker] | None]:
    """By their names; None: it is not understood. Behind each one others have their turn: a process may have heard of
    so many workers that all of its entries take a third of a second.
    """
    found: dict[str, list[SeenWorker] | None] = {}
    for name, body in bodies.items():
        try:
            found[name] = decode_entry(body)
        except ValueError:
            found[name] = None
        await asyncio.sleep(0)
    return found


def alive(workers: Iterable[SeenWorker], since_ms: int) -> list[SeenWorker]:
    """Those that have not stopped, and were heard of after that time, in the order of the list."""
    found = [each for each in newest(workers) if each.seen_ms > since_ms and not each.report.has_stopped]
    return sorted(found, key=lambda each: each.order)


def sums(workers: Sequence[SeenWorker]) -> tuple[int, int, int, int]:
    """How many, their slots, those that are busy, and those that are stuck; relays are none of them."""
    reports = [each.report for each in workers if each.report.outbox is None]
    return (
        len(reports),
        sum(report.slots for report in reports),
        sum(report.busy_slots for report in reports),
        sum(report.stuck_slots for report in reports),
    )

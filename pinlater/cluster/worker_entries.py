"""Workers as they are kept: a report within its bounds, when it was heard, and its form in a key-value entry.

An entry holds the reports of many workers, one JSON object a line, compressed. Pure.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec

from pinlater.model import MAX_TIME_MS, WorkerInfo, WorkerJob, WorkerJobInfo, WorkerReport

MAX_CHARS = 100
"""Of an id, a name, a host, a version."""

MAX_JOB_CHARS = 200
"""Of a job's type and descriptor."""

MAX_QUEUES = 100
MAX_RUNNING = 100
MAX_VERSIONS = 20
ENTRY_BYTES = 131_072
"""A longer entry, before it is compressed, becomes two."""

_MAX_READ_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SeenWorker:
    """What a worker said last, and when a server heard it."""

    report: WorkerReport
    seen_ms: int

    @property
    def order(self) -> tuple[str, str, int, str]:
        """The place in the list of all."""
        return self.report.name, self.report.host, self.report.pid, self.report.id

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
        _number(report.slots),
        _number(report.busy_slots),
        _number(report.stuck_slots),
        [
            WorkerJob(job.job_descriptor[:MAX_JOB_CHARS], job.job_type[:MAX_JOB_CHARS], _number(job.running_ms))
            for job in sorted(report.running, key=lambda job: -job.running_ms)[:MAX_RUNNING]
        ],
        {name[:MAX_CHARS]: text[:MAX_CHARS] for name, text in islice(report.versions.items(), MAX_VERSIONS)},
        report.is_stopping,
        report.has_stopped,
        _number(report.silent_ms),
    )


def _number(value: int) -> int:
    return min(max(value, 0), MAX_TIME_MS)


def newest(workers: Iterable[SeenWorker]) -> dict[str, SeenWorker]:
    """By id, what each said last."""
    found: dict[str, SeenWorker] = {}
    for worker in workers:
        known = found.get(worker.report.id)
        if known is None or known.report.up_ms < worker.report.up_ms:
            found[worker.report.id] = worker
    return found


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
    except (zlib.error, msgspec.MsgspecError) as error:
        raise ValueError("not an entry of workers") from error
    return [SeenWorker(bounded(each.report), each.seen_ms) for each in found]


def alive(workers: Iterable[SeenWorker], since_ms: int) -> list[SeenWorker]:
    """Those that have not stopped, and were heard of after that time, in the order of the list."""
    found = [each for each in newest(workers).values() if each.seen_ms > since_ms and not each.report.has_stopped]
    return sorted(found, key=lambda each: each.order)


def sums(workers: Sequence[SeenWorker]) -> tuple[int, int, int, int]:
    """How many, their slots, those that are busy, and those that are stuck."""
    reports = [each.report for each in workers]
    return (
        len(reports),
        sum(report.slots for report in reports),
        sum(report.busy_slots for report in reports),
        sum(report.stuck_slots for report in reports),
    )

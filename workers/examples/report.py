"""What became of the demonstration's jobs: asked of the server, and shown as a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from thumbnails import thumbnail, thumbnail_of

from pinlater import Client, JobFilter, JobInfo, JobState
from pinlater_workers.envelope import read_envelope

JOBS_PER_CALL = 500
FAILURES_SHOWN = 1


@dataclass(frozen=True, slots=True)
class Report:
    enqueued: int
    succeeded: int
    retried: int
    failed: list[JobInfo]
    seconds: float

    @property
    def failed_pictures(self) -> set[str]:
        """The file names of the pictures whose jobs failed."""
        return {_wanted(job)[0].name for job in self.failed}


def collect(client: Client, queue: str, enqueued: int, seconds: float) -> Report:
    """Look at every job that has ended. Each attempt that failed has left a line; the last of a failed job is final."""
    succeeded = _ended(client, queue, JobState.SUCCEEDED)
    failed = _ended(client, queue, JobState.FAILED)
    retried = sum(_failures(job) > 0 for job in succeeded) + sum(_failures(job) > 1 for job in failed)
    return Report(enqueued, len(succeeded), retried, _with_bodies(client, failed), seconds)


def _ended(client: Client, queue: str, state: JobState) -> list[JobInfo]:
    pages = client.scan_pages(JobFilter(queue, state), limit=JOBS_PER_CALL)
    return [job for page in pages for job in page.jobs]


def _with_bodies(client: Client, jobs: list[JobInfo]) -> list[JobInfo]:
    """A scan leaves the bodies out; a lookup can bring them."""
    names = [job.descriptor for job in jobs]
    slices = (names[first : first + JOBS_PER_CALL] for first in range(0, len(names), JOBS_PER_CALL))
    return [job for some in slices for job in client.lookup(some, include_body=True).values()]


def _failures(job: JobInfo) -> int:
    return sum(line.startswith("attempt ") for line in job.custom_status.splitlines())


def _wanted(job: JobInfo) -> tuple[Path, int]:
    """The picture and the size that a job was about."""
    envelope = read_envelope(job.body or b"")
    assert envelope is not None
    if envelope.job == thumbnail_of.name:
        (_, name, size, _), _ = thumbnail_of.arguments(envelope)
        return Path(name), size
    (picture, size, _), _ = thumbnail.arguments(envelope)
    return picture, size


def show(report: Report, thumbnails: Path, broken_on_purpose: set[str]) -> None:
    """The table, after a failure in three lines."""
    for job in report.failed[:FAILURES_SHOWN]:
        picture, size = _wanted(job)
        why = " (broken on purpose)" if picture.name in broken_on_purpose else ""
        attempts = [line for line in job.custom_status.splitlines() if line.startswith("attempt ")]
        print(f"\nFAILED  {picture.name}{why} in size {size}")
        print(f"   why  {attempts[-1] if attempts else job.custom_status}")
        print(f"   job  {job.descriptor}")
    if len(report.failed) > FAILURES_SHOWN:
        print(f"\n... and {len(report.failed) - FAILURES_SHOWN} more that failed.")
    ended = report.succeeded + len(report.failed)
    rows = [
        ("jobs enqueued", f"{report.enqueued:,}"),
        ("succeeded", f"{report.succeeded:,}"),
        ("retried", f"{report.retried:,}"),
        ("failed", f"{len(report.failed):,}"),
        ("jobs per second", f"{ended / report.seconds:,.1f}"),
        ("thumbnails", str(thumbnails)),
    ]
    width = max(len(name) for name, _ in rows)
    print()
    for name, value in rows:
        print(f"{name:<{width}}  {value}")

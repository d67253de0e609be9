"""The queues of the reference: entries, what they hold, and quotas."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.base import ConfigEntry, Quota
from pinlater.errors import QueueNotFound
from pinlater.model import JobState, descriptor_prefix
from tests.conformance.reference_job import RefJob


class RefQueues:
    def __init__(self, shard_id: str) -> None:
        self.shard_id = shard_id
        self.queues: dict[str, dict[int, RefJob]] = {}
        self.here: dict[str, ConfigEntry] = {}
        self.came: list[ConfigEntry] = []
        """Every entry that was taken, in order."""

        self.quotas: dict[str, tuple[int, int]] = {}
        """Share and version, by queue."""

    # -- entries -----------------------------------------------------------------------------------------------------

    def put_record(self, entry: ConfigEntry) -> bool:
        before = self.here.get(entry.name)
        if before is not None and entry.version <= before.version:
            return False
        if before is not None and entry.deleted_version > before.version:
            self.queues.pop(entry.name, None)
            self.quotas.pop(entry.name, None)
        if not entry.is_deleted and "@" not in entry.name:
            self.queues.setdefault(entry.name, {})
        self.here[entry.name] = entry
        self.came.append(entry)
        return True

    def came_since(self, number: int) -> list[ConfigEntry]:
        """What is newer than the first `number` that came, each name once, where it came last."""
        last = {entry.name: place for place, entry in enumerate(self.came)}
        new = enumerate(self.came[number:], number)
        return [entry for place, entry in new if last[entry.name] == place and entry.name in self.here]

    def forget_marks(self, before: str) -> None:
        doomed = [name for name, entry in self.here.items() if entry.is_deleted and entry.version < before]
        for name in doomed:
            del self.here[name]

    # -- quotas ------------------------------------------------------------------------------------------------------

    def in_progress(self, queue: str) -> int:
        return sum(job.state is JobState.IN_PROGRESS for job in self.known(queue).values())

    def set_quota(self, queue: str, quota: int, version: int) -> Quota:
        in_progress = self.in_progress(queue)  # first, since a queue that is not there gets no quota
        if version > self.quotas.get(queue, (0, 0))[1]:
            self.quotas[queue] = quota, version
        return Quota(*self.quotas.get(queue, (0, 0)), in_progress)

    def room(self, queue: str) -> int:
        """How many jobs more may be in progress."""
        quota, _ = self.quotas.get(queue, (0, 0))
        return max(0, quota - self.in_progress(queue))

    # -- jobs --------------------------------------------------------------------------------------------------------

    def known(self, queue: str) -> dict[int, RefJob]:
        if queue not in self.queues:
            raise QueueNotFound.of(queue)
        return self.queues[queue]

    def find(self, queue: str, priority: int, job_id: int) -> RefJob | None:
        job = self.queues.get(queue, {}).get(job_id)
        return job if job is not None and job.priority == priority else None

    def descriptor(self, queue: str, job: RefJob) -> str:
        return f"{descriptor_prefix(queue, self.shard_id, job.priority)}{job.id}"

    def in_state(self, queue: str, state: JobState, priorities: Sequence[int]) -> list[RefJob]:
        return [job for job in self.known(queue).values() if job.state is state and job.priority in priorities]

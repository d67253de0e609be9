"""While a live server does not know tags or groups, whatever would store some is refused, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.errors import GroupsNotYet, NothingStored, TagsNotYet
from pinlater.model import ExtendedJob, Job, ScheduleChange
from pinlater.service import ClaimTokens, Service
from pinlater.service.settings import ServiceSettings
from pinlater.shards.keys.key_router import FixedHomes
from pinlater.shards.router import Router
from tests.conformance.served import PASSWORD, PASSWORD_HASH, QUEUE, START_MS, Served


class HomesWithOlderServer(FixedHomes):
    def check_jobs(self, jobs: Sequence[ExtendedJob | ScheduleChange]) -> None:
        for job in jobs:
            if job.tags or job.group:
                raise (TagsNotYet if job.tags else GroupsNotYet)("servers of an earlier version are running: b/1")


@pytest.mark.parametrize(("field", "value", "error"), [("tags", ["t"], TagsNotYet), ("group", "acme", GroupsNotYet)])
async def test_jobs_and_schedules_with_tags_and_groups_wait_for_older_servers(
    tmp_path: Path, field: str, value: object, error: type[NothingStored]
) -> None:
    given: dict[str, Any] = {field: value}
    served = Served([SqliteShard(str(tmp_path / "jobs.db"), "1")])
    homes = HomesWithOlderServer(served.members)
    settings = ServiceSettings(admin_password_hash=PASSWORD_HASH)
    served.api = Service(Router(served.members, homes), served.clock, ClaimTokens("host", 1, START_MS), settings)
    await served.open()
    try:
        with pytest.raises(error) as raised:
            await served.enqueue(Job(b"plain"), ExtendedJob(b"", **given))
        assert (raised.value.reason, raised.value.retryable) == (error.reason, True)
        change = ScheduleChange(name="nightly", queue=QUEUE, every_ms=60_000, **given)
        with pytest.raises(error):
            await served.api.update_schedule(change, PASSWORD)
        stored = await served.enqueue(Job(b"plain"), ExtendedJob(b"", expires_at_ms=START_MS + 9_000_000))
        assert len(stored) == 2
        setattr(change, field, None)
        assert (await served.api.update_schedule(change, PASSWORD)).is_changed
    finally:
        await served.close()

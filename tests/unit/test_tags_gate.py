"""While a live server does not know tags, whatever would store some is refused, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.errors import TagsNotYet
from pinlater.model import ExtendedJob, Job, ScheduleChange
from pinlater.service import ClaimTokens, Service
from pinlater.service.settings import ServiceSettings
from pinlater.shards.keys.key_router import FixedHomes
from pinlater.shards.router import Router
from tests.conformance.served import PASSWORD, PASSWORD_HASH, QUEUE, START_MS, Served


class HomesWithOlderServer(FixedHomes):
    def check_tags(self) -> None:
        raise TagsNotYet("servers of an earlier version are running: b/1")


async def test_jobs_and_schedules_with_tags_wait_for_older_servers(tmp_path: Path) -> None:
    served = Served([SqliteShard(str(tmp_path / "jobs.db"), "1")])
    homes = HomesWithOlderServer(served.members)
    settings = ServiceSettings(admin_password_hash=PASSWORD_HASH)
    served.api = Service(Router(served.members, homes), served.clock, ClaimTokens("host", 1, START_MS), settings)
    await served.open()
    try:
        with pytest.raises(TagsNotYet) as raised:
            await served.enqueue(Job(b"plain"), ExtendedJob(b"", tags=["t"]))
        assert (raised.value.reason, raised.value.retryable) == ("TAGS_NOT_YET", True)
        change = ScheduleChange(name="nightly", queue=QUEUE, every_ms=60_000, tags=["t"])
        with pytest.raises(TagsNotYet):
            await served.api.update_schedule(change, PASSWORD)
        stored = await served.enqueue(Job(b"plain"), ExtendedJob(b"", expires_at_ms=START_MS + 9_000_000))
        assert len(stored) == 2
        change.tags = None
        assert (await served.api.update_schedule(change, PASSWORD)).is_changed
    finally:
        await served.close()

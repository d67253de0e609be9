"""While a live server does not know successors, jobs that may become some are refused, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.errors import ReplaceRulesNotYet
from pinlater.model import ExtendedJob, JobState, OnDuplicate, ReplaceRunning
from pinlater.service import ClaimTokens, Service
from pinlater.service.settings import ServiceSettings
from pinlater.shards.keys.key_router import FixedHomes
from pinlater.shards.router import Router
from tests.conformance.served import PASSWORD_HASH, START_MS, Served


class HomesWithOlderServer(FixedHomes):
    def check_replace_rules(self) -> None:
        raise ReplaceRulesNotYet("servers of an earlier version are running: b/1")


async def test_jobs_that_replace_by_rules_of_their_own_wait_for_older_servers(tmp_path: Path) -> None:
    served = Served([SqliteShard(str(tmp_path / "jobs.db"), "1")])
    homes = HomesWithOlderServer(served.members)
    settings = ServiceSettings(admin_password_hash=PASSWORD_HASH)
    served.api = Service(Router(served.members, homes), served.clock, ClaimTokens("host", 1, START_MS), settings)
    await served.open()
    try:
        job = ExtendedJob(b"", dedupe_key="a", on_duplicate=OnDuplicate.REPLACE)
        for newer in (replace(job, replace_running=ReplaceRunning.ENQUEUE), replace(job, replace_within_ms=1)):
            with pytest.raises(ReplaceRulesNotYet) as raised:
                await served.enqueue(newer)
            assert (raised.value.reason, raised.value.retryable) == ("REPLACE_RULES_NOT_YET", True)
        assert await served.count(JobState.PENDING) == 0
        assert len(await served.enqueue(job)) == 1
    finally:
        await served.close()

"""The maximum of jobs that wait in each group."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.errors import EnqueueRejected
from pinlater.model import ExtendedJob
from pinlater.queues import group_pending_counts
from pinlater.queues.group_pending_counts import GroupPendingCounts
from tests.unit.test_limits_pause import change, stand


def jobs(group: str, count: int) -> list[ExtendedJob]:
    return [ExtendedJob(b"x", group=group)] * count


async def test_a_full_group_refuses_what_passes_its_bound_and_others_go_on() -> None:
    async with stand(2) as at:
        await change(at, group_max_pending="5")
        await at.service.enqueue("mail", jobs("acme", 4))
        with pytest.raises(EnqueueRejected, match="group 'acme' of queue 'mail' has about 4 jobs that wait") as refused:
            await at.service.enqueue("mail", [*jobs("betty", 1), *jobs("acme", 2)])
        assert refused.value.reason == "GROUP_FULL"
        assert refused.value.retry_after_ms is not None
        await at.service.enqueue("mail", [*jobs("betty", 5), *jobs("acme", 1)])
        await at.service.enqueue("mail", jobs("", 100))


async def test_jobs_that_were_put_off_do_not_count() -> None:
    async with stand(2) as at:
        await change(at, group_max_pending="5")
        later_ms = at.clock.now_ms() + 60_000
        await at.service.enqueue("mail", [ExtendedJob(b"x", group="acme", run_after_ms=later_ms)] * 6)
        await at.service.enqueue("mail", jobs("acme", 5))
        with pytest.raises(EnqueueRejected, match="about 5 jobs that wait"):
            await at.service.enqueue("mail", jobs("acme", 1))


async def test_what_left_its_group_is_known_by_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_pending_counts, "BUSY_SHARE", 1.0)
    async with stand(2) as at:
        await change(at, group_max_pending="5")
        await at.service.enqueue("mail", jobs("acme", 5))
        await at.service.count_pending()
        with pytest.raises(EnqueueRejected):
            await at.service.enqueue("mail", jobs("acme", 1))
        assert len(await at.dequeue(5)) == 5
        await at.service.count_pending()
        await at.service.enqueue("mail", jobs("acme", 5))


async def test_what_others_enqueue_is_known_by_counting() -> None:
    async with stand(2) as at:
        await change(at, group_max_pending="5")
        await at.service.enqueue("mail", jobs("acme", 1))
        other = GroupPendingCounts(at.members, at.service.queues, at.clock, (1, 2, 3))
        other.check("mail", {"acme": 5}, 5)
        other.added("mail", {"acme": 1})
        await at.service.enqueue("mail", jobs("acme", 4))
        await other.poll()
        with pytest.raises(EnqueueRejected):
            other.check("mail", {"acme": 1}, 5)
        other.check("mail", {"acme": 1}, 6)


async def test_groups_of_a_queue_without_a_bound_are_counted_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_pending_counts, "BUSY_SHARE", 1.0)
    async with stand(2) as at:
        await change(at, group_max_pending="5")
        await at.service.enqueue("mail", jobs("acme", 5))
        await at.service.count_pending()
        assert at.stores[0].begun["count_groups"] == 1
        await change(at, group_max_pending="none")
        await at.service.count_pending()
        await change(at, group_max_pending="5")
        await at.service.enqueue("mail", jobs("acme", 5))
        assert at.stores[0].begun["count_groups"] == 1


async def test_jobs_may_come_while_groups_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_pending_counts, "COUNTED_AT_ONCE", 1)
    monkeypatch.setattr(group_pending_counts, "MOST_KEPT", 2)
    async with stand(2) as at:
        await change(at, group_max_pending="5")
        counts = GroupPendingCounts(at.members, at.service.queues, at.clock, (1, 2, 3))
        counts.added("mail", {"acme": 1, "betty": 1})
        polling = asyncio.create_task(counts.poll())
        await asyncio.sleep(0)
        counts.added("mail", {"carl": 1, "dora": 1})  # the others are kept no more
        counts.added("news", {"acme": 1})
        await polling

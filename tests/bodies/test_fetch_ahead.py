"""Bodies that are fetched ahead: kept within their bound, and handed out without asking the tier again."""

from __future__ import annotations

from pathlib import Path

from pinlater.backends.base import ClaimRequest
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.bodies.fetch_ahead import LATELY_MS, FetchAhead
from pinlater.bodies.tiers import FetchedBodies
from pinlater.model import Job
from pinlater.model.body_reference import BodyReference, BodyRule
from pinlater.shards.handle import ShardHandle
from pinlater.shards.shard_set import ShardSet
from tests.conformance.chain import tiered
from tests.queues import make_queue


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.ms = 1_790_000_000_000

    def now_ms(self) -> int:
        return self.ms


def request(number: int) -> ClaimRequest:
    return ClaimRequest(f"host:1:1:{number}:worker", 1, (1,), 60_000, 2**20)


async def test_a_body_that_is_due_soon_needs_its_tier_no_more(tmp_path: Path) -> None:
    clock = Hand()
    shard = tiered(SqliteShard("sqlite://", "1"), tmp_path / "tier")
    await shard.tiers.open()
    members = ShardSet([ShardHandle(shard, clock)], clock)
    await members.open()
    try:
        await make_queue(shard, "mail", clock.ms)
        bodies = [b"at once", b"soon", b"later"]
        times = [clock.ms, clock.ms + 1_500, clock.ms + 60_000]
        jobs = [Job(body, run_after_ms=time_ms) for body, time_ms in zip(bodies, times, strict=True)]
        await shard.enqueue("mail", jobs, clock.ms)
        ahead = FetchAhead(shard.tiers, members, clock, (1,), 2_000)
        await ahead.look()
        assert shard.dequeued_from == {}
        await shard.claim("mail", [request(1)], clock.ms)
        shard.dequeued_from["mail"] = clock.ms  # the wrapper goes by a clock of its own here
        await ahead.look()
        for file in (tmp_path / "tier").rglob("*-*"):
            if file.is_file():
                file.rename(file.with_name(f".{file.name}"))
        ((job,),) = await shard.claim("mail", [request(2)], clock.ms + 1_500)
        assert job.body == b"soon"
        clock.ms += LATELY_MS
        await ahead.look()
        assert shard.dequeued_from == {}
    finally:
        await members.close()
        await shard.tiers.close()


def test_what_is_fetched_ahead_stays_within_its_bound_and_comes_once() -> None:
    fetched = FetchedBodies(1_000)
    references = [BodyReference.new("files", "mail", bytes(400), 1, BodyRule.SIZE) for _ in range(3)]
    for reference in references:
        fetched.put(reference, bytes(400))
        fetched.put(reference, bytes(400))
    assert [reference in fetched for reference in references] == [False, True, True]
    fetched.put(BodyReference.new("files", "mail", bytes(1_001), 1, BodyRule.SIZE), bytes(1_001))
    assert [fetched.take(reference) for reference in references] == [None, bytes(400), bytes(400)]
    assert fetched.take(references[1]) is None

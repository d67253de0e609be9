"""Several processes and servers: whichever is asked finds the owner of an overflow shard, and one always takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pinlater.errors import EnqueueRejected, NoHealthyShards, ShardConnectionFailed
from pinlater.model import Ack, CancelOutcome, Checkpoint, DequeueRequest, Job, JobState
from pinlater.overflow import overflow, ownership
from tests.unit.overflow_stand import ME, MIB, Process, process

pytestmark = pytest.mark.slow


@asynccontextmanager
async def siblings(tmp_path: Path, bound: int = MIB) -> AsyncIterator[tuple[Process, Process]]:
    """Two processes of one server; the first owns the overflow shard."""
    shard = str(tmp_path / "shard.db")
    async with (
        process(tmp_path / "data", shard=shard, bound=bound) as owner,
        process(tmp_path / "data", shard=shard, bound=bound) as other,
    ):
        assert [each.overflow.is_owner for each in (owner, other)] == [True, False]
        yield owner, other


@asynccontextmanager
async def servers(tmp_path: Path) -> AsyncIterator[tuple[Process, Process]]:
    """Two servers, each with an overflow shard of its own and a shard that both have. The second knows the first."""
    shard = str(tmp_path / "shard.db")
    known: dict[str, str] = {}
    async with process(tmp_path / "a", shard=shard) as first:
        known[first.overflow.id] = first.overflow.describe()["overflow_address"]
        async with process(tmp_path / "b", shard=shard, addresses=known) as second:
            yield first, second


def lose_shards(*processes: Process) -> None:
    for each in processes:
        each.lose_shards()


# -- one server --------------------------------------------------------------------------------------------------------


async def test_a_sibling_keeps_jobs_at_the_owner_and_hands_them_out(tmp_path: Path) -> None:
    async with siblings(tmp_path) as (owner, other):
        lose_shards(owner, other)
        old = await other.api.enqueue("mail", [Job(b"a"), Job(b"b", attempts_allowed=1)], context=ME)
        assert list(await owner.api.lookup(old)) == old
        (first, second) = await other.dequeue()
        assert first.claim_descriptor.endswith(":me")
        await other.api.checkpoint("mail", [Checkpoint(first.descriptor)], context=ME)
        await other.api.ack("mail", [], [Ack(first.descriptor, claim_descriptor=first.claim_descriptor)], context=ME)
        await other.api.requeue([second])
        found = await other.api.lookup(old, include_body=True)
        assert [(each.state, each.attempts_remaining, each.body) for each in found.values()] == [
            (JobState.PENDING, 1, b"a"),
            (JobState.PENDING, 1, b"b"),
        ]
        assert await other.api.cancel("mail", old[:1]) == {old[0]: CancelOutcome.CANCELLED}
        assert other.metrics.counters["overflow_jobs_taken", "mail"] == 0
        assert owner.metrics.counters["overflow_jobs_taken", "mail"] == 2


async def test_a_process_that_cannot_open_the_file_leaves_it_to_a_sibling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever keeps it from that, a fault of the code too."""
    own, tries = overflow.own, []

    async def fails_at_first(*args: Any) -> Any:
        tries.append(args)
        if len(tries) == 1:
            raise ZeroDivisionError("unforeseen")
        return await own(*args)

    monkeypatch.setattr(overflow, "own", fails_at_first)
    shard = str(tmp_path / "shard.db")
    with capture_logs() as logs:
        async with process(tmp_path / "data", shard=shard) as first, process(tmp_path / "data", shard=shard) as second:
            assert [each.overflow.is_owner for each in (first, second)] == [False, True]
    assert [each["error"] for each in logs if each["event"] == "overflow_not_opened"] == ["unforeseen"]


async def test_a_long_poll_of_a_sibling_gets_what_comes(tmp_path: Path) -> None:
    async with siblings(tmp_path) as (owner, other):
        lose_shards(owner, other)
        poll = asyncio.ensure_future(other.dequeue(wait_ms=20_000))
        while owner.kept.service.long_polls.poller("mail") is None:
            await asyncio.sleep(0)
        await owner.api.enqueue("mail", [Job(b"x")], context=ME)
        assert [job.body for job in await asyncio.wait_for(poll, 60)] == [b"x"]


async def test_what_moved_is_found_by_a_sibling(tmp_path: Path) -> None:
    async with siblings(tmp_path) as (owner, other):
        lose_shards(owner, other)
        (old,) = await other.api.enqueue("mail", [Job(b"x")], context=ME)
        await owner.find_shards()
        await owner.overflow.move()
        await other.find_shards()
        (job,) = await other.dequeue()
        await other.api.ack("mail", [Ack(job.descriptor)], [])
        info = (await other.api.lookup([old], include_body=True))[old]
        assert (info.state, info.body, info.moved_to) == (JobState.SUCCEEDED, b"x", job.descriptor)


async def test_a_sibling_is_told_that_there_is_no_room(tmp_path: Path) -> None:
    async with siblings(tmp_path, bound=300_000) as (owner, other):
        lose_shards(owner, other)
        with pytest.raises(EnqueueRejected, match="allowed: 300000"):
            await other.api.enqueue("mail", [Job(bytes(300_000))], context=ME)


async def test_when_the_owner_is_gone_a_sibling_takes_over_at_the_first_call(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        shard = str(tmp_path / "shard.db")
        gone = AsyncExitStack()
        owner = await gone.enter_async_context(process(tmp_path / "data", shard=shard))
        other = await stack.enter_async_context(process(tmp_path / "data", shard=shard))
        lose_shards(owner, other)
        old = await other.api.enqueue("mail", [Job(b"x")], context=ME)
        stale = ownership.read_address(tmp_path / "data")
        await gone.aclose()
        ownership.publish_address(tmp_path / "data", stale or "")
        assert list(await other.api.lookup(old)) == old
        assert other.overflow.is_owner
        assert await other.api.enqueue("mail", [Job(b"y")], context=ME)
        assert len(await other.dequeue()) == 2


async def test_a_process_that_leaves_takes_nothing_over(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        gone = AsyncExitStack()
        await gone.enter_async_context(process(tmp_path / "data"))
        other = await stack.enter_async_context(process(tmp_path / "data"))
        other.api.start_draining()
        await gone.aclose()
        await other.overflow.look()
        assert not other.overflow.is_owner
        other.lose_shards()
        with pytest.raises(NoHealthyShards):
            await other.api.enqueue("mail", [Job(b"")], context=ME)


# -- other servers -----------------------------------------------------------------------------------------------------


async def test_another_server_finds_the_owner(tmp_path: Path) -> None:
    async with servers(tmp_path) as (first, second):
        lose_shards(first, second)
        old = await first.api.enqueue("mail", [Job(b"a"), Job(b"b")], context=ME)
        (own,) = await second.api.enqueue("mail", [Job(b"c")], context=ME)
        found = await second.api.lookup([*old, own], include_body=True)
        assert {name: each.body for name, each in found.items()} == {old[0]: b"a", old[1]: b"b", own: b"c"}
        assert [job.body for job in await second.dequeue()] == [b"c"], "each server hands out its own"
        (job, rest) = await first.dequeue()
        await second.api.checkpoint("mail", [Checkpoint(job.descriptor, prepend_status="far")], context=ME)
        await second.api.ack("mail", [Ack(job.descriptor), Ack(own)], [])
        await first.api.requeue([rest])
        assert await second.api.cancel("mail", [old[1], own]) == {
            old[1]: CancelOutcome.CANCELLED,
            own: CancelOutcome.ENDED,
        }
        info = (await first.api.lookup([old[0]]))[old[0]]
        assert (info.state, info.custom_status) == (JobState.SUCCEEDED, "far")


async def test_riding_acks_reach_another_server(tmp_path: Path) -> None:
    async with servers(tmp_path) as (first, second):
        lose_shards(first)
        (old,) = await first.api.enqueue("mail", [Job(b"a")], context=ME)
        (job,) = await first.dequeue()
        request = DequeueRequest("mail", 1, failed=[Ack(job.descriptor, permanent=True)], wait_ms=1)
        assert await second.api.dequeue(request, context=ME) == []
        assert (await first.api.lookup([old]))[old].state is JobState.FAILED


async def test_a_server_that_is_gone_is_an_error_that_names_it_after_the_others(tmp_path: Path) -> None:
    async with process(tmp_path / "b", addresses={"o0123456789": "127.0.0.1:1"}) as it:
        it.lose_shards()
        (own,) = await it.api.enqueue("mail", [Job(b"")], context=ME)
        (job,) = await it.dequeue()
        gone = "mail:so0123456789:p1:1790000000000000"
        with pytest.raises(ShardConnectionFailed, match="server 0123456789 cannot be reached"):
            await it.api.ack("mail", [Ack(job.descriptor), Ack(gone)], [])
        assert (await it.api.lookup([own]))[own].state is JobState.SUCCEEDED
        with pytest.raises(ShardConnectionFailed, match="server 0123456789"):
            await it.api.lookup([own, gone])


async def test_an_address_that_another_owner_has_now_finds_nothing_wrong(tmp_path: Path) -> None:
    """A port can come again: jobs of the server that had it must not count as not found there."""
    known: dict[str, str] = {}
    async with process(tmp_path / "a") as first, process(tmp_path / "b", addresses=known) as second:
        known["o0123456789"] = first.overflow.describe()["overflow_address"]
        await second.overflow.look()
        for _ in range(10):
            with pytest.raises(ShardConnectionFailed) as error:
                await second.api.lookup(["mail:so0123456789:p1:1790000000000000"])
            if "no time was left" not in str(error.value):  # a busy machine did not connect in time
                break
        assert f"here is overflow shard {first.overflow.id}" in str(error.value)

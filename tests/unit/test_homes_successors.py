"""Successors of running jobs while the homes of their keys change: they are stored where that runs, or not yet."""

from __future__ import annotations

from typing import Any

import pytest

from pinlater.backends.extended import KeyHolder, OfferOutcome
from pinlater.errors import HomeMoving, ShardConnectionFailed
from pinlater.model import ExtendedJob, KeyRef, OnDuplicate, ReplaceRunning
from tests.unit.test_homes_keyed import (
    KEYS,
    QUEUE,
    claim,
    drain,
    enqueue,
    finish,
    in_order,
    named,
    shard_of,
    two_servers,
    upkeep,
)

FOLLOW: dict[str, Any] = {"on_duplicate": OnDuplicate.REPLACE, "replace_running": ReplaceRunning.ENQUEUE}


async def test_a_former_home_takes_the_successor_of_what_runs_there() -> None:
    async with two_servers(3, begun_with=[1, 2]) as at:
        one, two = at.servers
        running = await enqueue(one, named())
        jobs = await claim(at, one)
        await at.look_at_homes(2)
        newer = await enqueue(two, named(**FOLLOW))
        assert {each.outcome for each in newer} == {OfferOutcome.STORED}
        assert [shard_of(each) for each in newer] == [shard_of(each) for each in running]
        found = await one.router.find_keys(QUEUE, [KeyRef(key) for key in KEYS])
        pairs = zip(running, newer, strict=True)
        assert found == [KeyHolder(old.descriptor, new.descriptor) for old, new in pairs]
        await finish(at, one, jobs)
        assert {job.descriptor for job in await claim(at, one)} == {each.descriptor for each in newer}


async def test_what_runs_on_a_shard_that_is_emptied_gets_no_successor() -> None:
    async with two_servers(2) as at:
        one, two = at.servers
        await enqueue(one, named())
        jobs = [job for job in await claim(at, one) if ":s2:" in job.descriptor]
        await drain(at, "2")
        names = [job.body.decode() for job in jobs]
        with pytest.raises(HomeMoving, match="runs on shard 2"):
            await enqueue(two, named(names, on_duplicate=OnDuplicate.REPLACE, replace_running=ReplaceRunning.CANCEL))
        found = await one.router.find_keys(QUEUE, [KeyRef(name) for name in names])
        assert found == [KeyHolder(job.descriptor) for job in jobs]
        await finish(at, one, jobs)
        newer = await enqueue(two, named(names, **FOLLOW))
        assert {(each.outcome, shard_of(each)) for each in newer} == {(OfferOutcome.STORED, "1")}


async def test_a_successor_goes_to_the_part_of_its_chain_in_which_the_running_job_is() -> None:
    async with two_servers(3, begun_with=[1, 2]) as at:
        server = at.servers[0]
        running = await enqueue(server, in_order(KEYS, 1))
        jobs = await claim(at, server)
        await at.look_at_homes(2)
        newer = await enqueue(server, in_order(KEYS, 1, **FOLLOW))
        assert [shard_of(each) for each in newer] == [shard_of(each) for each in running]
        await finish(at, server, jobs)
        jobs = await claim(at, server)
        assert {job.descriptor for job in jobs} == {each.descriptor for each in newer}
        await finish(at, server, jobs)
        assert len(await enqueue(server, in_order(KEYS, 1, **FOLLOW))) == len(await claim(at, server)) == len(KEYS)


async def test_a_successor_overtakes_no_later_job_of_its_chain() -> None:
    """Such a job waits at the new home for those at the former one, which takes jobs again."""
    async with two_servers(2) as at:
        server = at.servers[0]
        first = await enqueue(server, in_order(KEYS[:10], 1))
        (key, running) = next((k, f) for k, f in zip(KEYS, first, strict=False) if shard_of(f) == "2")
        jobs = await claim(at, server)
        await finish(at, server, [job for job in jobs if job.descriptor != running.descriptor])
        await drain(at, "2")
        (later,) = await enqueue(server, in_order([key], 2))
        assert shard_of(later) == "1"
        await server.queues.override_shard("2", False, "me")
        await at.look_at_homes(3)
        newest = ExtendedJob(b"newest", serialize_key=key, dedupe_key="1", **FOLLOW)
        with pytest.raises((HomeMoving, ShardConnectionFailed), match="runs on shard 2"):
            await enqueue(server, [newest])
        await finish(at, server, [job for job in jobs if job.descriptor == running.descriptor])
        await upkeep(at, ("barriers",))
        (job,) = await claim(at, server)
        assert job.descriptor == later.descriptor
        (stored,) = await enqueue(server, [newest])
        await finish(at, server, [job])
        await upkeep(at, ("barriers",))
        (job,) = await claim(at, server)
        assert (job.descriptor, job.body) == (stored.descriptor, b"newest")

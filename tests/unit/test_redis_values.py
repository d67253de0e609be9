"""A value beyond what Redis takes: it is refused before it is sent, and no other call is lost with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import redis

from pinlater.backends.redis import RedisShard
from pinlater.backends.store_transfer import ExportBlock, ExportedJob
from pinlater.errors import BodyTooLarge
from pinlater.model import MAX_STATUS_CHARS, Job
from tests.conformance.subject import START_MS
from tests.queues import make_queue
from tests.stores.places import Places

BULK = 2**20
"""The least that Redis may be set to."""

FITS = BULK - 32 * 1024


@pytest.fixture
def shard(redis_places: Places, runner: asyncio.Runner) -> Iterator[RedisShard]:
    url = redis_places.fresh()
    made = RedisShard(url, "1")
    with redis.Redis.from_url(url, decode_responses=True) as admin:
        before = admin.config_get("proto-max-bulk-len")
        admin.config_set("proto-max-bulk-len", BULK)
        runner.run(made.open())
        runner.run(make_queue(made, "mail", START_MS))
        yield made
        runner.run(made.close())
        admin.config_set(*next(iter(before.items())))


async def test_a_body_beyond_what_redis_takes_loses_no_other_call(shard: RedisShard) -> None:
    beside, refused, behind = await asyncio.gather(
        shard.enqueue("mail", [Job(b"beside")], START_MS),
        shard.enqueue("mail", [Job(bytes(BULK + 1))], START_MS),
        shard.enqueue("mail", [Job(b"behind")], START_MS),
        return_exceptions=True,
    )
    assert isinstance(refused, BodyTooLarge)
    assert f"proto-max-bulk-len is {BULK}: a body of {FITS} bytes fits" in refused.message
    assert isinstance(beside, list)
    assert isinstance(behind, list)
    longest = "\U0001f600" * MAX_STATUS_CHARS
    assert len(await shard.enqueue("mail", [Job(bytes(FITS), custom_status=longest)], START_MS)) == 1


async def test_of_commands_that_go_together_none_is_sent_where_one_is_refused(shard: RedisShard) -> None:
    """Else a transaction would stay open, and take all commands behind it."""
    await shard.enqueue("mail", [Job(b"there")], START_MS)
    transfer = shard.transfer()
    (block,) = [each async for each in transfer.blocks(START_MS) if each.kind == "job"]
    job = ExportedJob(*block.rows[0])._replace(id=7, body=bytes(BULK + 1))
    with pytest.raises(BodyTooLarge):
        await transfer.load(ExportBlock("job", [job]), b"{}", START_MS)
    assert await transfer.job_count() == 1
    assert await shard.count_ready("mail", [1], 10, START_MS) == [1]

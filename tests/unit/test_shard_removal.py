"""What keeps a shard in the configuration of a server that runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pinlater.backends.base import AckRequest, ClaimRequest, ConfigEntry
from pinlater.backends.extended import Offer
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.cli.serve import refuse_undrained
from pinlater.config import StoreConfig, load
from pinlater.model import ExtendedJob, new_version
from pinlater.server.supervisor import ServeRefused
from pinlater.shards.keys.homes_record import HOMES, HomesRecord
from tests.queues import make_queue

CONFIG = load({}, {}).config


async def test_a_shard_goes_when_no_job_and_no_key_needs_it(tmp_path: Path) -> None:
    store = StoreConfig("2", f"sqlite:///{tmp_path}/two.db", dequeue_only=True)
    now_ms = int(time.time() * 1000)
    shard = SqliteShard(f"{tmp_path}/two.db", "2")
    await shard.open()
    await make_queue(shard, "mail", now_ms)
    homes = new_version(now_ms)
    await shard.put_config([ConfigEntry(HOMES, homes, HomesRecord(("1", "2")).text())], now_ms)
    with pytest.raises(ServeRefused, match="it is where keys live"):
        await refuse_undrained(store, CONFIG)
    record = HomesRecord(("1",), (("1", "2"),)).text()
    await shard.put_config([ConfigEntry(HOMES, new_version(now_ms, homes), record)], now_ms)
    await refuse_undrained(store, CONFIG)

    await shard.enqueue_extended("mail", [Offer(ExtendedJob(b"", dedupe_key="k", dedupe_for_ms=3_600_000))], now_ms)
    with pytest.raises(ServeRefused, match="it holds 1 jobs"):
        await refuse_undrained(store, CONFIG)
    ((job,),) = await shard.claim("mail", [ClaimRequest("w:1:1:1:me", 1, (1,), 60_000, 1_000)], now_ms)
    ref = int(job.descriptor.rpartition(":")[2])
    await shard.ack("mail", [AckRequest(1, ref, succeeded=True, claim_descriptor=job.claim_descriptor)], now_ms)
    with pytest.raises(ServeRefused, match="knows dedupe keys and send ids whose time has not passed"):
        await refuse_undrained(store, CONFIG)
    await shard.drop_windows(await shard.list_windows(10, "", now_ms))
    await refuse_undrained(store, CONFIG)
    await shard.close()

"""Whether a server process calls itself able to serve, and what it says of itself in numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from pinlater.app import ServerProcess
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.clock import SystemClock
from pinlater.config import from_plain, load, to_plain
from pinlater.model import Job
from tests.queues import make_queue

NOBODY = "redis://127.0.0.1:1/0"


def app_with(tmp_path: Path, **flags: Any) -> ServerProcess:
    config = load({"data": str(tmp_path), "store": [f"1={NOBODY}"], **flags}, {}).config
    return ServerProcess(from_plain(to_plain(config)), {}, "127.0.0.1:9010")


async def test_without_a_shard_a_server_is_not_ready_and_says_why(tmp_path: Path) -> None:
    app = app_with(tmp_path)
    await app.open()
    try:
        (reason,) = await app.report("readiness")
        assert "shard 1 cannot be used now" in reason
        assert (("shard_in", "1"), [0.0]) in await app.report("metrics")
        status = await app.report("status")
        assert [shard["state"] for shard in status["shards"]] == ["unopened"]
    finally:
        await app.drain(None, 1.0)
        await app.close()


async def test_a_server_whose_own_disk_takes_jobs_is_ready_without_a_shard(tmp_path: Path) -> None:
    app = app_with(tmp_path, overflow="1MiB")
    await app.open()
    try:
        assert await app.report("readiness") == []
    finally:
        await app.drain(None, 1.0)
        await app.close()


async def test_jobs_from_times_to_come_are_a_warning_at_the_start(tmp_path: Path) -> None:
    hour_ahead_ms = SystemClock().now_ms() + 3_600_000
    store = SqliteShard(f"sqlite:///{tmp_path}/jobs.db", "1")
    await store.open()
    await make_queue(store, "mail", hour_ahead_ms)
    for ahead_ms, warns in ((-3_600_000, False), (0, True)):
        await store.enqueue("mail", [Job(b"x")], hour_ahead_ms + ahead_ms)
        with capture_logs() as logs:
            app = app_with(tmp_path, store=[f"1=sqlite:///{tmp_path}/jobs.db"])
            await app.open()
            await app.drain(None, 1.0)
            await app.close()
        assert [log["shard"] for log in logs if log["event"] == "store_is_ahead"] == ["1"] * warns
    await store.close()


async def test_a_server_that_drains_is_not_ready(tmp_path: Path) -> None:
    app = app_with(tmp_path, overflow="1MiB")
    await app.open()
    await app.drain(None, 1.0)
    assert await app.report("readiness") == ["draining"]
    await app.close()

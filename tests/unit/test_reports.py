"""Whether a server process calls itself able to serve, and what it says of itself in numbers."""

from __future__ import annotations

from pathlib import Path

from pinlater.app import App
from pinlater.config import from_plain, load, to_plain

NOBODY = "redis://127.0.0.1:1/0"


def app_with(tmp_path: Path, **flags: str) -> App:
    config = load({"data": str(tmp_path), "store": [f"1={NOBODY}"], **flags}, {}).config
    return App(from_plain(to_plain(config)), {}, "127.0.0.1:9010")


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


async def test_a_server_that_drains_is_not_ready(tmp_path: Path) -> None:
    app = app_with(tmp_path, overflow="1MiB")
    await app.open()
    await app.drain(None, 1.0)
    assert await app.report("readiness") == ["draining"]
    await app.close()

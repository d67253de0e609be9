"""The list of shards of a server that runs: the file changes, and what was asked for happens, or is refused."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from pinlater.data_folder.identity import known_stores
from pinlater.model import Ack
from pinlater.wire.convert import acks_to_wire
from tests.faults.proxy import Proxy
from tests.server.running import Plain, RunningServer, lives, running
from tests.server.test_serve import command, last_line
from tests.stores.places import Places
from tests.stores.process import StoreServer

DATA = "pinlater-data"


def write(folder: Path, *stores: str, more: str = "") -> list[str]:
    """A configuration with these tables of stores, put in place at once; the flags that name it."""
    tables = "".join(f"[[store]]\n{store}\n" for store in stores)
    (folder / "new.toml").write_text(f"{more}\n{tables}")
    os.replace(folder / "new.toml", folder / "server.toml")
    return ["--config", "server.toml"]


def table(shard_id: str, url: str, *, dequeue_only: bool = False) -> str:
    return f'id = "{shard_id}"\nurl = "{url}"' + ("\ndequeue-only = true" if dequeue_only else "")


async def told(server: RunningServer, outcome: str, after: int, **fields: object) -> dict[str, object]:
    return await asyncio.to_thread(server.wait_for, outcome, after=after, **fields)


async def spread(connection: Plain, jobs: int = 40) -> set[str]:
    """The shards that took some new jobs."""
    taken = [await connection.enqueue("mail", b"x") for _ in range(jobs)]
    return {descriptor.split(":")[1] for (descriptor,) in taken}


async def test_a_shard_is_added_drained_and_removed_by_its_file_alone(tmp_path: Path, redis_places: Places) -> None:
    one, two = table("1", redis_places.fresh()), redis_places.fresh()
    with running(tmp_path, *write(tmp_path, one)) as server:
        connection = await Plain.to(server.port)
        await connection.create_queue("mail")
        assert await spread(connection) == {"s1"}

        seen = len(server.events)
        write(tmp_path, one, table("2", two))
        assert (await told(server, "configuration_changed", seen))["shards_added"] == ["2"]
        await told(server, "rolled", seen)
        assert await spread(connection) == {"s1", "s2"}
        assert set(known_stores(tmp_path / DATA)) == {"1", "2"}

        seen = len(server.events)
        write(tmp_path, one)
        refused = await told(server, "roll_refused", seen)
        assert "shard 2 cannot be removed now: it holds" in str(refused["reason"])
        assert "pinlater shard drain 2" in str(refused["reason"])
        assert await spread(connection) == {"s1", "s2"}

        seen = len(server.events)
        write(tmp_path, one, table("2", two, dequeue_only=True))
        assert (await told(server, "configuration_changed", seen))["dequeue_only"] == ["2"]
        await told(server, "rolled", seen)
        assert await spread(connection) == {"s1"}

        while jobs := await connection.dequeue("mail", 100):
            done = acks_to_wire("mail", [Ack(each) for each in jobs], [])
            await connection.call("ackDequeuedJobs", request=done)
        seen = len(server.events)
        write(tmp_path, one)
        assert (await told(server, "configuration_changed", seen))["shards_removed"] == ["2"]
        await told(server, "rolled", seen)
        assert set(known_stores(tmp_path / DATA)) == {"1"}
        assert await spread(connection) == {"s1"}
        await connection.close()


async def test_an_empty_shard_that_takes_new_jobs_is_not_removed(tmp_path: Path, redis_places: Places) -> None:
    one, two = table("1", redis_places.fresh()), table("2", redis_places.fresh())
    with running(tmp_path, *write(tmp_path, one, two)) as server:
        workers = server.wait_for("ready")["workers"]
        seen = len(server.events)
        write(tmp_path, one)
        refused = await told(server, "roll_refused", seen)
        assert "it still takes new jobs" in str(refused["reason"])
        assert all(lives(pid) for pid in workers)


async def test_a_lost_shard_is_removed_only_by_forgetting_it(
    tmp_path: Path, sqlite_places: Places, durable_redis_server: StoreServer
) -> None:
    one = table("1", sqlite_places.fresh())
    both = write(tmp_path, one, table("2", durable_redis_server.url(), dequeue_only=True))
    with running(tmp_path, *both) as server:
        server.wait_for("ready")
        durable_redis_server.terminate()
        seen = len(server.events)
        write(tmp_path, one)
        refused = await told(server, "roll_refused", seen)
        assert "--forget-shard 2" in str(refused["reason"])
    with running(tmp_path, *both) as server:
        assert "--forget-shard 2" in server.wait_for("shard_not_configured", shard="2")["hint"]
    with running(tmp_path, *both, "--forget-shard", "2") as server:
        server.wait_for("ready")
        assert not [event for event in server.events if event["event"] == "shard_not_configured"]
    assert set(known_stores(tmp_path / DATA)) == {"1"}
    done = command(tmp_path, "serve", "--port", "0", *both, "--forget-shard", "1")
    assert done.returncode == 1
    assert "shard 1 is configured" in last_line(done)


async def test_a_shard_may_get_another_address_but_not_another_store(
    tmp_path: Path, redis_places: Places, sqlite_places: Places
) -> None:
    first, other = redis_places.fresh(), redis_places.fresh()
    port = int(first.partition("://")[2].partition(":")[2].partition("/")[0])
    with Proxy(port) as proxy, running(tmp_path, *write(tmp_path, table("1", first))) as server:
        connection = await Plain.to(server.port)
        await connection.create_queue("mail")
        (descriptor,) = await connection.enqueue("mail", b"x")

        seen = len(server.events)
        write(tmp_path, table("1", other))
        assert "was store" in str((await told(server, "roll_refused", seen))["reason"])

        seen = len(server.events)
        write(tmp_path, table("1", first.replace(f":{port}", f":{proxy.port}")))
        assert (await told(server, "configuration_changed", seen))["shards_moved"] == ["1"]
        await told(server, "rolled", seen)
        assert await connection.dequeue("mail") == {descriptor: b"x"}
        await connection.close()


async def test_a_bad_new_file_changes_nothing_and_is_told_of_once_with_all_its_mistakes(tmp_path: Path) -> None:
    with running(tmp_path, *write(tmp_path)) as server:
        workers = server.wait_for("ready")["workers"]
        seen = len(server.events)
        write(tmp_path, more="max-body = 'x'\nmax-bodi = 1\n")
        refused = await told(server, "roll_refused", seen)
        assert refused["level"] == "error"
        assert "max-body" in str(refused["reason"])
        assert "max-bodi" in str(refused["reason"])
        write(tmp_path, more="max-body = 7\n")
        changed = await told(server, "configuration_changed", seen)
        assert changed["settings"] == ["max-body"]
        await told(server, "rolled", seen)
        assert len([event for event in server.events if event["event"] == "roll_refused"]) == 1
        assert not any(lives(pid) for pid in workers)


def test_two_servers_on_one_file_are_refused_and_a_roll_is_not_disturbed(tmp_path: Path, sqlite_places: Places) -> None:
    url = sqlite_places.fresh()
    with running(tmp_path, "--store", f"1={url}") as server:
        server.wait_for("ready")
        for outcome in ("ready", "rolled"):
            done = command(tmp_path, "serve", "--port", "0", "--store", f"1={url}", "--data", "other")
            assert done.returncode == 1
            assert f"is in use by another server (process {server.process.pid})" in last_line(done)
            seen = len(server.events)
            server.send(signal.SIGHUP)
            server.wait_for(outcome, after=seen)
        server.process.kill()
        server.ended()
    with running(tmp_path, "--store", f"1={url}") as server:
        server.wait_for("ready")

"""What the version before wrote is opened and served: its data folder, its stores, its overflow shard's file.

The files of version_before/ were made at commit 8bd71f4, with jobs in every state at a fixed time, by make.py.txt: a
script in that version's own names, run in a checkout of it. expected.json has all that it said of them.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import tarfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import pymysql
import pytest
import redis
from sqlalchemy.engine import make_url

from pinlater.backends.base import (
    AckOutcome,
    AckRequest,
    DeadLetterTarget,
    EndRules,
    ExpiryCounts,
    PerQueue,
    Retention,
    Shard,
    SilentClaim,
    UnrenewedClaim,
)
from pinlater.backends.redis import RedisShard
from pinlater.backends.sql.mysql import MysqlShard
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.client.client import Client
from pinlater.model import Ack, DequeueRequest, JobInfo, JobState
from tests.conformance.subject import ALL, NO_BOUND, Subject, key_of
from tests.server.running import running
from tests.stores.places import Places

FILES = Path(__file__).parent / "version_before"
EXPECTED: dict[str, Any] = json.loads((FILES / "expected.json").read_text("utf-8"))
MINUTE_MS = 60_000
SINCE = {
    *("result", "dedupe_key", "serialize_key", "dedupe_for_ms", "cancelled", "cancel_requested_by", "progress"),
    *(
        "waits_for",
        "expires_at_ms",
        "claim_timeout_ms",
        "body_stored_at",
        "body_left_out",
        "result_left_out",
        "replayed_to",
        "attempts",
        "log_lines",
        "tags",
        "group",
        "successor",
    ),
}
"""What jobs of before do not have."""


def unpacked(name: str, folder: Path) -> Path:
    folder.mkdir()
    with tarfile.open(FILES / name) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
        tar.extractall(folder)
    return folder


def text_of(name: str) -> str:
    return gzip.decompress((FILES / name).read_bytes()).decode()


def restore_redis(url: str, name: str) -> None:
    with redis.Redis.from_url(url) as client:
        for command in json.loads(text_of(name)):
            client.execute_command(*[base64.b64decode(part) for part in command])


def restore_mysql(url: str) -> None:
    parts = make_url(url)
    login = {"host": parts.host or "", "port": parts.port or 3306, "user": parts.username or ""}
    with (
        closing(pymysql.connect(**login, password=str(parts.password or ""), database=parts.database)) as connection,
        connection.cursor() as cursor,
    ):
        for statement in text_of("mysql.sql.gz").splitlines():
            cursor.execute(statement)
        connection.commit()


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("redis", marks=pytest.mark.store("redis")),
        pytest.param("mysql", marks=pytest.mark.store("mysql")),
    ]
)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A store as the version before left it."""
    if kind == "sqlite":
        return f"sqlite:///{unpacked('sqlite-data.tar.gz', tmp_path / 'data')}/pinlater.db"
    places: Places = request.getfixturevalue(f"{kind}_places")
    place = places.fresh()
    if kind == "redis":
        restore_redis(place, "redis.json.gz")
    else:
        restore_mysql(place)
    return place


@pytest.fixture
def shard(kind: str, url: str, runner: asyncio.Runner) -> Iterator[Shard]:
    opened: Shard = {"sqlite": SqliteShard, "redis": RedisShard, "mysql": MysqlShard}[kind](url, "1")
    assert runner.run(opened.open()) == EXPECTED[kind]["store_id"]
    yield opened
    runner.run(opened.close())


class Before(Subject):
    """The queue as it was left, a minute later."""

    def __init__(self, shard: Shard, kind: str) -> None:
        super().__init__(shard)
        self.expected = EXPECTED[kind]
        self.now_ms = self.expected["now_ms"] + MINUTE_MS

    def named(self, name: str) -> str:
        """The descriptor of the job of that name."""
        return str(self.expected["jobs"][name]["descriptor"])

    def ack_of(self, name: str, succeeded: bool = True) -> AckRequest:
        return AckRequest(*key_of(self.named(name)), succeeded, claim_descriptor=self.expected["claims"][name])


@pytest.fixture
def before(shard: Shard, kind: str) -> Before:
    return Before(shard, kind)


def plain(info: JobInfo | None) -> dict[str, Any]:
    assert info is not None
    told = {field.name: getattr(info, field.name) for field in fields(info) if field.name not in SINCE}
    assert not any(getattr(info, name) for name in SINCE)
    told["body"] = base64.b64encode(told["body"]).decode()
    return told


async def test_every_job_is_what_it_was(before: Before) -> None:
    expected = before.expected
    for job in expected["jobs"].values():
        assert plain(await before.find(job["descriptor"])) == job
    letters = Subject(before.shard, "dead")
    assert plain(await letters.find(expected["letter"]["descriptor"])) == expected["letter"]
    pending = await before.shard.peek("mail", ALL, 99, NO_BOUND, before.now_ms)
    assert [job.descriptor for job in pending] == expected["pending"]


async def test_what_servers_agree_on_is_what_it_was(before: Before) -> None:
    shard, expected = before.shard, before.expected
    assert [list(entry) for entry in (await shard.list_config(0, 100)).entries] == expected["records"]
    assert list(await before.quota()) == expected["quota"]
    listed = await shard.kv_list("kind", before.now_ms)
    assert {name: [entry.body.decode(), *entry[1:]] for name, entry in listed.items()} == expected["kv"]
    assert list(await shard.take_tokens("mail", 0, 0.5, 5.0, expected["now_ms"])) == expected["tokens"]


async def test_pending_jobs_are_handed_out_and_claims_of_before_are_acked_in_one_step(before: Before) -> None:
    acks = [before.ack_of("in progress"), before.ack_of("with a checkpoint", False)]
    requests = [before.request(99)]
    outcomes, (jobs,) = await before.shard.ack_and_claim("mail", acks, requests, before.now_ms, enforce_quota=True)
    assert outcomes == [AckOutcome.SUCCEEDED, AckOutcome.RETRIED]
    assert {job.descriptor for job in jobs} == {*before.expected["pending"], before.named("with a checkpoint")}
    assert {job.body for job in jobs} >= {b"a new body", b"pending", bytes(range(255))}
    assert (await before.info(before.named("in progress"))).custom_status == "as it came: ü"
    new = key_of(await before.job(b"new"))
    assert new.id > max(key_of(job["descriptor"]).id for job in before.expected["jobs"].values())


async def test_claims_of_before_expire(before: Before) -> None:
    before.tick(10 * MINUTE_MS)
    assert await before.expire() == {"mail": ExpiryCounts(2, 1)}
    assert (await before.info(before.named("crashed"))).crashes == 2


async def test_a_silent_claim_of_before_is_ended_by_the_time_it_was_last_renewed(before: Before) -> None:
    job = before.expected["jobs"]["in progress"]
    key = (*key_of(job["descriptor"]), before.expected["claims"]["in progress"])
    for heard_at_ms, expected in ((job["claimed_at_ms"] + 1, 0), (job["claimed_at_ms"], 1)):
        claims = [SilentClaim(*key, heard_at_ms)]
        assert await before.shard.expire_disconnected("mail", claims, before.now_ms, EndRules()) == ExpiryCounts(
            expected, 0
        )


async def test_a_job_that_nobody_received_goes_on_in_its_row(before: Before) -> None:
    """It was taken back once; four times more, and then no more."""
    for time in range(5):
        (job,) = await before.claim(priorities=(2,))
        assert job.descriptor == before.named("nobody received it")
        claim = UnrenewedClaim(*key_of(job.descriptor), job.claim_descriptor, job.claim_expires_at_ms)
        assert await before.shard.requeue_undelivered("mail", [claim], before.now_ms) == (1 if time < 4 else 0)


async def test_what_waited_for_the_dead_letter_queue_goes_there_and_a_letter_of_before_comes_back(
    before: Before,
) -> None:
    shard = before.shard
    assert await shard.dead_letter(9, before.now_ms, {"mail": DeadLetterTarget("dead", 4)}) == {"mail": 1}
    moved = await before.info(before.named("waits for its burial"))
    assert moved.moved_to is not None
    assert moved.moved_to.startswith("dead:s1:p1:")
    letter = before.expected["letter"]
    (back,) = await shard.replay("dead", [key_of(letter["descriptor"])], before.now_ms, None)
    assert back is not None
    replayed = await before.info(back)
    assert (replayed.origin, replayed.body) == (letter["descriptor"], base64.b64decode(letter["body"]))


async def test_what_ended_is_retried_or_removed(before: Before) -> None:
    assert await before.retry_failed(2) == 3
    assert (await before.info(before.named("waits for its burial"))).state is JobState.PENDING
    assert (await before.info(before.named("buried"))).moved_to is None
    counts = await before.shard.prune(99, before.now_ms, PerQueue(Retention(0, 0)))
    assert counts == {"mail": 2}
    assert await before.find(before.named("succeeded")) is None


def test_a_server_serves_the_store(url: str, tmp_path: Path, kind: str) -> None:
    """Claims have long expired by now, so their jobs come again; a queue keeps its settings."""
    data = ("--data", str(tmp_path / "data"))
    with (
        running(tmp_path, *data, *(() if kind == "sqlite" else ("--store", f"1={url}"))) as server,
        Client(f"127.0.0.1:{server.port}") as client,
    ):
        (queue,) = client.get_queues(["mail"])
        set_here = {name: setting.value for name, setting in queue.settings.items() if setting.source != "server"}
        assert set_here == {"dead_letter_queue": "dead", "claim_timeout": "2m"}
        expected = EXPECTED[kind]
        wanted = {*expected["pending"], expected["jobs"]["for later"]["descriptor"]}
        wanted |= {expected["jobs"][name]["descriptor"] for name in ("in progress", "with a checkpoint")}
        taken: set[str] = set()
        while taken < wanted:
            jobs = client.dequeue(DequeueRequest("mail", 50, wait_ms=30_000))
            assert jobs, f"{wanted - taken} did not come"
            taken |= {job.descriptor for job in jobs}
            done = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs]
            client.ack("mail", succeeded=done)
        assert taken == wanted


@pytest.mark.store("redis")
def test_jobs_that_an_overflow_shard_kept_are_moved_and_handed_out(redis_places: Places, tmp_path: Path) -> None:
    place = redis_places.fresh()
    restore_redis(place, "redis-beside-overflow.json.gz")
    folder = unpacked("overflow-data.tar.gz", tmp_path / "data")
    arguments = ("--data", str(folder), "--store", f"1={place}", "--overflow", "64MiB")
    bodies: set[bytes] = set()
    with running(tmp_path, *arguments) as server, Client(f"127.0.0.1:{server.port}") as client:
        for _ in range(3):
            jobs = client.dequeue(DequeueRequest("late", 10, wait_ms=10_000))
            bodies |= {job.body for job in jobs}
            if len(bodies) == 3:
                break
    assert bodies == {b"in the shard", b"kept 1", b"kept 2"}

"""One tier, on a folder and on an S3 interface: what it keeps, and what it does when the store behind it fails."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from pinlater.bodies.object_store import StoreInvalid
from pinlater.bodies.tier import FAILURES, FIRST_PAUSE_MS, LATELY_MS, LONGEST_PAUSE_MS, CircuitBreaker, Tier
from pinlater.clock import SystemClock
from pinlater.errors import BodyGone, TierUnavailable
from pinlater.metrics import Metrics
from tests.bodies.conftest import Buckets
from tests.speed import slower
from tests.unit.breaking import HeldClock


@asynccontextmanager
async def opened(url: str, *, put_ms: int = 10_000, get_ms: int = 10_000) -> AsyncIterator[Tier]:
    tier = Tier("files", url, SystemClock(), Metrics(), put_ms=put_ms, get_ms=get_ms)
    await tier.open()
    try:
        yield tier
    finally:
        await tier.close()


async def paths(tier: Tier, prefix: str = "store/") -> list[str]:
    return sorted([each.path async for page in tier.pages(prefix) for each in page])


# -- what it keeps -----------------------------------------------------------------------------------------------------


async def test_a_body_is_given_back_until_it_is_deleted(tier_url: str) -> None:
    body = os.urandom(300_000)
    async with opened(tier_url) as tier:
        assert tier.error == ""
        await tier.put("store/mail/20261124/a-1", body)
        await tier.put("store/mail/20261124/a-1", body)
        assert await tier.get("store/mail/20261124/a-1") == body
        await tier.put("store/mail/20261125/b-2", b"")
        assert await tier.get("store/mail/20261125/b-2") == b""
        await tier.delete(["store/mail/20261124/a-1", "store/mail/20261124/never"])
        await tier.delete(["store/mail/20261124/a-1"])
        with pytest.raises(BodyGone):
            await tier.get("store/mail/20261124/a-1")
        assert await paths(tier) == ["store/mail/20261125/b-2"]


async def test_a_listing_names_all_below_a_folder_with_size_and_time(tier_url: str) -> None:
    async with opened(tier_url) as tier:
        for number in range(12):
            await tier.put(f"store/mail/2026112{number % 3}/{number:012x}-1", bytes(number))
        await tier.put("another/mail/20261124/a-1", b"x")
        found = [each async for page in tier.pages("store/") for each in page]
        assert sorted(each.size for each in found) == list(range(12))
        assert all(abs(each.modified_ms / 1000 - time.time()) < 60 for each in found)
        assert await tier.children() == ["another", "store"]
        assert await paths(tier, "nothing/") == []


async def test_many_at_once(tier_url: str) -> None:
    async with opened(tier_url) as tier:
        names = [f"store/mail/20261124/{number:012x}-1" for number in range(100)]
        await asyncio.gather(*[tier.put(name, name.encode()) for name in names])
        assert await asyncio.gather(*[tier.get(name, queue="mail") for name in names]) == [
            each.encode() for each in names
        ]


async def test_what_a_folder_holds_is_for_its_owner_alone(tmp_path: Path) -> None:
    async with opened((tmp_path / "tier").as_uri()) as tier:
        await tier.put("store/mail/20261124/a-1", b"x")
    made = [tmp_path / "tier", *(tmp_path / "tier").rglob("*")]
    assert {oct(each.stat().st_mode & 0o077) for each in made if each.name != ".pinlater-tier"} == {"0o0"}


async def test_a_folder_that_is_emptied_by_a_deletion_takes_the_next_body(tmp_path: Path) -> None:
    async with opened((tmp_path / "tier").as_uri()) as tier:

        async def come_and_go(number: int) -> None:
            for turn in range(20):
                path = f"store/mail/20261124/{number:012x}-{turn}"
                await tier.put(path, b"x")
                await tier.delete([path])

        await asyncio.gather(*[come_and_go(number) for number in range(8)])
        assert await paths(tier) == []
        assert sorted(each.name for each in (tmp_path / "tier").iterdir()) == [".pinlater-tier"]


# -- URLs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["file://host/folder", "file:///", "s3:///jobs"])
def test_a_url_that_names_nothing_is_refused(url: str) -> None:
    with pytest.raises(StoreInvalid, match="write"):
        Tier("x", url, SystemClock(), Metrics(), put_ms=1, get_ms=1)


def test_secrets_in_a_url_are_not_shown() -> None:
    url = "s3://bucket/jobs?access_key_id=key&secret_access_key=hidden&region=x"
    tier = Tier("x", url, SystemClock(), Metrics(), put_ms=1, get_ms=1)
    assert tier.url == "s3://bucket/jobs"


# -- faults ------------------------------------------------------------------------------------------------------------


async def test_a_folder_that_goes_away_is_unavailable_and_nothing_in_it_is_gone(tmp_path: Path) -> None:
    """As a file system that is not mounted any more."""
    folder = tmp_path / "tier"
    async with opened(folder.as_uri()) as tier:
        await tier.put("store/mail/20261124/a-1", b"x")
        folder.rename(tmp_path / "elsewhere")
        folder.mkdir()
        for call in (tier.get("store/mail/20261124/a-1"), tier.put("store/mail/20261124/b-1", b"y")):
            with pytest.raises(TierUnavailable, match="mounted"):
                await call
        with pytest.raises(TierUnavailable):
            await tier.delete(["store/mail/20261124/a-1"])
        folder.rmdir()
        (tmp_path / "elsewhere").rename(folder)
        assert await tier.get("store/mail/20261124/a-1") == b"x"


async def test_a_folder_that_cannot_be_made_at_the_start_is_made_later(tmp_path: Path) -> None:
    (tmp_path / "in-the-way").write_text("")
    async with opened((tmp_path / "in-the-way").as_uri()) as tier:
        assert os.strerror(errno.EEXIST) in tier.error
        with pytest.raises(TierUnavailable):
            await tier.put("store/mail/20261124/a-1", b"x")
        (tmp_path / "in-the-way").unlink()
        await tier.put("store/mail/20261124/a-1", b"x")
        assert tier.error == ""
        assert await tier.get("store/mail/20261124/a-1") == b"x"


async def test_a_bucket_that_is_not_there_is_unavailable_and_no_body_gone(buckets: Buckets) -> None:
    async with opened(buckets.fresh().replace("bucket-", "missing-")) as tier:
        assert tier.error
        with pytest.raises(TierUnavailable):
            await tier.get("store/mail/20261124/a-1")


@pytest.mark.parametrize("fault", ["refusing", "hanging", "cut"])
async def test_a_store_that_fails_is_unavailable_in_time_and_well_again_later(buckets: Buckets, fault: str) -> None:
    relay = buckets.relay
    async with opened(buckets.fresh(), put_ms=500, get_ms=500) as tier:
        await tier.put("store/mail/20261124/a-1", b"x" * 300_000)
        if fault == "refusing":
            relay.cut()
        elif fault == "hanging":
            relay.black_hole()
        else:
            relay.slow(100_000)
        begun_s = time.monotonic()
        for call in (tier.get("store/mail/20261124/a-1"), tier.put("store/mail/20261124/b-1", b"y" * 300_000)):
            if fault == "cut":
                asyncio.get_running_loop().call_later(0.2, relay.drop_connections)
            with pytest.raises(TierUnavailable):
                await call
        assert time.monotonic() - begun_s < slower(time.monotonic) * 5
        relay.heal()
        assert await tier.get("store/mail/20261124/a-1") == b"x" * 300_000
        await tier.put("store/mail/20261124/b-1", b"y")
        assert tier.error == ""


async def test_a_store_that_answers_503_is_unavailable() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"s3://bucket/jobs?endpoint=http://127.0.0.1:{port}&region=x&access_key_id=a&secret_access_key=b"
    async with server, opened(url) as tier:
        for call in (tier.get("store/mail/20261124/a-1"), tier.put("store/mail/20261124/a-1", b"x")):
            with pytest.raises(TierUnavailable):
                await call


async def test_a_queue_alone_has_32_puts_under_way() -> None:
    puts, over = [], asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"PUT"):
            puts.append(head)
            await over.wait()
        found = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
        writer.write(b"HTTP/1.1 200 OK\r\nETag: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(found))
        writer.write(found)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"s3://bucket/jobs?endpoint=http://127.0.0.1:{port}&region=x&access_key_id=a&secret_access_key=b"
    async with server, opened(url, put_ms=60_000) as tier:
        puts.clear()
        calls = [asyncio.ensure_future(tier.put(f"store/mail/{number}", b"x", queue="mail")) for number in range(40)]
        async with asyncio.timeout(60):
            while len(puts) < 32:
                await asyncio.sleep(0.01)
        over.set()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_after_failures_in_a_row_a_store_is_left_alone(buckets: Buckets) -> None:
    async with opened(buckets.fresh(), put_ms=200, get_ms=200) as tier:
        await tier.put("store/mail/20261124/a-1", b"x")
        buckets.relay.black_hole()
        for _ in range(FAILURES):
            with pytest.raises(TierUnavailable):
                await tier.get("store/mail/20261124/a-1")
        assert "within 0.2 s" in tier.error
        begun_s = time.monotonic()
        for _ in range(100):
            with pytest.raises(TierUnavailable, match="left alone"):
                await tier.get("store/mail/20261124/a-1")
        assert time.monotonic() - begun_s < slower(time.monotonic) * FIRST_PAUSE_MS / 1000
        buckets.relay.heal()
        async with asyncio.timeout(60):  # on a busy machine an answer may be late, and the next pause longer
            while tier.error:
                await asyncio.sleep(FIRST_PAUSE_MS / 1000)
                with suppress(TierUnavailable):
                    assert await tier.get("store/mail/20261124/a-1") == b"x"


async def test_reads_of_one_queue_leave_room_for_those_of_others(buckets: Buckets) -> None:
    async with opened(buckets.fresh(), get_ms=2_000) as tier:
        await tier.put("store/mail/20261124/a-1", b"x")
        buckets.relay.delay(0.3)
        slow = [asyncio.create_task(tier.get("store/mail/20261124/a-1", queue="mail")) for _ in range(200)]
        await asyncio.sleep(0.05)
        begun_s = time.monotonic()
        assert await tier.get("store/mail/20261124/a-1", queue="other") == b"x"
        assert time.monotonic() - begun_s < slower(time.monotonic) * 1.5
        for outcome in await asyncio.gather(*slow, return_exceptions=True):
            assert outcome == b"x" or isinstance(outcome, TierUnavailable)


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


def test_a_breaker_opens_for_longer_and_longer_and_tries_with_one_call() -> None:
    clock = Hand()
    breaker = CircuitBreaker(clock)
    for _ in range(FAILURES):
        assert breaker.admits()
        breaker.failed("no")
    pause_ms = FIRST_PAUSE_MS
    for _ in range(8):
        assert not breaker.admits()
        clock.ms += pause_ms - 1
        assert not breaker.admits()
        clock.ms += 1
        assert breaker.admits()
        assert not breaker.admits()  # one at a time
        breaker.failed("no")
        pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
    clock.ms += pause_ms
    assert breaker.admits()
    breaker.left()
    assert breaker.admits()
    breaker.succeeded()
    assert breaker.why == ""
    assert breaker.admits()
    assert breaker.admits()


def test_hidden_files_of_a_write_that_was_killed_are_no_objects(tmp_path: Path) -> None:
    async def look() -> None:
        async with opened(tmp_path.as_uri()) as tier:
            await tier.put("store/mail/20261124/a-1", b"x")
            folder = tmp_path / "store/mail/20261124"
            shutil.copy(folder / "a-1", folder / ".b-1.1234")
            assert await paths(tier) == ["store/mail/20261124/a-1"]

    asyncio.run(look())


def test_a_breaker_that_nobody_has_tried_for_minutes_says_no_more_that_the_tier_is_away() -> None:
    clock = HeldClock()
    breaker = CircuitBreaker(clock)
    for _ in range(FAILURES):
        assert breaker.why_lately == ""
        breaker.failed("no answer")
    assert breaker.why_lately == "no answer"
    clock.tick(FIRST_PAUSE_MS + LATELY_MS - 1)
    assert breaker.why_lately == "no answer"
    clock.tick(1)
    assert (breaker.why_lately, breaker.why) == ("", "no answer")

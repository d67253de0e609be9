"""A server whose tier fails: enqueues go on, other queues do not notice, and no body is lost or handed out damaged."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pinlater import Ack, Client, DequeueRequest, Job
from pinlater.data_folder.password import hash_password
from pinlater.errors import TierUnavailable
from pinlater.model import JobFilter, JobState
from pinlater.model.body_words import BodiesAction, BodiesChange
from tests.bodies.conftest import Buckets
from tests.faults.proxy import Proxy
from tests.server.running import RunningServer, running
from tests.speed import slower
from tests.stores.places import Places

LARGE = os.urandom(300_000)
PASSWORD = "correct horse"
WITHIN_S = 100.0
QUICK = ("--body-put", "300ms", "--body-get", "300ms", "--body-ahead", "0s")


@contextmanager
def served(folder: Path, *arguments: str) -> Iterator[tuple[RunningServer, Client]]:
    hashed = ("--admin-password-hash", hash_password(PASSWORD))
    with running(folder, *hashed, *arguments) as server, Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("images")
        client.create_queue("small")
        yield server, client


def until(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def break_off(relay: Proxy, fault: str) -> None:
    {"refusing": relay.cut, "hanging": relay.black_hole, "slow": lambda: relay.slow(20_000)}[fault]()


def files(tier: Path) -> list[Path]:
    return [each for each in tier.rglob("*") if each.is_file() and not each.name.startswith(".")]


@pytest.mark.parametrize("fault", ["refusing", "hanging", "slow"])
def test_an_enqueue_does_not_fail_with_the_tier_and_what_is_there_comes_later(
    buckets: Buckets, tmp_path: Path, fault: str
) -> None:
    arguments = ("--bodies", buckets.fresh(), *QUICK, "--body-in-shard", "512KiB", "--max-body", "2MiB")
    with served(tmp_path, *arguments) as (server, client):
        client.update_queue("images", PASSWORD, set={"max_body": "2MiB"})
        (in_tier,) = client.enqueue("images", [Job(LARGE)])
        assert client.lookup([in_tier])[in_tier].body_stored_at
        break_off(buckets.relay, fault)
        (in_shard,) = client.enqueue("images", [Job(LARGE[::-1])])
        assert client.lookup([in_shard])[in_shard].body_stored_at is None
        with pytest.raises(TierUnavailable, match="too large for a shard"):
            client.enqueue("images", [Job(bytes(600_000))])
        assert client.get_body_tiers().tiers[0].fallbacks == 1
        jobs = client.dequeue(DequeueRequest("images", 10))
        assert [job.body for job in jobs] == [LARGE[::-1]]
        client.ack("images", [Ack(job.descriptor) for job in jobs], [])
        with pytest.raises(TierUnavailable):
            client.lookup([in_tier], include_body=True)
        server.wait_for("body_not_read")
        until(lambda: client.lookup([in_tier])[in_tier].state is JobState.PENDING)
        info = client.lookup([in_tier])[in_tier]
        assert (info.attempts_remaining, info.crashes) == (2, 0)
        assert info.run_after_ms > info.created_at_ms
        buckets.relay.heal()
        (job,) = client.dequeue(DequeueRequest("images", 10, wait_ms=20_000))
        assert (job.descriptor, job.body, job.attempts_remaining) == (in_tier, LARGE, 2)


def test_other_queues_do_not_notice_a_tier_that_hangs(buckets: Buckets, tmp_path: Path) -> None:
    """Large jobs are dequeued all the time meanwhile, each of which has to wait for the tier."""
    with served(tmp_path, "--bodies", buckets.fresh(), "--body-ahead", "0s") as (server, client):
        for _ in range(40):
            client.enqueue("images", [Job(LARGE)])
        buckets.relay.black_hole()
        stopping = threading.Event()

        def ask_for_images() -> None:
            with Client(f"127.0.0.1:{server.port}", timeout=30) as mine:
                while not stopping.is_set():
                    mine.dequeue(DequeueRequest("images", 10, wait_ms=500))

        threads = [threading.Thread(target=ask_for_images) for _ in range(4)]
        for thread in threads:
            thread.start()
        took_s = []
        try:
            for number in range(100):
                begun_s = time.monotonic()
                client.enqueue("small", [Job(b"%d" % number)])
                (job,) = client.dequeue(DequeueRequest("small", 1, wait_ms=5_000))
                client.ack("small", [Ack(job.descriptor)], [])
                took_s.append(time.monotonic() - begun_s)
        finally:
            stopping.set()
            buckets.relay.heal()
            for thread in threads:
                thread.join(WITHIN_S)
        assert sorted(took_s)[90] < slower(time.monotonic) * 1.0  # a body's wait alone is three times that


@pytest.mark.parametrize("what", ["gone", "damaged"])
def test_a_body_that_is_gone_or_damaged_fails_its_job_at_once_to_the_dead_letters(tmp_path: Path, what: str) -> None:
    tier = tmp_path / "tier"
    with served(tmp_path, "--bodies", tier.as_uri()) as (server, client):
        client.create_queue("dead")
        client.update_queue("images", PASSWORD, set={"dead_letter_queue": "dead"})
        (descriptor,) = client.enqueue("images", [Job(LARGE)])
        (file,) = files(tier)
        if what == "gone":
            file.unlink()
        else:
            file.write_bytes(LARGE[:-1] + b"?")
        assert client.dequeue(DequeueRequest("images", 1)) == []
        server.wait_for("body_unavailable")
        until(lambda: bool(client.scan(JobFilter("dead", JobState.PENDING), limit=1).jobs))
        info = client.lookup([descriptor])[descriptor]
        assert (info.state, info.crashes) == (JobState.FAILED, 0)
        assert "BODY_UNAVAILABLE" in info.custom_status
        (letter,) = client.scan(JobFilter("dead", JobState.PENDING), limit=1).jobs
        assert letter.body_stored_at == info.body_stored_at
        assert letter.body_stored_at
        assert letter.body_stored_at.partition(" ")[0] in info.custom_status


def test_a_body_that_one_server_cannot_read_again_and_again_fails_its_job(tmp_path: Path) -> None:
    """While its tier gives others."""
    tier = tmp_path / "tier"
    arguments = ("--bodies", tier.as_uri(), "--body-tries", "2", "--body-ahead", "0s")
    with served(tmp_path, *arguments) as (server, client):
        (descriptor,) = client.enqueue("images", [Job(LARGE)])
        (file,) = files(tier)
        file.unlink()
        file.mkdir()  # it can be opened, and not be read
        until(lambda: client.dequeue(DequeueRequest("images", 1, wait_ms=100)) == [] and has_failed(client, descriptor))
        assert "Is a directory" in client.lookup([descriptor])[descriptor].custom_status
        assert len([each for each in server.events if each["event"] == "body_not_read"]) == 1


def has_failed(client: Client, descriptor: str) -> bool:
    return client.lookup([descriptor])[descriptor].state is JobState.FAILED


def test_no_body_goes_to_a_tier_that_a_live_server_lacks(redis_places: Places, tmp_path: Path) -> None:
    store, tier = redis_places.fresh(), (tmp_path / "tier").as_uri()
    common = ("--store", f"1={store}", "--processes", "1", "--lease", "1s")
    (tmp_path / "other").mkdir()
    with served(tmp_path, *common, "--bodies", tier) as (_, client), running(tmp_path / "other", *common) as other:
        other.wait_for("ready")
        until(lambda: bool(client.get_body_tiers().lacking))
        (first,) = client.enqueue("images", [Job(LARGE)])
        assert client.lookup([first])[first].body_stored_at is None
        other.stop()
        until(lambda: not client.get_body_tiers().lacking)
        (second,) = client.enqueue("images", [Job(LARGE)])
        assert client.lookup([second])[second].body_stored_at


def test_two_clusters_share_a_bucket_and_sweep_their_own_alone(buckets: Buckets, tmp_path: Path) -> None:
    url = buckets.fresh()
    (tmp_path / "other").mkdir()
    age = ("--body-orphan-age", "1s")
    with (
        served(tmp_path, "--bodies", url, *age) as (_, client),
        served(tmp_path / "other", "--bodies", url, *age) as (_, stranger),
    ):
        (mine,) = client.enqueue("images", [Job(LARGE)])
        (theirs,) = stranger.enqueue("images", [Job(LARGE)])
        assert len(client.get_body_tiers().strangers) == 1
        time.sleep(1.5)
        for each, descriptor in ((client, mine), (stranger, theirs)):
            sweep(each)
            assert each.lookup([descriptor], include_body=True)[descriptor].body == LARGE


def sweep(client: Client, store: str = "") -> int:
    """How many objects were deleted."""
    done, continuation = 0, "0"
    while continuation != "-1":
        step = client.change_bodies(BodiesChange(BodiesAction.SWEEP, store=store, continuation=continuation))
        assert step.troubles == []
        done, continuation = done + step.done, step.continuation
    return done


def test_orphans_are_swept_when_they_are_old_and_the_objects_of_a_stranger_on_demand(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    with served(tmp_path, "--bodies", tier.as_uri(), "--body-orphan-age", "1h") as (_, client):
        (descriptor,) = client.enqueue("images", [Job(LARGE)])
        (file,) = files(tier)
        orphan = file.with_name("1-0123456789abcdef")  # by its name of 1970, by its file of now
        orphan.write_bytes(b"x")
        stranger = tier / "0123" / file.relative_to(tier / file.relative_to(tier).parts[0])
        stranger.parent.mkdir(parents=True)
        stranger.write_bytes(b"x")
        assert sweep(client) == 0
        for each in (orphan, stranger):
            os.utime(each, (0, 0))
        assert client.get_body_tiers().tiers[0].orphans == 1
        assert sweep(client) == 1
        assert sorted(files(tier)) == sorted([file, stranger])
        assert client.get_body_tiers().strangers == ["0123"]
        assert sweep(client, "0123") == 1
        assert client.lookup([descriptor], include_body=True)[descriptor].body == LARGE

"""A server process killed while bodies come and go: nothing lost, nothing unreadable, no object left after a sweep."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from pinlater import Ack, Client, DequeueRequest, Job
from pinlater.data_folder.password import hash_password
from pinlater.errors import PinLaterError
from pinlater.model import JobFilter, JobState
from tests.bodies.conftest import Buckets
from tests.bodies.test_body_faults import files, sweep
from tests.faults.recorded_run import RecordedRun
from tests.server.running import RunningServer, running

ROUNDS = int(os.environ.get("PINLATER_BODY_KILLS", "8"))
"""Of each of the two tests half of it; PINLATER_BODY_KILLS=500 for a long one."""

PASSWORD = "correct horse"
ARGUMENTS = ("--body-orphan-age", "1s", "--claim-timeout", "2s", "--crash-budget", "0", "--body-ahead", "200ms")
PATIENCE_S = 60.0


@contextmanager
def served(folder: Path, url: str, run: RecordedRun) -> Iterator[tuple[RunningServer, Client]]:
    """A server whose bodies go to that tier, and a client whose calls are recorded."""
    hashed = ("--admin-password-hash", hash_password(PASSWORD))
    with (
        running(folder, *hashed, *ARGUMENTS, "--bodies", url) as server,
        Client(f"127.0.0.1:{server.port}", history=run.folder) as client,
    ):
        client.create_queue("images")
        client.update_queue("images", PASSWORD, set={"succeeded_ttl": "0s"})
        client.get_queues(["images"])
        yield server, client


def kill_worker(server: RunningServer) -> None:
    """The supervisor starts another one."""
    pid, before = server.process.pid, len(server.events)
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)
    server.wait_for("worker_replaced", after=before)


class Images:
    """Bodies of which no two are alike, that come and go."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self._numbers = count()

    def enqueue(self, client: Client) -> None:
        body = b"%d " % next(self._numbers) + os.urandom(270_000)
        self.sent.add(body)
        with suppress(PinLaterError):
            client.enqueue("images", [Job(body, attempts_allowed=1_000)])

    def take(self, client: Client, wait_ms: int = 0) -> None:
        with suppress(PinLaterError):
            jobs = client.dequeue(DequeueRequest("images", 10, wait_ms=wait_ms))
            assert {job.body for job in jobs} <= self.sent
            client.ack("images", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs], [])

    def drain(self, client: Client, run: RecordedRun) -> None:
        """All that was stored has come, as it was sent: the history says so."""
        until_s = time.monotonic() + PATIENCE_S
        left = [JobFilter("images", state) for state in (JobState.PENDING, JobState.IN_PROGRESS)]
        while any(client.count(each) or client.count(JobFilter(each.queue, each.state, future=True)) for each in left):
            assert time.monotonic() < until_s, "jobs are left"
            self.take(client, 500)
        assert client.count(JobFilter("images", JobState.FAILED)) == 0
        client.lookup(run.open_jobs())
        run.judge()


def swept(client: Client) -> None:
    """Maintenance deletes what jobs let go of, the sweep what no job ever had."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        sweep(client)
        (tier,) = client.get_body_tiers().tiers
        if tier.bodies == 0:
            return
        assert time.monotonic() < until_s, tier
        time.sleep(0.5)


def test_killed_between_the_object_and_its_job_and_between_the_job_and_its_object(
    buckets: Buckets, tmp_path: Path
) -> None:
    """The relay holds the answer of the very call to the tier: so it was carried out, and nothing behind it."""
    relay, images, run = buckets.relay, Images(), RecordedRun(tmp_path)
    with served(tmp_path, buckets.fresh(), run) as (server, client):
        for number in range(ROUNDS // 2):
            images.enqueue(client)
            if number % 2:
                relay.black_hole(answers_only=True)
                caller = threading.Thread(target=images.enqueue, args=(client,))
                caller.start()
                time.sleep(0.3)
            else:
                caller = threading.Thread(target=images.take, args=(client, 1_000))
                caller.start()
                caller.join()
                relay.black_hole(answers_only=True)
                time.sleep(1.2)  # maintenance looks once a second
            kill_worker(server)
            relay.drop_connections()
            relay.heal()
            caller.join(PATIENCE_S)
            assert not caller.is_alive()
        images.drain(client, run)
        swept(client)


def test_killed_at_random_moments_under_load(tmp_path: Path) -> None:
    images, run, tier, stopping = Images(), RecordedRun(tmp_path), tmp_path / "tier", threading.Event()
    with served(tmp_path, tier.as_uri(), run) as (server, client):

        def go_on() -> None:
            with Client(f"127.0.0.1:{server.port}", history=run.folder) as mine:
                while not stopping.is_set():
                    images.enqueue(mine)
                    images.take(mine)

        threads = [threading.Thread(target=go_on) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(ROUNDS // 2):
                time.sleep(random.uniform(0.2, 1.0))
                kill_worker(server)
        finally:
            stopping.set()
            for thread in threads:
                thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in threads)
        images.drain(client, run)
        swept(client)
        assert files(tier) == []


@pytest.mark.parametrize("left_over", [".a-1.0123abcd"])
def test_what_a_killed_write_left_is_no_object(tmp_path: Path, left_over: str) -> None:
    tier = tmp_path / "tier"
    with served(tmp_path, tier.as_uri(), RecordedRun(tmp_path)) as (_, client):
        Images().enqueue(client)
        (file,) = files(tier)
        file.with_name(left_over).write_bytes(b"half")
        (view,) = client.get_body_tiers().tiers
        assert view.bodies == 1

"""Schedules in a cluster of two servers: each time fires once, whoever is killed, and a home that is out comes late."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterable

import pytest

from pinlater import Client
from pinlater.errors import PinLaterError
from pinlater.model import Ack, DequeuedJob, DequeueRequest, JobFilter, JobState, ScheduleChange, ScheduleView
from tests.cluster.conftest import PASSWORD, TwoServers, eventually

pytestmark = [pytest.mark.slow]
SECOND_MS = 1_000


def made(client: Client, names: list[str], queue: str) -> None:
    client.create_queue(queue)
    for name in names:
        change = ScheduleChange(name=name, queue=queue, body=name.encode(), every_ms=SECOND_MS)
        client.update_schedule(change, PASSWORD)


def ended(client: Client, names: list[str]) -> dict[str, ScheduleView]:
    """They fire no more; as they are then."""
    for name in names:
        client.update_schedule(ScheduleChange(name=name, paused=True), PASSWORD)
    time.sleep(3.0)  # a change counts at every server within two seconds
    return {view.schedule.name: view for view in client.get_schedules(names, limit=1000).schedules}


def times_of(client: Client, queue: str) -> dict[str, list[int]]:
    """When each schedule fired, from the keys of its jobs."""
    return times_in(keys_of(client, queue, JobState.PENDING).values())


def keys_of(client: Client, queue: str, state: JobState) -> dict[str, str]:
    """The dedupe keys of the jobs in this state, by descriptor."""
    found: dict[str, str] = {}
    continuation = "0"
    while continuation != "-1":
        page = client.scan(JobFilter(queue, state), continuation=continuation, limit=1000)
        infos = client.lookup([job.descriptor for job in page.jobs])
        found |= {descriptor: info.dedupe_key or "" for descriptor, info in infos.items()}
        continuation = page.continuation
    return found


def times_in(keys: Iterable[str]) -> dict[str, list[int]]:
    """By schedule, in order."""
    found: dict[str, list[int]] = {}
    for key in keys:
        _, name, at_ms = key.split("/")
        found.setdefault(name, []).append(int(at_ms))
    return {name: sorted(times) for name, times in found.items()}


def each_second_once(times: list[int]) -> bool:
    return times == list(range(times[0], times[-1] + 1, SECOND_MS))


def test_every_second_fires_once_while_servers_are_killed(cluster: TwoServers) -> None:
    names = [f"killed-{number}" for number in range(20)]
    with cluster.client() as client:
        made(client, names, "killed")
        eventually(lambda: set(times_of(client, "killed")) == set(names))
        for server in client.cluster_status(queues=[]).servers:
            time.sleep(1.5)
            os.kill(int(server.process), signal.SIGKILL)
        time.sleep(5.0)
        ended(client, names)
        times = times_of(client, "killed")
    assert set(times) == set(names)
    for name in names:
        assert each_second_once(times[name]), (name, times[name])
        assert len(times[name]) >= 10


def test_a_home_that_is_out_makes_firings_late_but_neither_missed_nor_doubled(cluster: TwoServers) -> None:
    names = [f"away-{number}" for number in range(20)]
    with cluster.client() as client:
        made(client, names, "away")
        eventually(lambda: set(times_of(client, "away")) == set(names))
        cluster.kill_shard_2()
        time.sleep(4.0)
        troubled = [view.trouble for view in client.get_schedules(names).schedules if view.trouble]
        cluster.revive_shard_2()
        time.sleep(4.0)
        views = ended(client, names)
        times = times_of(client, "away")
    assert troubled
    assert all("shard 2" in trouble for trouble in troubled)
    for name in names:
        assert each_second_once(times[name]), (name, times[name])
        assert times[name][-1] == views[name].last_fired_ms


def test_a_job_that_has_long_ended_does_not_let_its_time_fire_again(cluster: TwoServers) -> None:
    with cluster.client() as client:
        client.create_queue("quick")
        client.update_queue("quick", PASSWORD, set={"succeeded_ttl": "0s"})
        made(client, ["quick"], "quick")
        seen: list[str] = []
        until = time.monotonic() + 8.0
        while time.monotonic() < until:
            for job in client.dequeue(DequeueRequest("quick", 10, wait_ms=500)):
                seen.append(job.body.decode())
                client.ack("quick", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor)], [])
        (view,) = ended(client, ["quick"]).values()
    assert view.last_fired_ms is not None
    assert 6 <= len(seen) <= 9


class Log(threading.Thread):
    """A worker from outside: which job came for which time of which schedule. What ran once is told once."""

    def __init__(self, cluster: TwoServers, queue: str) -> None:
        super().__init__()
        self._cluster = cluster
        self._queue = queue
        self._ends = threading.Event()
        self._left: list[DequeuedJob] = []
        self.jobs: dict[str, str] = {}
        """Dedupe keys by descriptor."""

    def run(self) -> None:
        with self._cluster.client() as client:
            while not self._ends.is_set():
                with contextlib.suppress(PinLaterError):
                    self._left += client.dequeue(DequeueRequest(self._queue, 100, wait_ms=200))
                with contextlib.suppress(PinLaterError):
                    self._tell(client)

    def _tell(self, client: Client) -> None:
        found = client.lookup([job.descriptor for job in self._left])
        self.jobs.update({descriptor: info.dedupe_key or "" for descriptor, info in found.items()})
        acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in self._left]
        self._left.clear()
        if acks:
            client.ack(self._queue, acks, [])

    def close(self) -> None:
        self._ends.set()
        self.join()

    def times(self) -> dict[str, list[int]]:
        return times_in(self.jobs.values())


def test_each_time_fires_once_while_its_home_is_drained_and_killed_and_a_server_is_killed(cluster: TwoServers) -> None:
    names = [f"moved-{number}" for number in range(20)]
    with cluster.client() as client:
        client.create_queue("moved")
        client.update_queue("moved", PASSWORD, set={"succeeded_ttl": "0s"})
        log = Log(cluster, "moved")
        log.start()
        try:
            made(client, names, "moved")
            eventually(lambda: set(log.times()) == set(names))
            client.update_shard("2", PASSWORD, dequeue_only=True)
            eventually(lambda: not home_of(client, "2"))
            time.sleep(3.0)
            client.update_shard("2", PASSWORD, dequeue_only=False)
            eventually(lambda: home_of(client, "2"))
            time.sleep(2.0)
            cluster.kill_shard_2()
            time.sleep(2.0)
            cluster.revive_shard_2()
            os.kill(int(client.cluster_status(queues=[]).servers[0].process), signal.SIGKILL)
            time.sleep(3.0)
            views = ended(client, names)
            log.jobs |= keys_of(client, "moved", JobState.IN_PROGRESS)  # in answers of the server that was killed
            eventually(lambda: all(log.times()[name][-1] == views[name].last_fired_ms for name in names))
        finally:
            log.close()
    for name, times in log.times().items():
        assert each_second_once(times), (name, times)


def home_of(client: Client, shard: str) -> bool:
    """Whether keys live on this shard."""
    return {view.id: view.is_home for view in client.cluster_status(queues=[]).shards}[shard]

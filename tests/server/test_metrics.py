"""Every metric of a real server with two processes: led through everything, read in one scrape, also after a kill."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pinlater.data_folder.password import hash_password
from pinlater.metrics import FAMILIES
from pinlater.model import Job
from tests.server import metrics_scenarios as scenarios
from tests.server.metrics_scenarios import PASSWORD, Counts, new_queue
from tests.server.running import WITHIN_S, RunningServer, clients_of, running
from tests.server.test_overflow import create_queue
from tests.stores.process import StoreServer


class Scrapes:
    """The metrics of a server as Prometheus reads them."""

    def __init__(self, server: RunningServer) -> None:
        self._address = server.wait_for("http_ready")["address"]

    async def read(self) -> Counts:
        return await asyncio.to_thread(self._read)

    def _read(self) -> Counts:
        with urllib.request.urlopen(self._address + "metrics", timeout=WITHIN_S) as answer:
            text = answer.read().decode()
        counts: Counts = {}
        for family in text_string_to_metric_families(text):
            name = family.name.removeprefix("pinlater_")
            for sample in family.samples:
                if sample.name in (family.name, f"{family.name}_total", f"{family.name}_count"):
                    labels = FAMILIES[name].labels
                    assert sample.labels.keys() == set(labels)
                    counts[name, *[sample.labels[label] for label in labels]] = sample.value
        return counts

    async def until(self, expected: Counts) -> Counts:
        """Until all of these are as expected; what there is then."""
        deadline = time.monotonic() + WITHIN_S
        while True:
            found = await self.read()
            wrong = {key: found.get(key) for key, value in expected.items() if found.get(key) != value}
            if not wrong:
                return found
            assert time.monotonic() < deadline, (wrong, found)
            await asyncio.sleep(0.05)


class Statsd:
    """A statsd that keeps what it is sent, and a server that is to send to it."""

    def __init__(self, receiver: socket.socket) -> None:
        self._receiver = receiver
        self.address = f"127.0.0.1:{receiver.getsockname()[1]}"
        self._seen: set[str] = set()

    def wait_for(self, line: str) -> None:
        while line not in self._seen:
            self._seen |= set(self._receiver.recv(65536).decode().split("\n"))


@pytest.fixture
def statsd() -> Iterator[Statsd]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(WITHIN_S)
        yield Statsd(receiver)


@pytest.fixture
def server(tmp_path: Path, durable_redis_server: StoreServer, statsd: Statsd) -> Iterator[RunningServer]:
    with running(
        tmp_path,
        *("--store", f"1={durable_redis_server.url()}", "--data", str(tmp_path / "data"), "--processes", "2"),
        *("--http", "127.0.0.1:0", "--statsd", statsd.address, "--stats-interval", "500ms"),
        *("--maintenance-interval", "100ms", "--health-pause", "200ms", "--max-waiters", "1", "--overflow", "64MiB"),
        *("--release-grace", "100ms", "--blocked-chain-jobs", "2"),
        *("--admin-password-hash", hash_password(PASSWORD)),
        *("--bodies", (tmp_path / "tier").as_uri(), "--body-ahead", "0s"),
    ) as started:
        yield started


def workers_of(server: RunningServer) -> list[int]:
    pid = server.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_every_metric_is_counted(
    server: RunningServer, durable_redis_server: StoreServer, statsd: Statsd, tmp_path: Path
) -> None:
    scrapes = Scrapes(server)
    async with clients_of(server, 4) as clients:
        client = clients[0]
        expected: Counts = {
            **await scenarios.acks_of_all_outcomes(client),
            **await scenarios.workers_that_say_who_they_are(client),
            **await scenarios.claims_that_expire(client),
            **await scenarios.claims_whose_connection_breaks(client, server.port),
            **await scenarios.hand_outs_that_nobody_receives(client, server.port),
            **await scenarios.what_maintenance_does_later(client),
            **await scenarios.changes_by_operators(client),
            **await scenarios.jobs_with_keys(client),
            **await scenarios.a_schedule_that_fires_once(client),
            **await scenarios.a_flow_that_ends(client),
            **await scenarios.bodies_in_a_tier(client, tmp_path / "tier"),
            **await scenarios.enqueues_that_are_refused(client),
            **await scenarios.dequeues_that_are_limited(client),
            **await scenarios.groups_with_settings_of_their_own(client),
            **await scenarios.failures_that_open_a_breaker(client),
            **await scenarios.calls_that_fail(client),
            **await scenarios.callers_that_are_gone(client, server.port),
        }
        seen = await scrapes.until(expected)

        waiting = await scenarios.long_polls_beyond_the_bound(client, server.port)
        seen |= await scrapes.until({("limits_hit", "waiting_dequeues"): 1, ("waiting_dequeues",): 2})
        for caller in waiting:
            await caller.close()

        await create_queue(clients)
        durable_redis_server.terminate()
        seen |= await scrapes.until({("shard_in", "1"): 0})  # before, an outcome may be unknown
        seen |= await scrapes.until({("alarms", "shard_out", "critical", "1", ""): 1})
        await client.enqueue("mail", [Job(b"")] * 5)
        seen |= await scrapes.until({("overflow_jobs_taken", "mail"): 5, ("shard_in", "1"): 0})
        durable_redis_server.start()
        expected |= {("overflow_jobs_moved", "mail"): 5, ("jobs_enqueued", "mail", "1"): 5}
        seen |= await scrapes.until({("shard_in", "1"): 1, **expected})
    late = {"flow_items_lost"}  # when a job is gone for half a minute: tests/flows/test_flow_queues.py
    assert {key[0] for key in seen} == {name for name in FAMILIES if not name.startswith("http_")} - late
    await asyncio.to_thread(statsd.wait_for, "pinlater.jobs_acked.acked.2.succeeded:2|c")
    await asyncio.to_thread(statsd.wait_for, "pinlater.shard_in.1:1.0|g")


async def test_one_scrape_has_the_counts_of_all_processes_those_of_a_killed_one_included(server: RunningServer) -> None:
    scrapes = Scrapes(server)
    async with clients_of(server, 2) as clients:
        await new_queue(clients[0], "mail")
        for client in clients:
            await client.enqueue("mail", [Job(b"")] * 5)
        before = await scrapes.until({("jobs_enqueued", "mail", "1"): 10})
        first, _ = workers = workers_of(server)
        os.kill(first, signal.SIGKILL)
        while not (len(workers_of(server)) == 2 and first not in workers_of(server)):
            await asyncio.sleep(0.02)
            after = await scrapes.read()
            assert after["jobs_enqueued", "mail", "1"] == 10
        assert workers_of(server) != workers
        await clients[1].enqueue("mail", Job(b""))
        after = await scrapes.until({("jobs_enqueued", "mail", "1"): 11})
    counters = {key for key in before if FAMILIES[key[0]].kind != "gauge"}
    assert not {key for key in counters if after.get(key, 0) < before[key]}


async def test_statsd_gets_what_was_counted_last_when_a_server_ends(server: RunningServer, statsd: Statsd) -> None:
    async with clients_of(server, 1) as (client,):
        await new_queue(client, "mail")
        await asyncio.to_thread(statsd.wait_for, "pinlater.shard_in.1:1.0|g")
        await client.enqueue("mail", [Job(b"")] * 7)
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(statsd.wait_for, "pinlater.jobs_enqueued.mail.1:7|c")

"""Servers that are away, queues that are not there, connections that break: said once, and over within seconds."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Job, JobState
from pinlater_workers.jobs.outcome import Fail, Snooze
from pinlater_workers.worker import fetcher, queue_state
from tests.faults.proxy import Proxy
from tests.server.running import RunningServer, running
from tests.speed import slower
from tests.workers.site import Site, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("recovery")
    with running(folder) as started:
        yield started


async def test_a_queue_that_is_not_there_is_said_once_and_found_when_it_is_made(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with Site(server.port) as site:
        missing = f"{site.queue}_later"

        @site.app.job(queue=missing)
        def quick() -> None:
            pass

        with caplog.at_level("INFO", "pinlater_workers"):
            async with site.working(queues={missing: 1}) as worker:
                await until(lambda: worker.view().queues[missing].state == "not found")
                assert worker.view().since_good_poll_s < slower(time.monotonic) * 5
                await site.client.create_queue(missing)
                await quick.enqueue_async()
                await site.all_succeeded(1, missing)
        first, second = [text for text in caplog.messages if missing in text]
        assert "pinlater queue create" in first
        assert "is there" in second


async def test_a_timer_that_fires_early_is_set_again(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of another event loop do, whose clock is not the one that the worker reads."""

    class Slow:
        began_s = time.monotonic()

        def monotonic(self) -> float:
            return self.began_s + 0.9 * (time.monotonic() - self.began_s)

    monkeypatch.setattr(fetcher, "time", Slow())
    monkeypatch.setattr(queue_state, "LOOK_AGAIN_S", 0.05)
    async with Site(server.port) as site:
        missing = f"{site.queue}_later"

        @site.app.job(queue=missing)
        def quick() -> None:
            pass

        async with site.working(queues={missing: 1}) as worker:
            await until(lambda: worker.view().queues[missing].state == "not found")
            await asyncio.sleep(0.2)
            await site.client.create_queue(missing)
            await quick.enqueue_async()
            await site.all_succeeded(1, missing)


async def test_a_queue_is_made_where_the_worker_is_told_to(server: RunningServer) -> None:
    async with Site(server.port) as site:
        missing = f"{site.queue}_made"
        async with site.working(queues={missing: 1}, create_queues=True):

            async def is_there() -> bool:
                return missing in await site.client.queue_names()

            await until(is_there)


async def test_results_are_delivered_when_the_server_is_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Those of jobs that ended while it was away, a failure and a move among them; and it is said once."""
    first = RunningServer(tmp_path)
    port = first.port
    async with Site(port) as site:
        gate = threading.Event()

        @site.app.job(queue=site.queue, attempts=1)
        def waits(how: str) -> None:
            gate.wait(20)
            if how == "fails":
                raise Fail(how)
            if how == "moves":
                raise Snooze(60)

        try:
            names = ["succeeds", "fails", "moves"]
            descriptors = [await waits.enqueue_async(name) for name in names]
            with caplog.at_level("INFO", "pinlater_workers.worker"):
                async with site.working() as worker:
                    await until(lambda: worker.view().running == 3)
                    first.send(signal.SIGKILL)
                    await asyncio.to_thread(first.ended)
                    await until(lambda: worker.view().queues[site.queue].state == "no server")
                    gate.set()
                    await until(lambda: worker.view().unacked == 3)
                    await until(lambda: len([text for text in caplog.messages if "not delivered" in text]) == 1)
                    with running(tmp_path, port=port) as second:
                        await asyncio.to_thread(lambda: second.port)
                        await until(lambda: worker.view().unacked == 0)
                        infos = [await site.info(descriptor) for descriptor in descriptors]
                        await waits.enqueue_async("succeeds")
                        await site.all_succeeded(2)
                        worker.stop()
                        await until(lambda: worker.view().is_stopping)
            states = [info.state for info in infos]
            assert states == [JobState.SUCCEEDED, JobState.FAILED, JobState.PENDING]
            assert [info.attempts_remaining for info in infos][2] == 1
            assert len([text for text in caplog.messages if "keeps trying" in text]) == 1
            assert len([text for text in caplog.messages if "answer again" in text]) == 1
        finally:
            first.clean_up()


async def test_acks_whose_answer_was_lost_are_sent_again(server: RunningServer) -> None:
    with Proxy(server.port) as proxy:
        async with Site(proxy.port, seen_port=server.port) as site:
            gate = threading.Event()

            @site.app.job(queue=site.queue, attempts=1)
            def waits(number: int) -> None:
                gate.wait(20)

            for number in range(4):
                await site.client.enqueue(site.queue, [Job(waits.body(number))])
            async with site.working(concurrency=4, ack_delay_s=0.01) as worker:
                await until(lambda: worker.view().running == 4)
                proxy.black_hole(answers_only=True)
                gate.set()
                await until(lambda: worker.view().unacked == 4)
                await site.all_succeeded(4)
                proxy.drop_connections()
                proxy.heal()
                await until(lambda: worker.view().unacked == 0)
            assert site.counted(worker, "dropped_results") == {"waits": 0}
            assert site.counted(worker, "ignored_results") == {"waits": 0}


async def test_connections_that_break_cost_no_attempt(server: RunningServer) -> None:
    """Claims are bound to connections: the heartbeat process binds them to another at once."""
    with Proxy(server.port) as proxy:
        async with Site(proxy.port, seen_port=server.port) as site:
            gate, starts = threading.Event(), []

            @site.app.job(queue=site.queue, attempts=3)
            def waits() -> None:
                starts.append(1)
                gate.wait(20)

            (descriptor,) = await site.client.enqueue(site.queue, [Job(waits.body())])
            async with site.working() as worker:
                await until(lambda: worker.view().running == 1)
                await site.beaten(descriptor)
                proxy.drop_connections()
                await asyncio.sleep(3.0)  # the server's grace is 2 s
                gate.set()
                info = await site.ended(descriptor)
            assert info.state is JobState.SUCCEEDED
            assert starts == [1]

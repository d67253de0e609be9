"""Two processes of one server, and the only store goes: jobs are taken all the same, and none is lost or done twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pinlater.client.async_client import AsyncClient
from pinlater.errors import NoHealthyShards, OutcomeUnknown, PinLaterError
from pinlater.model import Ack, DequeueRequest, Job, JobState
from pinlater.overflow import notice
from pinlater.overflow.naming import overflow_of
from tests.stores.process import StoreServer, dies_with_us

pytestmark = pytest.mark.slow
WITHIN_S = 20.0
TAKEN_OVER_S = 2.0
BOUND = 64 * 2**20


class ServerProcess:
    """One process; `log` are the events that it has said."""

    def __init__(self, folder: Path, url: str) -> None:
        self.log: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [*dies_with_us(), sys.executable, "-m", "tests.server.overflow_server", str(folder), url, str(BOUND)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._process.stdout is not None
        port = self._process.stdout.readline()
        assert port, self.log
        self.address = f"127.0.0.1:{port.strip()}"

    def _read(self) -> None:
        assert self._process.stderr is not None
        for text in self._process.stderr:
            try:
                self.log.append(json.loads(text))
            except ValueError:
                self.log.append({"event": text})

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        code = self._process.wait(WITHIN_S)
        self._reader.join(WITHIN_S)
        return code

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reader.join(WITHIN_S)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()


@contextlib.contextmanager
def two_processes(folder: Path, url: str) -> Iterator[list[ServerProcess]]:
    with contextlib.ExitStack() as stack:
        processes = []
        for _ in range(2):
            processes.append(ServerProcess(folder, url))
            stack.callback(processes[-1].close)
        yield processes


@contextlib.asynccontextmanager
async def clients_of(processes: Sequence[ServerProcess]) -> AsyncIterator[list[AsyncClient]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(AsyncClient(each.address, timeout=8.0)) for each in processes]


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not await holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.05)


async def enqueue(client: AsyncClient, body: str) -> str:
    """Also over the moment in which a store goes: what may be stored there is gone with it."""
    for _ in range(20):
        with contextlib.suppress(OutcomeUnknown):
            (descriptor,) = await client.enqueue("mail", [Job(body.encode())])
            return descriptor
    raise AssertionError("it never was enqueued")


async def take_all(clients: Sequence[AsyncClient], jobs: int) -> Counter[bytes]:
    """Dequeue and ack until so many jobs came, and then none for a while."""
    seen: Counter[bytes] = Counter()

    async def taken() -> bool:
        for client in clients:
            with contextlib.suppress(NoHealthyShards):
                got = await client.dequeue(DequeueRequest("mail", 7))
                seen.update(job.body for job in got)
                await client.ack("mail", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in got])
        return sum(seen.values()) >= jobs

    await eventually(taken)
    for client in clients:
        assert await client.dequeue(DequeueRequest("mail", 7, wait_ms=700)) == []
    return seen


async def test_jobs_are_taken_while_the_store_is_away_and_all_are_done_once(
    tmp_path: Path, durable_redis_server: StoreServer
) -> None:
    with two_processes(tmp_path, durable_redis_server.url()) as processes:
        async with clients_of(processes) as clients:
            await clients[0].create_queue("mail")
            names = [f"before {number}" for number in range(4)]
            before = [await enqueue(clients[number % 2], name) for number, name in enumerate(names)]
            assert not any(map(overflow_of, before))
            durable_redis_server.terminate()
            away = [f"away {number}" for number in range(60)]
            kept = [await enqueue(clients[number % 2], name) for number, name in enumerate(away)]
            assert len({overflow_of(each) for each in kept} - {None}) == 1, "one overflow shard for both"
            for client in clients:
                found = await client.lookup(kept, include_body=True)
                assert [found[each].body for each in kept] == [name.encode() for name in away]
            (job,) = await clients[1].dequeue(DequeueRequest("mail", 1))
            await clients[0].ack("mail", [Ack(job.descriptor)])
            durable_redis_server.start()
            seen = await take_all(clients, len(names) + len(away) - 1)
            seen[job.body] += 1
            assert seen == Counter(name.encode() for name in names + away)

            async def all_are_done() -> bool:
                found = await clients[1].lookup(kept)
                return {each.state for each in found.values()} == {JobState.SUCCEEDED} and len(found) == len(kept)

            await eventually(all_are_done)
        assert [each.end(signal.SIGTERM) for each in processes] == [0, 0]
        assert not [event for each in processes for event in each.log if event["event"] == "overflow_left"]


async def test_a_stop_without_the_store_says_what_is_left_and_the_next_start_moves_it(
    tmp_path: Path, durable_redis_server: StoreServer
) -> None:
    url = durable_redis_server.url()
    with two_processes(tmp_path, url) as processes:
        async with clients_of(processes) as clients:
            await clients[0].create_queue("mail")
            await enqueue(clients[0], "first")
            durable_redis_server.terminate()
            kept = [await enqueue(clients[1], f"kept {number}") for number in range(10)]
        assert [each.end(signal.SIGTERM) for each in processes] == [0, 0]
        left = [event for each in processes for event in each.log if event["event"] == "overflow_left"]
        assert left
        assert (left[-1]["jobs"], left[-1]["file"]) == (10, str(tmp_path / "overflow.db"))
    with two_processes(tmp_path, url) as processes:
        async with clients_of(processes) as clients:
            assert list(await clients[1].lookup(kept)) == kept, "also while the store is away"
            durable_redis_server.start()
            assert len(await take_all(clients, 11)) == 11


async def test_a_stop_with_the_store_back_moves_jobs_first(tmp_path: Path, durable_redis_server: StoreServer) -> None:
    url = durable_redis_server.url()
    with two_processes(tmp_path, url) as processes:
        async with clients_of(processes) as clients:
            await clients[0].create_queue("mail")
            durable_redis_server.terminate()
            for number in range(10):
                await enqueue(clients[1], f"kept {number}")
            durable_redis_server.start()

            async def is_back() -> bool:
                return not overflow_of(await enqueue(clients[0], "probe"))

            await eventually(is_back)
        assert [each.end(signal.SIGTERM) for each in processes] == [0, 0]
        assert not [event for each in processes for event in each.log if event["event"] == "overflow_left"]


async def test_when_the_owner_is_killed_the_other_process_takes_over(
    tmp_path: Path, durable_redis_server: StoreServer
) -> None:
    with two_processes(tmp_path, durable_redis_server.url()) as processes:
        async with clients_of(processes) as clients:
            await clients[0].create_queue("mail")
            durable_redis_server.terminate()
            kept = [await enqueue(clients[number % 2], f"kept {number}") for number in range(6)]
            pid = json.loads((tmp_path / notice.FILE).read_text())["pid"]
            owner, other = sorted(zip(processes, clients, strict=True), key=lambda pair: pair[0].pid != pid)
            assert owner[0].pid == pid
            killed_at = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            more = await enqueue(other[1], "more")
            assert time.monotonic() - killed_at < TAKEN_OVER_S
            assert list(await other[1].lookup([*kept, more])) == [*kept, more]
            durable_redis_server.start()
            seen = await take_all([other[1]], 7)
            assert len(seen) == 7
            with pytest.raises(PinLaterError):
                await owner[1].lookup(kept, timeout=0.5)

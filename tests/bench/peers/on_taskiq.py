"""The jobs on taskiq, on Redis streams, which it acknowledges: one queue, since a worker of it has one."""

from __future__ import annotations

import asyncio

from taskiq_redis import RedisStreamBroker

from tests.bench.peers.record import BROKER, QUEUES, write_begun

broker = RedisStreamBroker(BROKER, queue_name=QUEUES[0])


@broker.task(task_name="noop")
async def noop(sent_ns: int) -> None:
    write_begun(QUEUES[0], sent_ns)


_runner = asyncio.Runner()


def send(queue: str, sent_ns: list[int]) -> None:
    _runner.run(_send(sent_ns))


async def _send(sent_ns: list[int]) -> None:
    await broker.startup()  # makes the group of consumers: what was sent before is not read
    for each in sent_ns:
        await noop.kiq(each)

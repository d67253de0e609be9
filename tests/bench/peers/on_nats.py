"""The jobs on NATS JetStream: a stream for each queue, and a durable consumer to which they are pushed."""

from __future__ import annotations

import asyncio

import nats
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from tests.bench.peers.record import BROKER, QUEUES, body_of, write_begun_of

_streams: list[JetStreamContext] = []


async def _stream() -> JetStreamContext:
    if not _streams:
        stream = (await nats.connect(f"nats://{BROKER}")).jetstream()
        for queue in QUEUES:
            await stream.add_stream(name=queue, subjects=[queue])
        _streams.append(stream)
    return _streams[0]


async def send(queue: str, sent_ns: list[int]) -> None:
    stream = await _stream()
    if len(sent_ns) == 1:
        await stream.publish(queue, body_of(queue, sent_ns[0]))
        return
    await asyncio.gather(*[await stream.publish_async(queue, body_of(queue, each)) for each in sent_ns])


async def consume() -> None:
    await (await _stream()).subscribe(QUEUES[0], durable="bench", cb=_begin, manual_ack=True)
    await asyncio.Event().wait()


async def _begin(message: Msg) -> None:
    write_begun_of(message.data)
    await message.ack()

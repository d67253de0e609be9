"""The jobs on dramatiq: an actor for each queue."""

from __future__ import annotations

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from tests.bench.peers.record import BROKER, QUEUES, write_begun

broker = RedisBroker(url=BROKER)
dramatiq.set_broker(broker)


def _actor(queue: str):
    def noop(sent_ns: int) -> None:
        write_begun(queue, sent_ns)

    return dramatiq.actor(noop, actor_name=f"noop_{queue}", queue_name=queue)


ACTORS = {queue: _actor(queue) for queue in QUEUES}


def send(queue: str, sent_ns: list[int]) -> None:
    for each in sent_ns:
        ACTORS[queue].send(each)

"""The jobs on RabbitMQ: a quorum queue, whose broker confirms each message."""

from __future__ import annotations

from contextlib import suppress

from amqp import Connection, Message

from tests.bench.peers.record import AT_ONCE, BROKER, QUEUES, body_of, write_begun_of

PERSISTENT = 2
_connection = Connection(BROKER)
_connection.connect()
_channel = _connection.channel()
for _queue in QUEUES:
    _channel.queue_declare(_queue, durable=True, auto_delete=False, arguments={"x-queue-type": "quorum"})


_sent = 0
_unconfirmed: set[int] = set()
"""The numbers of the messages that the broker has not confirmed yet."""


def _confirm(number: int, is_multiple: bool) -> None:
    """That message, or all up to it."""
    _unconfirmed.difference_update([each for each in _unconfirmed if each <= number] if is_multiple else [number])


_channel.confirm_select()
_channel.events["basic_ack"].add(_confirm)


def send(queue: str, sent_ns: list[int]) -> None:
    global _sent
    for each in sent_ns:
        _sent += 1
        _unconfirmed.add(_sent)
        _channel.basic_publish(Message(body_of(queue, each), delivery_mode=PERSISTENT), routing_key=queue)
    while _unconfirmed:
        _connection.drain_events()


def consume() -> None:
    """A confirmation stands for all messages before it, and is sent once for those that are there already."""
    _channel.basic_qos(0, 2 * AT_ONCE, False)
    _channel.basic_consume(QUEUES[0], callback=_begin)
    while True:
        _connection.drain_events()
        with suppress(TimeoutError):
            while len(_begun) < AT_ONCE:
                _connection.drain_events(timeout=0)
        if _begun:
            _channel.basic_ack(_begun[-1], multiple=True)
            _begun.clear()


def _begin(message: Message) -> None:
    write_begun_of(message.body)
    _begun.append(message.delivery_tag)


_begun: list[int] = []

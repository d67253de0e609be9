"""The jobs on beanstalkd, in its own protocol on one connection: what is sent at once is written at once."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from functools import cache

from tests.bench.peers.record import AT_ONCE, BROKER, QUEUES, body_of, write_begun_of

PUT = b"put 0 0 60 %d\r\n%b\r\n"
"""Priority, delay, time to run, length."""


class BeanstalkdConnection:
    """RuntimeError, where an answer is none that is expected."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers = connection.makefile("rb")
        self._used = ""

    def put(self, queue: str, bodies: Sequence[bytes]) -> None:
        if queue != self._used:
            self._connection.sendall(b"use %b\r\n" % queue.encode())
            self._answer(b"USING")
            self._used = queue
        self._connection.sendall(b"".join(PUT % (len(body), body) for body in bodies))
        for _ in bodies:
            self._answer(b"INSERTED")

    def watch(self, queue: str) -> None:
        self._connection.sendall(b"watch %b\r\n" % queue.encode())
        self._answer(b"WATCHING")

    def reserve(self, wanted: int, done: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Delete those that are done; ids and bodies of up to as many others, as they come, and of one at least."""
        reserves = b"reserve\r\n" + b"reserve-with-timeout 0\r\n" * (wanted - 1)
        self._connection.sendall(b"".join(b"delete %d\r\n" % each for each in done) + reserves)
        for _ in done:
            self._answer(b"DELETED")
        for _ in range(wanted):
            answer = self._answer(b"RESERVED", b"TIMED_OUT")
            if answer[0] == b"RESERVED":
                yield int(answer[1]), self._answers.read(int(answer[2]) + 2)[:-2]

    def _answer(self, *expected: bytes) -> list[bytes]:
        """Its words."""
        line = self._answers.readline()
        words = line.split()
        if not words or words[0] not in expected:
            raise RuntimeError(f"beanstalkd answered {line!r}")
        return words


@cache
def _connected() -> BeanstalkdConnection:
    host, _, port = BROKER.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return BeanstalkdConnection(connection)


def send(queue: str, sent_ns: list[int]) -> None:
    _connected().put(queue, [body_of(queue, each) for each in sent_ns])


def consume() -> None:
    connection = _connected()
    connection.watch(QUEUES[0])
    wanted, done = 1, list[int]()
    while True:
        begun = []
        for job, body in connection.reserve(wanted, done):
            write_begun_of(body)
            begun.append(job)
        done, wanted = begun, min(AT_ONCE, 2 * len(begun))

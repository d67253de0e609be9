"""Queue servers that are compared, each on free loopback ports and in an empty folder, until a block ends."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.bench.peers.products import BEANSTALKD, NATS, RABBITMQ
from tests.stores.process import dies_with_us, free_port

READY_WITHIN_S = 60.0
Command = Callable[[int, str], Sequence[str]]
"""The program that listens on a port and keeps what it keeps in a folder."""


@dataclass(frozen=True)
class Broker:
    """`hello`: what a new connection sends so that the broker answers; one that greets needs none.

    `beside`: a program that it needs, and `variables` its environment, both for the port of that program.
    """

    command: Command
    persistence: str
    hello: bytes = b""
    beside: Command | None = None
    variables: Callable[[int, str, int], Mapping[str, str]] = lambda port, folder, beside_port: {}


def _for_rabbitmq(port: int, folder: str, names_port: int) -> dict[str, str]:
    return {
        "HOME": folder,
        "RABBITMQ_ALLOW_INPUT": "true",  # one process, no script around it
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": folder,
        "RABBITMQ_LOG_BASE": folder,
        "RABBITMQ_CONF_ENV_FILE": f"{folder}/none.conf",
        "RABBITMQ_CONFIG_FILE": f"{folder}/none",
        "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(names_port),
    }


BROKERS = {
    "beanstalkd": Broker(
        lambda port, folder: [BEANSTALKD.program, "-l", "127.0.0.1", "-p", str(port)],
        "beanstalkd: in memory, its default",
        b"list-tubes\r\n",
    ),
    "nats": Broker(
        lambda port, folder: [NATS.program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", folder],
        "nats: a stream in files, its default, which are flushed to the disk every 2 minutes",
    ),
    "rabbitmq": Broker(
        lambda port, folder: [RABBITMQ.program, "-noinput"],
        "rabbitmq: a quorum queue of one node, persistent messages, flushed to the disk before they are confirmed",
        b"AMQP\x00\x00\x09\x01",
        # Erlang would start it for good
        lambda port, folder: ["epmd", "-address", "127.0.0.1", "-port", str(port)],
        _for_rabbitmq,
    ),
}


@contextmanager
def running_broker(name: str) -> Iterator[tuple[int, int]]:
    """Its port and its process."""
    broker, port, beside_port = BROKERS[name], free_port(), free_port()
    with ExitStack() as ending:
        folder = ending.enter_context(tempfile.TemporaryDirectory(prefix="pinlater-bench-", ignore_cleanup_errors=True))
        env = {**os.environ, **broker.variables(port, folder, beside_port)}
        if broker.beside:
            ending.enter_context(_running(broker.beside(beside_port, folder), env, folder))
        process = ending.enter_context(_running(broker.command(port, folder), env, folder))
        until_s = time.monotonic() + READY_WITHIN_S
        while not _answers(port, broker.hello):
            if process.poll() is not None or time.monotonic() > until_s:
                raise RuntimeError(f"{name} did not start: {Path(folder, 'log').read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)
        yield port, process.pid


@contextmanager
def _running(command: Sequence[str], env: Mapping[str, str], folder: str) -> Iterator[subprocess.Popen[bytes]]:
    with open(f"{folder}/log", "ab") as log:
        process = subprocess.Popen(
            [*dies_with_us(), *command], env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _answers(port: int, hello: bytes) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as connection:
        connection.sendall(hello)
        return connection.recv(1) != b""
    return False

"""Ten thousand connections that say nothing: what becomes of them, and what others see meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.running import Plain, running

CONNECTIONS = 10_000
ADDRESSES = 8
AT_A_TIME = 250
KEPT = 5_000
"""The bound of a process, by default."""

pytestmark = pytest.mark.slow


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CONNECTIONS + 2_000:
        pytest.skip(f"this machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def is_closed(connection: socket.socket) -> bool:
    """By the other end."""
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.usefixtures("many_files")
async def test_idle_connections_make_room_for_each_other_and_for_who_calls(tmp_path: Path) -> None:
    idle: list[socket.socket] = []
    with contextlib.ExitStack() as stack, running(tmp_path, "--http", "127.0.0.1:0") as server:
        caller = await Plain.to(server.port, "127.0.0.100")
        await caller.create_queue("mail")
        for number in range(CONNECTIONS):
            source = (f"127.0.0.{2 + number % ADDRESSES}", 0)
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=40.0, source_address=source)
            connection.setblocking(False)
            idle.append(stack.enter_context(connection))
            if number % AT_A_TIME == AT_A_TIME - 1:
                await caller.enqueue("mail", b"on a connection that is there")
                late = await Plain.to(server.port, "127.0.0.101")
                await late.enqueue("mail", b"on a new one")
                await late.close()
        open_now = CONNECTIONS - sum(map(is_closed, idle))
        assert KEPT - 2 * ADDRESSES <= open_now <= KEPT, "others make room, and no more than are needed"
        jobs = await caller.dequeue("mail", 2 * CONNECTIONS // AT_A_TIME)
        assert len(jobs) == 2 * CONNECTIONS // AT_A_TIME
        await caller.close()
        page = f"{server.wait_for('http_ready')['address'].rstrip('/')}/metrics"
        metrics = await asyncio.to_thread(httpx.get, page, trust_env=False)
        assert 'limit="idle_closed_for' in metrics.text

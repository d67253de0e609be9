"""With few descriptors, HTTP that is abused takes none of those that jobs need, and the log stays readable."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pinlater.config import load
from pinlater.listener import AcceptLoop, HttpListener, RateLimitedLog, listening
from pinlater.plan import within_descriptors
from tests.server.running import Plain, RunningServer, every, running

DESCRIPTORS = 256
HALF = b"GET /metrics HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def with_descriptors(folder: Path, soft: int, hard: int, *arguments: str) -> Iterator[RunningServer]:
    """A server that was started with these limits of descriptors."""
    script = folder / "prlimit.py"
    script.write_text(
        "import os, resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    with running(folder, *arguments, before=[sys.executable, str(script)]) as server:
        yield server


def http_port(server: RunningServer) -> int:
    return int(server.wait_for("http_ready")["address"].rstrip("/").rpartition(":")[2])


def limit_of(pid: int) -> int:
    line = next(each for each in Path(f"/proc/{pid}/limits").read_text().splitlines() if "open files" in each)
    return int(line.split()[3])


async def get(port: int, path: str) -> int:
    """The status; OSError where the connection is not served."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    line = await asyncio.wait_for(reader.readline(), 60)
    await reader.read()
    writer.close()
    return int(line.split()[1])


async def test_half_sent_requests_take_no_descriptor_that_jobs_need(tmp_path: Path, many_descriptors: None) -> None:
    with with_descriptors(tmp_path, DESCRIPTORS, DESCRIPTORS, "--http", "127.0.0.1:0") as server:
        bounded = server.wait_for("connections_bounded")
        assert bounded["at_most"] < DESCRIPTORS
        port = http_port(server)
        socks = [socket.create_connection(("127.0.0.1", port)) for _ in range(DESCRIPTORS + 100)]
        try:
            for sock in socks:
                with contextlib.suppress(OSError):
                    sock.sendall(HALF)
            plain = await Plain.to(server.port)
            await plain.create_queue("mail")
            await plain.enqueue("mail", b"x")
            assert len(await plain.dequeue("mail")) == 1
            await plain.close()
            assert await get(port, "/livez") == 200
        finally:
            for sock in socks:
                sock.close()
        assert server.stop() == 0
        told = [event for event in server.events if event["event"] == "http_connections_full"]
        assert 1 <= len(told) <= 2
        assert not [event for event in server.events if event["event"] == "text" or "exception" in event]


async def test_the_soft_limit_is_raised_for_all_processes(tmp_path: Path, many_descriptors: None) -> None:
    with with_descriptors(tmp_path, 100, 400) as server:
        pids = server.wait_for("ready")["workers"]
        assert [limit_of(pid) for pid in [server.process.pid, *pids]] == [400] * (1 + len(pids))


async def test_idle_connections_take_no_descriptor_that_the_store_needs(tmp_path: Path, many_descriptors: None) -> None:
    with with_descriptors(tmp_path, DESCRIPTORS, DESCRIPTORS) as server:
        socks = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(DESCRIPTORS + 100)]
        try:
            plain = await Plain.to(server.port)
            await plain.create_queue("mail")
            for _ in range(20):
                await plain.enqueue("mail", b"x")
            assert len(await plain.dequeue("mail", 20)) == 20
            await plain.close()
        finally:
            for sock in socks:
                sock.close()
        assert server.stop() == 0
        assert not [event for event in server.events if event["event"] == "text" or "exception" in event]


def test_connections_that_cannot_be_held_are_bounded_and_said() -> None:
    config = load({"max-connections": "5000", "max-calls": "16"}, {}).config
    with capture_logs() as lines:
        bounded = within_descriptors(config, 1024)
    assert bounded.max_connections == 1024 - 64 - 24
    assert [(line["event"], line["at_most"]) for line in lines] == [("connections_bounded", 936)]
    with capture_logs() as lines:
        assert within_descriptors(config, 10_000) == config
    assert lines == []


class Echo(asyncio.Protocol):
    """Answers what it is sent, at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


@contextlib.asynccontextmanager
async def echoing(max_connections: int):  # type: ignore[no-untyped-def]
    lines: list[str] = []
    log = RateLimitedLog(lambda event, **fields: lines.append(event))
    made: list[Echo] = []

    def make() -> Echo:
        made.append(Echo())
        return made[-1]

    listener = HttpListener(listening("127.0.0.1", 0), make, log, max_connections)
    try:
        yield listener, made, lines
    finally:
        listener.close()
        for echo in made:
            echo.transport.abort()
        await asyncio.sleep(0)


async def test_one_connection_too_many_takes_the_place_of_the_oldest_that_is_in_no_request() -> None:
    async with echoing(3) as (listener, made, lines):
        open_ones = []
        for _ in range(3):
            open_ones.append(await asyncio.open_connection("127.0.0.1", listener.port))
            await every(0.005, lambda: len(made) == len(open_ones) and hasattr(made[-1], "transport"))
        with listener.serving(made[0].transport):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(b"x")
            assert await reader.read(1) == b"x"
            with contextlib.suppress(ConnectionError):
                assert await open_ones[1][0].read() == b""
            for index in (0, 2):
                open_ones[index][1].write(b"y")
                assert await open_ones[index][0].read(1) == b"y"
        assert lines == ["http_connections_full"]
        for _, each in [*open_ones, (reader, writer)]:
            each.close()


async def test_a_request_that_drips_and_a_connection_that_says_nothing_are_closed() -> None:
    async with echoing(10) as (listener, made, lines):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        await every(0.005, lambda: bool(made) and hasattr(made[0], "transport"))
        loop = asyncio.get_running_loop()
        began, real = loop.time(), loop.time
        loop.time = lambda: real() + (9 if real() - began < 0.3 else 60)  # type: ignore[method-assign]
        try:
            with contextlib.suppress(ConnectionError):
                async for _ in reader:
                    pass
        finally:
            loop.time = real  # type: ignore[method-assign]
        assert lines == ["http_timed_out"]
        writer.close()


async def test_a_connection_that_is_held_is_closed_neither_for_being_idle_nor_for_who_comes_next() -> None:
    async with echoing(2) as (listener, made, lines):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        await every(0.005, lambda: bool(made) and hasattr(made[0], "transport"))
        held = listener.connection_of(made[0].transport)
        assert held is not None
        with listener.serving(made[0].transport):
            held.hold()
        idle, idler = await asyncio.open_connection("127.0.0.1", listener.port)
        await every(0.005, lambda: len(made) == 2 and hasattr(made[1], "transport"))
        loop = asyncio.get_running_loop()
        real = loop.time
        loop.time = lambda: real() + 600  # type: ignore[method-assign]
        try:
            with contextlib.suppress(ConnectionError):
                assert await idle.read() == b"", "it is closed for being idle, and the other one is not"
        finally:
            loop.time = real  # type: ignore[method-assign]
        idler.close()
        others = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(2)]
        with contextlib.suppress(ConnectionError):
            assert await others[0][0].read() == b"", "it makes room, and the one that is older does not"
        writer.write(b"x")
        assert await reader.read(1) == b"x"
        held.let_go()
        others.append(await asyncio.open_connection("127.0.0.1", listener.port))
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        await every(0.005, lambda: held.is_lost)
        assert lines == ["http_timed_out", "http_connections_full"]
        for _, each in [*others, (reader, writer)]:
            each.close()


async def test_a_process_without_descriptors_says_so_once_and_goes_on_later(many_descriptors: None) -> None:
    lines: list[str] = []
    given: list[socket.socket] = []
    (listener,) = listening("127.0.0.1", 0)
    port = listener.getsockname()[1]
    loop = AcceptLoop(listener, given.append, RateLimitedLog(lambda event, **fields: lines.append(event)))
    connect = f"import socket, sys; s = socket.create_connection(('127.0.0.1', {port})); sys.stdin.read()"
    caller = subprocess.Popen([sys.executable, "-c", connect], stdin=subprocess.PIPE)  # noqa: ASYNC220
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(each.name) for each in Path("/proc/self/fd").iterdir()) + 1
    with contextlib.ExitStack() as held:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, hard))
        try:
            with contextlib.suppress(OSError):
                while True:
                    held.enter_context(socket.socket())
            await every(0.02, lambda: bool(lines))
            await asyncio.sleep(1.2)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert given == []
    await every(0.02, lambda: len(given) == 1)
    assert lines == ["cannot_accept"]
    loop.close()
    given[0].close()
    caller.communicate()

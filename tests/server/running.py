"""A server as an operator runs it, `pinlater serve` in a process of its own, and a plain connection to it."""

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
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pinlater.client.async_client import AsyncClient
from pinlater.model import DequeueRequest, Job, RequestContext
from pinlater.wire.codec import Reply, decode_reply, encode_call
from pinlater.wire.convert import call_args, dequeue_to_wire, enqueue_to_wire
from tests.forked_programs import Program
from tests.stores.process import dies_with_us

PROGRAM = str(Path(sys.executable).parent / "pinlater")
WITHIN_S = 100.0
ME = RequestContext("test")
BY_EXEC = ("env",)
"""As `before`, where a test looks at what the system shows of the start of a process (see tests/forked_programs.py)."""


class RunningServer:
    """`pinlater serve ARGUMENTS` in a folder; its log is read as it comes. A `port` of None leaves that to the file."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        port: int | None = 0,
        before: Sequence[str] = (),
        program: str = PROGRAM,
        **variables: str,
    ) -> None:
        """`variables` are those of the environment, beside its own that are not the project's. `before`: a command that
        starts it.
        """
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
        environment["PINLATER_HTTP"] = environment["PINLATER_API"] = (
            "none"  # the first of several would take its address
        )
        environment["PINLATER_CALL_TIMEOUT"] = "30s"  # a busy machine may stop for seconds, and no store is slow then
        environment |= variables
        self.events: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self.process = Program(
            [*dies_with_us(), *before, program, "serve", *([] if port is None else ["--port", str(port)]), *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            try:
                event = json.loads(text)
            except ValueError:
                event = {"event": "text", "text": text.rstrip()}
            with self._news:
                self.events.append(event)
                self._news.notify_all()

    def wait_for(self, name: str, *, after: int = 0, **fields: object) -> dict[str, Any]:
        """The first such event after so many of the log. Fails after a while."""
        deadline = time.monotonic() + WITHIN_S
        with self._news:
            while True:
                for event in self.events[after:]:
                    if event["event"] == name and fields.items() <= event.items():
                        return event
                left = deadline - time.monotonic()
                assert left > 0, f"no {name} in {self.events}"
                assert self._reader.is_alive(), f"ended without {name}: {self.events}"
                self._news.wait(min(left, 0.5))

    @property
    def port(self) -> int:
        return int(self.wait_for("ready")["address"].rpartition(":")[2])

    def has_child(self) -> bool:
        """It has begun to start its workers."""
        pid = self.process.pid
        return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text())

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """The exit code."""
        self.send(number)
        return self.ended()

    def ended(self) -> int:
        code = self.process.wait(WITHIN_S)
        self._reader.join(WITHIN_S)
        return code

    def clean_up(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(WITHIN_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.ended()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


@contextlib.contextmanager
def running(
    folder: Path, *arguments: str, port: int | None = 0, before: Sequence[str] = (), **variables: str
) -> Iterator[RunningServer]:
    """A server that is ended with the block, however it ends."""
    server = RunningServer(folder, *arguments, port=port, before=before, **variables)
    try:
        yield server
    finally:
        server.clean_up()


@contextlib.asynccontextmanager
async def clients_of(server: RunningServer, number: int, *, timeout: float = 10.0) -> AsyncIterator[list[AsyncClient]]:
    """Connections are dealt to the processes of a server in turn: each has some of these, where there are enough."""
    async with contextlib.AsyncExitStack() as stack:
        address = f"127.0.0.1:{server.port}"
        yield [await stack.enter_async_context(AsyncClient(address, timeout=timeout)) for _ in range(number)]


class Plain:
    """One framed binary connection with one call at a time, and no retry of anything."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._seqid = 0

    @classmethod
    async def to(cls, port: int, by_way_of: str = "127.0.0.1") -> Plain:
        """`by_way_of` is the address that the server sees."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, local_addr=(by_way_of, 0)))

    async def send(self, method: str, *, context: RequestContext = ME, **arguments: Any) -> None:
        self._seqid += 1
        message = encode_call(method, self._seqid, call_args(method, context, **arguments))
        self.writer.write(len(message).to_bytes(4, "big") + message)
        await self.writer.drain()

    async def answer(self) -> Reply:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        reply = decode_reply(await self.reader.readexactly(size))
        assert reply.seqid == self._seqid
        return reply

    async def call(self, method: str, **arguments: Any) -> Any:
        """The success; AssertionError for an exception."""
        await self.send(method, **arguments)
        reply = await self.answer()
        assert reply.exception is None, reply.exception
        return reply.success

    async def create_queue(self, name: str) -> None:
        await self.call("createQueue", name=name)

    async def enqueue(self, queue: str, *bodies: bytes) -> list[str]:
        success = await self.call("enqueueJobs", request=enqueue_to_wire(queue, [Job(body) for body in bodies]))
        descriptors: list[str] = success.job_descriptors
        return descriptors

    async def dequeue(self, queue: str, limit: int = 1, wait_ms: int = 0) -> dict[str, bytes]:
        success = await self.call("dequeueJobs", request=dequeue_to_wire(DequeueRequest(queue, limit, wait_ms=wait_ms)))
        return dict(success.jobs or {})

    def half_close(self) -> None:
        """Close the sending side alone."""
        self.writer.write_eof()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


async def every(seconds: float, check: Callable[[], bool]) -> None:
    """Until the check holds. Fails after a while."""
    deadline = time.monotonic() + WITHIN_S
    while not check():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(seconds)


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()

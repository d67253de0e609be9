"""The whole service in this process, over SQLite in memory: calls of Thrift, requests of HTTP and the dashboard."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from pinlater.client.async_client import AsyncClient
from pinlater.dashboard.site import DashboardSettings, add_dashboard
from pinlater.embedded import EmbeddedServer, EmbeddedTransport
from pinlater.http.http_protocol import ProblemProtocol
from pinlater.http.http_server import LINGERING_S
from pinlater.http.site import HttpSettings, make_app
from pinlater.job_limits import JobLimits
from pinlater.model import DequeueRequest, Job
from pinlater.wire.codec import CallReader, RefusedCall, decode_reply
from pinlater.wire.message import WireError
from tests.fuzz.faults import FaultFound
from tests.fuzz.messages import QUEUE, calls, changed_message
from tests.fuzz.quiet import first_error, from_loop
from tests.fuzz.requests import changed_request, requests
from tests.fuzz.target import Run, Target
from tests.unit.breaking import HeldClock

WAITS_S = 0.02
"""Of a call that waits: longer than what is there takes to answer."""

HUNG_S = 20.0
RENEWED_AFTER = 5_000
JOBS = 20
"""That are in progress, and as many that are ready."""


@contextmanager
def _server() -> Iterator[EmbeddedServer]:
    """With the queue that seeds name, and jobs that their descriptors name."""
    server = EmbeddedServer(HeldClock(), JobLimits(), lambda: (QUEUE,), lambda *_: None, lambda *_: None)
    server.loop.set_exception_handler(from_loop)
    try:
        server.run(_filled(server))
        yield server
    finally:
        server.close()


async def _filled(server: EmbeddedServer) -> None:
    client = AsyncClient(transport=EmbeddedTransport(server), source="me", tls=False, token="")
    await client.enqueue(QUEUE, [Job(b"{}") for _ in range(2 * JOBS)])
    await client.dequeue(DequeueRequest(QUEUE, JOBS))


@contextmanager
def _calls() -> Iterator[Run]:
    with _server() as server:

        async def answer(data: bytes, within_s: float) -> bytes:
            async with asyncio.timeout(within_s):
                return await server.reply(data)

        def run(data: bytes) -> None:
            call = CallReader().read(data)
            waits = bool(getattr(getattr(call.args, "request", None), "wait_ms", 0))
            try:
                reply = server.run(answer(data, WAITS_S if waits else HUNG_S))
            except TimeoutError as error:
                if not waits:
                    raise FaultFound(f"{call.name} hangs: for more than {HUNG_S} s") from error
                return
            try:
                found = decode_reply(reply)
            except WireError as error:
                raise FaultFound(f"the answer to {call.name} is none: {error}") from error
            if (found.name, found.seqid) != (call.name, call.seqid):
                raise FaultFound(f"the answer to {call.name} is another one: {found}")
            _look_at_log(call.name)
            _make_queue_again(server)

        yield run


def _make_queue_again(server: EmbeddedServer) -> None:
    """Some calls remove it, and most others need it."""
    if not server.has_queue(QUEUE):
        server.run(server.queues.create(QUEUE, "me"))


def _look_at_log(what: str) -> None:
    error = first_error()
    if error is not None:
        raise FaultFound(f"{what} logged {type(error).__name__}: {error}") from error


class _Site:
    """The HTTP interface with the dashboard, and its connections, on the loop of a server."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._loop = server.loop
        client = AsyncClient(transport=EmbeddedTransport(server), source="http", tls=False, token="")
        self.app = make_app(client, HttpSettings(pages="/dashboard"))
        self.dashboard = add_dashboard(self.app, DashboardSettings())
        self._runner = web.AppRunner(self.app, access_log=None, handle_signals=False, handler_cancellation=True)
        self.cookie = self.csrf = b""

    async def open(self) -> None:
        await self._runner.setup()
        link = b"POST /dashboard/links HTTP/1.1\r\nHost: localhost\r\nX-Admin-Password: word\r\n\r\n"
        path = json.loads((await self.answers(link))[1])["path"]
        head, _ = await self.answers(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self.cookie = head.partition(b"Set-Cookie: ")[2].partition(b";")[0]
        page = b"GET /dashboard/queues HTTP/1.1\r\nHost: localhost\r\nCookie: " + self.cookie + b"\r\n\r\n"
        self.csrf = (await self.answers(page))[1].partition(b'name="csrf" value="')[2].partition(b'"')[0]

    def in_session(self, data: bytes) -> bytes:
        """The request with the texts of a session where it stands for them, and a length that fits as before."""
        head, end, body = data.partition(b"\r\n\r\n")
        whole = body.replace(b"{csrf}", self.csrf)
        head = head.replace(b"Content-Length: %d" % len(body), b"Content-Length: %d" % len(whole))
        return head.replace(b"{cookie}", self.cookie).replace(b"{csrf}", self.csrf) + end + whole

    async def close(self) -> None:
        await self._runner.cleanup()
        await self.dashboard.close()

    async def answers(self, data: bytes) -> tuple[bytes, bytes]:
        """Head and body of the first answer to the bytes of a connection; empty where it is closed without."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        try:
            transport, _ = await self._loop.connect_accepted_socket(self._protocol, theirs)
            await self._loop.sock_sendall(ours, data)
            try:
                async with asyncio.timeout(HUNG_S):
                    return await self._first_answer(ours)
            finally:
                transport.abort()
        finally:
            ours.close()

    def _protocol(self) -> ProblemProtocol:
        server = self._runner.server
        assert server is not None
        return ProblemProtocol(server, loop=self._loop, access_log=None, lingering_time=LINGERING_S)  # type: ignore[arg-type]

    async def _first_answer(self, ours: socket.socket) -> tuple[bytes, bytes]:
        got = b""
        while b"\r\n\r\n" not in got:
            chunk = await self._some(ours)
            if not chunk:
                return got, b""
            got += chunk
        head, _, body = got.partition(b"\r\n\r\n")
        length = _length_of(head)
        while length is not None and len(body) < length:
            chunk = await self._some(ours)
            if not chunk:
                break
            body += chunk
        return head, body

    async def _some(self, ours: socket.socket) -> bytes:
        try:
            return await self._loop.sock_recv(ours, 65_536)
        except ConnectionError:
            return b""


def _length_of(head: bytes) -> int | None:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return None


def has_more_to_come(data: bytes) -> bool:
    """Whether the bytes are no whole request, so that a server rightly waits for the rest of it."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return True
    lowered = head.lower()
    if b"transfer-encoding" in lowered or b"upgrade" in lowered:
        return True
    try:
        return (_length_of(head) or 0) > len(body)
    except ValueError:
        return False


@contextmanager
def _requests() -> Iterator[Run]:
    with _server() as server:
        site = _Site(server)
        server.run(_opened(site))

        async def answer(data: bytes, within_s: float) -> tuple[bytes, bytes]:
            async with asyncio.timeout(within_s):
                return await site.answers(data)

        def run(data: bytes) -> None:
            data = site.in_session(data)
            may_wait = has_more_to_come(data) or b"wait_ms" in data or b"/events" in data
            try:
                head, body = server.run(answer(data, WAITS_S if may_wait else HUNG_S))
            except TimeoutError as error:
                if not may_wait:
                    raise FaultFound("a request hangs: no answer") from error
                return
            _look_at_log("a request")
            _make_queue_again(server)
            if head:
                check_answer(data, head, body)

        try:
            yield run
        finally:
            server.run(site.close())


async def _opened(site: _Site) -> None:
    await site.open()


def check_answer(data: bytes, head: bytes, body: bytes) -> None:
    first, *lines = head.split(b"\r\n")
    words = first.split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise FaultFound(f"an answer that is none: {first!r}")
    if any(b":" not in line or b"\n" in line or b"\r" in line for line in lines):
        raise FaultFound(f"an answer with a header that is none: {head!r}")
    status = int(words[1])
    if status == 500:
        raise FaultFound(f"an answer with status 500: {body[:300]!r}")
    is_json = any(
        line.lower().startswith((b"content-type: application/json", b"content-type: application/problem"))
        for line in lines
    )
    if is_json and not data.startswith(b"HEAD") and status not in (204, 304):
        try:
            json.loads(body)
        except ValueError as error:
            raise FaultFound(f"an answer that is no JSON: {body[:300]!r}") from error


TARGETS = (
    Target(
        "thrift-service",
        "calls, carried out by the whole service over SQLite in memory",
        _calls,
        calls,
        changed_message,
        (WireError, RefusedCall),
        renewed_after=RENEWED_AFTER,
    ),
    Target(
        "http-site",
        "requests to every route of the HTTP interface and every page and form of the dashboard",
        _requests,
        requests,
        changed_request,
        (),
        renewed_after=RENEWED_AFTER,
    ),
)

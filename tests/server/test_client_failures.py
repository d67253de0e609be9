"""What a client does when a server is away, slow, cut off, stopping or hostile."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pinlater
from pinlater import Ack, AckOutcome, AsyncClient, DequeueRequest, Job, JobFilter, JobState, ScanPage, errors
from pinlater.wire.codec import WireCall, decode_call, encode_application_exception, encode_reply
from pinlater.wire.message import ApplicationErrorKind
from pinlater.wire.methods import ACK
from tests.faults.proxy import Proxy
from tests.server.memory_api import EchoService
from tests.server.running import running
from tests.server.serving import Served, serving
from tests.speed import slower
from tests.stores.process import free_port

pytestmark = pytest.mark.usefixtures("way")

PENDING = JobFilter("mail", JobState.PENDING)
Answer = Callable[[WireCall], bytes]


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


@contextlib.asynccontextmanager
async def scripted(answer: Answer) -> AsyncIterator[tuple[str, list[WireCall]]]:
    """A server that sends whatever `answer` makes of a call; b"" ends the connection."""
    seen: list[WireCall] = []
    busy: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        busy.add(task)
        try:
            data = b"?"
            while data:
                size = int.from_bytes(await reader.readexactly(4), "big")
                seen.append(decode_call(await reader.readexactly(size)))
                data = answer(seen[-1])
                writer.write(data)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            busy.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", seen
    finally:
        server.close()
        for task in list(busy):
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def behind_proxy(**options: float) -> AsyncIterator[tuple[Served, Proxy, AsyncClient]]:
    async with serving() as served:
        with Proxy(served.port) as proxy:
            async with AsyncClient(f"127.0.0.1:{proxy.port}", **options) as client:  # type: ignore[arg-type]
                yield served, proxy, client


def _asked(served: Served, name: str) -> int:
    return sum(called == name for called, _ in served.service.calls)


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    return f"127.0.0.1:{free_port()}"


# -- away ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_patient", [True, False])
async def test_when_no_server_can_be_reached_all_are_named_when_the_time_is_over_or_soon(
    nobody: str, is_patient: bool
) -> None:
    other = f"127.0.0.1:{free_port()}"
    timeout_s = 1.0 if is_patient else 60.0
    async with AsyncClient(nobody, other, timeout=timeout_s, retry_unavailable=is_patient) as client:
        for call in (
            partial(client.queue_names),
            partial(client.enqueue, "mail", Job(b"")),
            partial(client.create_queue, "mail"),
        ):
            begun_s = time.monotonic()
            with pytest.raises(errors.ServerUnreachable) as caught:
                await call()
            assert (0.9 if is_patient else 0.0) < time.monotonic() - begun_s < slower(time.monotonic) * 20
            assert all(f"{address}: Connect" in caught.value.message for address in (nobody, other))
            shown = "".join(traceback.format_exception(caught.value))
            assert shown.count("Traceback") == 1, "those of the connections say nothing that the message does not"


async def test_a_host_without_an_address_is_unreachable_and_named() -> None:
    async with AsyncClient("no-such-host.invalid:1", timeout=0.5) as client:
        with pytest.raises(errors.ServerUnreachable, match=r"no-such-host\.invalid:1"):
            await client.queue_names()


async def test_a_server_that_is_away_is_left_out(nobody: str) -> None:
    async with serving() as served, AsyncClient(nobody, f"127.0.0.1:{served.port}") as client:
        for _ in range(20):
            assert await client.queue_names() == {"mail", "images"}
        await asyncio.gather(*(client.enqueue("mail", Job(b"")) for _ in range(100)))
        assert len(served.service.jobs["mail"]) == 100


async def test_when_one_of_two_servers_dies_no_enqueue_fails_that_was_not_under_way() -> None:
    async with serving() as one, serving() as two:
        with Proxy(one.port) as proxy:
            async with AsyncClient(f"127.0.0.1:{proxy.port}", f"127.0.0.1:{two.port}") as client:
                for _ in range(3):
                    await asyncio.gather(*(client.enqueue("mail", [Job(b"")] * 2) for _ in range(20)))
                    proxy.cut()
                    await asyncio.sleep(0.05)
                    await asyncio.gather(*(client.enqueue("mail", [Job(b"")] * 2) for _ in range(20)))
                    proxy.heal()
                    await asyncio.sleep(0.3)
        stored = len(one.service.jobs["mail"]), len(two.service.jobs["mail"])
        assert sum(stored) == 3 * 80
        assert min(stored) > 20


async def test_no_call_goes_over_a_connection_that_a_draining_server_may_close_at_any_moment() -> None:
    async with contextlib.AsyncExitStack() as stack:
        one = await stack.enter_async_context(serving(drain_linger_s=60.0))
        two = await stack.enter_async_context(serving())
        client = await stack.enter_async_context(AsyncClient(f"127.0.0.1:{one.port}", f"127.0.0.1:{two.port}"))
        polls = [client.dequeue(DequeueRequest("mail", 1, wait_ms=1)) for _ in range(20)]
        await asyncio.gather(*polls, *(client.enqueue("mail", [Job(b"")] * 2) for _ in range(20)))
        assert one.server.connections > 2
        draining = asyncio.ensure_future(one.server.drain(None, 60.0))
        async with asyncio.timeout(60):
            while not draining.done():
                await client.enqueue("mail", [Job(b"")] * 2)
                await asyncio.sleep(0.01)
        await draining


async def test_when_one_of_two_server_processes_is_killed_only_calls_under_way_are_lost(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    stored: list[str] = []
    made = unknown = 0
    is_killed = False
    with contextlib.ExitStack() as stack:
        one, two = (stack.enter_context(running(tmp_path_factory.mktemp("served"))) for _ in range(2))
        async with AsyncClient(f"127.0.0.1:{one.port}", f"127.0.0.1:{two.port}") as client:
            for port in (one.port, two.port):
                async with AsyncClient(f"127.0.0.1:{port}") as single:
                    await single.create_queue("mail")

            async def caller() -> None:
                nonlocal made, unknown
                left = 20
                while left:
                    left, made = left - is_killed, made + 1
                    try:
                        stored.append(await client.enqueue("mail", Job(b"x")))
                    except errors.OutcomeUnknown:
                        unknown += 1

            callers = [asyncio.create_task(caller()) for _ in range(10)]
            while len(stored) < 60:
                await asyncio.sleep(0.001)
            one.send(signal.SIGKILL)
            is_killed = True
            await asyncio.gather(*callers)
            assert len(stored) + unknown == made
            assert unknown <= 10
            assert await client.count(PENDING) >= 1


async def test_a_server_that_comes_back_is_found_again() -> None:
    async with behind_proxy() as (_, proxy, client):
        await client.queue_names()
        proxy.cut()
        with pytest.raises(errors.ServerUnreachable):
            await client.queue_names(timeout=0.3)
        proxy.heal()
        assert await client.queue_names() == {"mail", "images"}


# -- slow ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0.4, 0.8])
async def test_no_call_takes_longer_than_its_timeout(timeout: float) -> None:
    """A busy machine needs a part of it to make a new connection."""
    async with behind_proxy() as (_, proxy, client):
        await client.queue_names()
        proxy.black_hole()
        expected: list[tuple[Callable[..., Awaitable[Any]], type[errors.PinLaterError]]] = [
            (client.queue_names, errors.ServerUnreachable),
            (partial(client.count, PENDING), errors.ServerUnreachable),
            (partial(client.enqueue, "mail", Job(b"")), errors.OutcomeUnknown),
            (partial(client.enqueue, "mail", [Job(b"")] * 2), errors.OutcomeUnknown),
            (partial(client.ack, "mail", [Ack("mail:s1:p1:1790000000000000")]), errors.OutcomeUnknown),
            (partial(client.dequeue, DequeueRequest("mail", 1)), errors.OutcomeUnknown),
            (partial(client.create_queue, "mail"), errors.OutcomeUnknown),
        ]
        for call, error in expected:
            begun_s = time.monotonic()
            with pytest.raises(error, match=r"no answer within .* s|no connection within the time-out"):
                await call(timeout=timeout)
            took_s = time.monotonic() - begun_s
            assert timeout * 0.45 <= took_s < slower(time.monotonic) * (timeout + 2.0)  # half, where no pause fits in


async def test_after_a_timeout_the_late_answer_reaches_nobody() -> None:
    async with behind_proxy() as (served, proxy, client):
        await client.create_queue("mail")
        proxy.black_hole(answers_only=True)
        with pytest.raises(errors.ServerUnreachable):
            await client.count(PENDING, timeout=0.2)
        proxy.heal()
        assert await client.queue_names() == {"mail", "images"}
        assert await client.count(PENDING) == 7
        assert _asked(served, "count") == 2


async def test_a_call_given_up_leaves_those_before_and_behind_it_alone() -> None:
    async with serving() as served, AsyncClient(f"127.0.0.1:{served.port}") as client:
        served.service.hold["slow"] = asyncio.Event()
        slow = [asyncio.create_task(client.enqueue("slow", [Job(b"")] * 2)) for _ in range(30)]
        await served.service.held.wait()
        slow[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow[0]
        served.service.hold["slow"].set()
        assert [len(descriptors) for descriptors in await asyncio.gather(*slow[1:])] == [2] * 29


async def test_a_server_that_never_accepts_ends_in_the_time_for_connecting() -> None:
    async with AsyncClient("127.0.0.1:9", timeout=0.3) as client:
        with pytest.raises(errors.ServerUnreachable):
            await client.queue_names()


# -- cut off -------------------------------------------------------------------------------------------------------


async def test_an_enqueue_that_was_sent_and_cut_off_has_an_unknown_outcome_and_is_not_sent_again() -> None:
    async with behind_proxy() as (served, proxy, client):
        served.service.hold["mail"] = asyncio.Event()
        call = asyncio.create_task(client.enqueue("mail", Job(b"once")))
        await served.service.held.wait()
        proxy.drop_connections()
        with pytest.raises(errors.OutcomeUnknown, match="may have been carried out"):
            await call
        assert _asked(served, "enqueue") == 1


async def test_a_dequeue_that_was_sent_and_cut_off_is_not_sent_again() -> None:
    async with behind_proxy() as (served, proxy, client):
        served.service.hold["mail"] = asyncio.Event()
        call = asyncio.create_task(client.dequeue(DequeueRequest("mail", 1, wait_ms=30_000)))
        await served.service.held.wait()
        proxy.drop_connections()
        with pytest.raises(errors.OutcomeUnknown):
            await call
        assert _asked(served, "dequeue") == 1


@pytest.mark.parametrize("method", ["queue_names", "count", "ack", "create_queue"])
async def test_a_call_that_may_be_made_twice_is_sent_again(method: str) -> None:
    dropped: list[str] = []

    def answer(call: WireCall) -> bytes:
        if len(dropped) < 2:
            dropped.append(call.name)
            return b""
        success = {"getQueueNames": ["a"], "getJobCount": 3, "ackJobs": ACK.answer([AckOutcome.SUCCEEDED])}
        return framed(encode_reply(call.name, call.seqid, success.get(call.name)))

    async with scripted(answer) as (address, seen), AsyncClient(address) as client:
        calls = {
            "queue_names": client.queue_names,
            "count": lambda: client.count(PENDING),
            "ack": lambda: client.ack("mail", [Ack("d")]),
            "create_queue": lambda: client.create_queue("mail"),
        }
        await calls[method]()
        assert len(seen) == 3


async def test_a_failure_that_nothing_fences_is_not_sent_again() -> None:
    async with scripted(lambda call: b"") as (address, seen), AsyncClient(address) as client:
        with pytest.raises(errors.OutcomeUnknown):
            await client.ack("mail", failed=[Ack("d")])
        assert len(seen) == 1


# -- refusing ------------------------------------------------------------------------------------------------------


class Reluctant(EchoService):
    """Refuses so many enqueues, dequeues and counts before it serves."""

    def __init__(self, error: errors.PinLaterError, times: int) -> None:
        super().__init__()
        self.error, self.times = error, times

    def _note(self, name: str, what: object, context: object) -> None:
        self.calls.append((name, what))
        if self.times > 0:
            self.times -= 1
            raise self.error


@pytest.mark.parametrize(
    "error",
    [errors.Overloaded("full"), errors.NothingStored("away"), errors.NoHealthyShards("none"), errors.Draining("end")],
)
async def test_what_surely_was_not_stored_is_sent_again(error: errors.PinLaterError) -> None:
    async with serving(Reluctant(error, 3)) as served, AsyncClient(f"127.0.0.1:{served.port}") as client:
        assert await client.enqueue("mail", Job(b"x"))
        assert _asked(served, "enqueue") == 4


@pytest.mark.parametrize(
    "error", [errors.NoHealthyShards("none", retry_after_ms=100), errors.ShardConnectionFailed("2")]
)
async def test_one_that_is_not_patient_asks_each_server_once_about_shards_that_are_away(
    error: errors.PinLaterError, nobody: str
) -> None:
    async with serving(Reluctant(error, 9)) as one, serving(Reluctant(error, 9)) as two:
        servers = [f"127.0.0.1:{one.port}", f"127.0.0.1:{two.port}", nobody]
        async with AsyncClient(servers=servers, retry_unavailable=False) as client:
            with pytest.raises(type(error)):
                await client.ack("mail", succeeded=[Ack("d")])
        assert (_asked(one, "ack"), _asked(two, "ack")) == (1, 1)


async def test_one_that_is_not_patient_still_waits_for_what_passes() -> None:
    service = Reluctant(errors.Overloaded("full"), 3)
    async with serving(service) as served, AsyncClient(f"127.0.0.1:{served.port}", retry_unavailable=False) as client:
        assert await client.enqueue("mail", Job(b"x"))


async def test_what_an_operator_decided_is_told_to_the_caller_at_once() -> None:
    service = Reluctant(errors.EnqueueRejected("draining"), 1)
    async with serving(service) as served, AsyncClient(f"127.0.0.1:{served.port}") as client:
        with pytest.raises(errors.EnqueueRejected):
            await client.enqueue("mail", Job(b"x"))
        assert _asked(served, "enqueue") == 1
        service.error, service.times = errors.DequeueRateLimited("paused", reason="QUEUE_PAUSED"), 1
        with pytest.raises(errors.DequeueRateLimited):
            await client.dequeue(DequeueRequest("mail", 1))
        assert _asked(served, "dequeue") == 1


async def test_an_unknown_outcome_at_the_store_is_left_to_the_caller() -> None:
    service = Reluctant(errors.OutcomeUnknown("perhaps"), 1)
    async with serving(service) as served, pinlater.AsyncClient(f"127.0.0.1:{served.port}") as client:
        answers = await asyncio.gather(*(client.enqueue("mail", Job(b"x")) for _ in range(5)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [errors.OutcomeUnknown] * 5
        assert _asked(served, "enqueue") == 1


async def test_a_server_that_says_when_is_asked_then() -> None:
    service = Reluctant(errors.DequeueRateLimited("slowly", retry_after_ms=300), 1)
    async with serving(service) as served, AsyncClient(f"127.0.0.1:{served.port}") as client:
        begun_s = time.monotonic()
        assert await client.dequeue(DequeueRequest("mail", 1)) == []
        assert 0.3 <= time.monotonic() - begun_s < slower(time.monotonic) * 2


async def test_one_that_does_not_wait_for_the_rate_is_told_at_once() -> None:
    service = Reluctant(errors.DequeueRateLimited("slowly", retry_after_ms=1), 1)
    async with serving(service) as served, AsyncClient(f"127.0.0.1:{served.port}", wait_for_rate=False) as client:
        with pytest.raises(errors.DequeueRateLimited):
            await client.dequeue(DequeueRequest("mail", 1))
        assert _asked(served, "dequeue") == 1


async def test_a_server_that_says_a_time_beyond_the_deadline_is_not_waited_for() -> None:
    service = Reluctant(errors.DequeueRateLimited("slowly", retry_after_ms=60_000), 1)
    async with serving(service) as served, AsyncClient(f"127.0.0.1:{served.port}") as client:
        with pytest.raises(errors.DequeueRateLimited) as caught:
            await client.dequeue(DequeueRequest("mail", 1))
        assert caught.value.retry_after_ms == 60_000


class Silent(Reluctant):
    """Answers nothing any more, once it has refused as often as it should."""

    async def enqueue(self, *args: Any, **named: Any) -> Any:
        if self.times == 0:
            await asyncio.Event().wait()
        return await super().enqueue(*args, **named)


async def test_what_surely_was_not_stored_does_not_become_unknown_by_an_attempt_that_has_no_time() -> None:
    """The servers say when: some 40 ms before all time is over, or later."""
    refusals = 10
    service = Silent(errors.NothingStored("away", retry_after_ms=960), refusals)
    async with serving(service) as served, AsyncClient(f"127.0.0.1:{served.port}", timeout=1.0) as client:
        calls = (client.enqueue("mail", [Job(b"x"), Job(b"y")]) for _ in range(refusals))
        failed = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in failed} == {errors.NothingStored}


async def test_acks_that_were_carried_out_do_not_ride_again() -> None:
    service = Reluctant(errors.DequeueRateLimited("slowly", retry_after_ms=1, acks_applied=True), 1)
    async with serving(service) as served, AsyncClient(f"127.0.0.1:{served.port}") as client:
        await client.dequeue(DequeueRequest("mail", 1, succeeded=[Ack("mail:s1:p1:1790000000000000")]))
        requests = [what for name, what in served.service.calls if name == "dequeue"]
        assert [len(request.succeeded) for request in requests] == [1, 0]


async def test_a_long_poll_sent_again_asks_for_the_rest_of_its_wait() -> None:
    service = Reluctant(errors.Overloaded("full", retry_after_ms=400), 1)
    async with serving(service) as served, AsyncClient(f"127.0.0.1:{served.port}") as client:
        await client.dequeue(DequeueRequest("mail", 1, wait_ms=5_000))
        first, second = [what.wait_ms for name, what in served.service.calls if name == "dequeue"]
        assert (first, second <= 4_610) == (5_000, True)


# -- hostile -------------------------------------------------------------------------------------------------------


def _with_list(call: WireCall, elements: bytes) -> bytes:
    """A fitting answer with an unknown field of a list, which says what it holds and how many."""
    return framed(encode_reply(call.name, call.seqid, 7)[:-1] + b"\x0f\0c" + elements)


GARBAGE: dict[str, Answer] = {
    "another protocol": lambda call: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a frame over the bound": lambda call: (2**31 - 1).to_bytes(4, "big"),
    "noise": lambda call: framed(b"\x80\x01\x00\x02\x00\x00\x00\x03abc"),
    "another sequence id": lambda call: framed(encode_reply(call.name, call.seqid + 1, 7)),
    "another method": lambda call: framed(encode_reply("retryFailedJobs", call.seqid, 7)),
    "a call, not an answer": lambda call: framed(b"\x80\x01\x00\x01" + encode_reply(call.name, call.seqid, 7)[4:]),
    "an empty answer": lambda call: framed(encode_reply(call.name, call.seqid)),
    "an endless list": lambda call: _with_list(call, b"\x02\x7f\xff\xff\xff\0"),
    "a list of nothing": lambda call: _with_list(call, b"\0\x7f\xff\xff\xff\0"),
    "half a struct": lambda call: framed(encode_reply(call.name, call.seqid, 7)[:-3]),
}  # fmt: skip


@pytest.mark.parametrize("kind", GARBAGE)
async def test_garbage_is_refused_and_the_connection_closed(kind: str) -> None:
    async with scripted(GARBAGE[kind]) as (address, seen), AsyncClient(address) as client:
        begun_s = time.monotonic()
        for _ in range(2):
            with pytest.raises(errors.ProtocolError, match=address):
                await client.count(PENDING)
        assert time.monotonic() - begun_s < slower(time.monotonic) * 2
        assert [call.seqid for call in seen] == [1, 1], "each call had a connection of its own"


async def test_an_answer_that_nobody_asked_for_closes_the_connection() -> None:
    def twice(call: WireCall) -> bytes:
        return framed(encode_reply(call.name, call.seqid, 7)) * 2

    async with scripted(twice) as (address, seen), AsyncClient(address) as client:
        assert await client.count(PENDING) == 7
        await asyncio.sleep(0.05)
        assert await client.count(PENDING) == 7
        assert [call.seqid for call in seen] == [1, 1]


async def test_too_few_descriptors_are_no_answer() -> None:
    async with serving() as served, AsyncClient(f"127.0.0.1:{served.port}") as client:

        async def none(*_: object, **__: object) -> list[str]:
            return []

        served.service.enqueue = none
        with pytest.raises(errors.ProtocolError, match="0 descriptors came for 2 jobs"):
            await client.enqueue("mail", [Job(b"")] * 2)


async def test_a_server_that_does_not_know_a_call_says_so_and_the_connection_lives_on() -> None:
    def classic(call: WireCall) -> bytes:
        if call.name == "cancelJobs":
            kind = ApplicationErrorKind.UNKNOWN_METHOD
            return framed(encode_application_exception(call.name, call.seqid, kind, "what?"))
        return framed(encode_reply(call.name, call.seqid, 7))

    async with scripted(classic) as (address, seen), AsyncClient(address) as client:
        with pytest.raises(errors.UnknownError, match="what"):
            await client.cancel("mail", ["mail:s1:p1:1790000000000000"])
        assert await client.count(PENDING) == 7
        assert [call.seqid for call in seen] == [1, 2]


async def test_a_scan_that_does_not_advance_is_ended() -> None:
    class Circling(EchoService):
        async def scan(self, filter: object, **rest: object) -> ScanPage:
            return ScanPage([], "again")

    async with serving(Circling()) as served, AsyncClient(f"127.0.0.1:{served.port}") as client:
        with pytest.raises(errors.ProtocolError, match="does not advance"):
            [page async for page in client.scan_pages(PENDING)]


# -- not PinLater ----------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def speaking(first: bytes) -> AsyncIterator[str]:
    """A port whose program answers the first bytes it gets with these."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(first)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("first", "protocol"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n", "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        (b"Z\x00\x00\x00\n5.5.5-10.11.6-MariaDB\x00", "what MariaDB and MySQL do"),
    ],
)
async def test_a_port_of_something_else_is_named_as_what_it_is(first: bytes, protocol: str) -> None:
    async with speaking(first) as address, AsyncClient(address) as client:
        for call in (client.queue_names(), client.enqueue("mail", Job(b""))):
            with pytest.raises(
                errors.ProtocolError, match=f"{address} is no port of a PinLater server: it speaks {protocol}"
            ):
                await call


async def test_a_call_beyond_the_frame_of_a_server_names_the_setting(tmp_path: Path) -> None:
    async with serving(max_frame_bytes=100_000) as served, AsyncClient(f"127.0.0.1:{served.port}") as client:
        with pytest.raises(errors.ProtocolError, match=r"a frame of 3\d+ bytes; allowed: 1 to 100000 \(--max-frame of"):
            await client.enqueue("mail", Job(bytes(300_000)))
    with running(tmp_path, "--max-body", "1KiB") as server:
        async with AsyncClient(f"127.0.0.1:{server.port}") as client:
            await client.create_queue("mail")
            with pytest.raises(
                errors.BodyTooLarge,
                match=r"1025 bytes; .* 1024 \(--max-body of the server, which goes up to half of its --max-frame",
            ):
                await client.enqueue("mail", Job(bytes(1025)))
            with pytest.raises(errors.RequestInvalid, match=r"size of the call is .*--max-frame"):
                await client.enqueue("mail", Job(bytes(17 * 2**20)))

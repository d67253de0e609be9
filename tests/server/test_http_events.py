"""Server-sent events: what a listener hears, when, and what the servers are asked for it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import ClientConnectionResetError, web
from structlog.testing import capture_logs

from pinlater.model import JobInfo, JobState
from tests.server.http_site import TOKEN, RunningSite, WatchedApi, http_site
from tests.server.serving import until

JOB = "mail:s1:p1:1790000000000001"


def job(state: JobState) -> JobInfo:
    return JobInfo(JOB, state, 1, 2, 2, "went well", 5, 5, 5)


class Listener:
    """Reads the events of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.last_id = ""

    @classmethod
    async def to(cls, site: RunningSite, query: str, **headers: str) -> Listener:
        reader, writer = await site.connect()
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        head = "\r\n".join([f"GET /v1/events?{query} HTTP/1.1", "Host: localhost", *lines, "", ""])
        writer.write(head.encode())
        answer = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert answer.startswith("HTTP/1.1 200")
        assert "text/event-stream" in answer
        return cls(reader, writer)

    async def next(self) -> tuple[str, Any]:
        """The next event, and its data."""
        found: dict[str, str] = {}
        async with asyncio.timeout(60):
            while True:
                line = (await self._reader.readline()).decode().strip()
                name, _, value = line.partition(": ")
                found[name] = value
                if not line and "data" in found:
                    self.last_id = found["id"]
                    return found["event"], json.loads(found["data"])

    async def at_end(self) -> None:
        async with asyncio.timeout(60):
            while not self._reader.at_eof():
                await self._reader.readline()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinlater.http.events.EVERY_S", 0.02)


async def test_counts_changes_and_ends_are_told() -> None:
    api = WatchedApi()
    api.ends[JOB] = job(JobState.PENDING)
    async with http_site(api) as site:
        listener = await Listener.to(site, f"queue=mail&job={JOB}")
        assert (await listener.next())[1]["version"] == "1"
        event, counts = await listener.next()
        assert (event, counts["levels"][0]["ready"]) == ("counts", 0)
        api.queues["mail"] = ("1", 7)
        event, counts = await listener.next()
        assert (event, counts["levels"][0]["ready"]) == ("counts", 7)
        api.queues["mail"] = ("2", 7)
        event, change = await listener.next()
        assert (event, change["name"], change["version"]) == ("change", "mail", "2")
        api.ends[JOB] = job(JobState.SUCCEEDED)
        api.jobs_changed.set()
        assert await listener.next() == ("end", {"job": JOB, "state": "SUCCEEDED", "custom_status": "went well"})
        del api.queues["mail"]
        assert await listener.next() == ("change", {"name": "mail", "deleted": True})
        api.queues["mail"] = ("3", 1)
        assert (await listener.next())[0] == "change"


async def test_all_listeners_of_a_caller_cost_one_look() -> None:
    api = WatchedApi()
    async with http_site(api) as site:
        listeners = [await Listener.to(site, f"queue={name}") for name in ("mail", "sms") * 10]
        for listener in listeners:
            await listener.next()
            await listener.next()
        before = api.looks
        api.queues["sms"] = ("1", 1)
        for listener in listeners[1::2]:
            await listener.next()
        assert api.looks - before < 10


async def test_who_comes_back_gets_what_it_missed() -> None:
    api = WatchedApi()
    async with http_site(api) as site:
        listener = await Listener.to(site, "queue=mail")
        await listener.next()
        await listener.next()
        listener.writer.close()
        api.queues["mail"] = ("2", 0)
        looks = api.looks
        await until(lambda: api.looks > looks + 2)
        again = await Listener.to(site, "queue=mail", Last_Event_ID=listener.last_id)
        event, change = await again.next()
        assert (event, change["version"]) == ("change", "2")
        for unknown in ("deadbeef-3", "x", f"{listener.last_id}9999999999999999999999"):
            other = await Listener.to(site, "queue=mail", Last_Event_ID=unknown)
            assert (await other.next())[0] == "missed"


async def test_a_token_that_is_revoked_ends_its_streams_and_no_others() -> None:
    api = WatchedApi()
    async with http_site(api) as site:
        mine = await Listener.to(site, "queue=mail", Authorization=f"Bearer {TOKEN}")
        other = await Listener.to(site, "queue=mail")
        for listener in (mine, other):
            await listener.next()
            await listener.next()
        del api.tokens[TOKEN]
        event, problem = await mine.next()
        assert (event, problem["reason"]) == ("problem", "FORBIDDEN")
        await mine.at_end()
        api.queues["mail"] = ("1", 9)
        assert (await other.next())[1]["levels"][0]["ready"] == 9


async def test_a_right_that_is_lost_on_one_queue_ends_the_streams_of_that_queue_alone() -> None:
    api = WatchedApi()
    async with http_site(api) as site:
        listeners = [await Listener.to(site, query) for query in ("queue=mail&queue=sms", "queue=mail", "queue=sms")]
        both, mail, sms = listeners
        for listener in (both, both, mail, sms):
            await listener.next()
            await listener.next()
        api.hidden.add("mail")
        for listener in (both, mail):
            event, problem = await listener.next()
            assert (event, problem["reason"]) == ("problem", "FORBIDDEN")
            await listener.at_end()
        api.queues["sms"] = ("1", 9)
        assert (await sms.next())[1]["levels"][0]["ready"] == 9


async def test_one_caller_has_no_more_streams_than_it_leaves_free() -> None:
    async with http_site(WatchedApi(), event_listeners=40) as site:
        for _ in range(20):
            await Listener.to(site, "queue=mail", Authorization=f"Bearer {TOKEN}")
        answer = await site.ask("GET", "/v1/events?queue=mail", Authorization=f"Bearer {TOKEN}")
        assert (answer.status, "this caller has 20 of 40 streams" in answer.json["detail"]) == (503, True)
        await Listener.to(site, "queue=mail")


@pytest.mark.parametrize(
    ("query", "status"),
    [("", 400), ("queue=nothing", 404), ("&".join(f"queue=q{number}" for number in range(101)), 400)],
)
async def test_what_cannot_be_listened_to_is_refused(query: str, status: int) -> None:
    async with http_site(WatchedApi()) as site:
        assert (await site.ask("GET", f"/v1/events?{query}")).status == status


async def test_listeners_are_bounded_and_make_room_when_they_leave() -> None:
    api = WatchedApi()
    async with http_site(api, event_listeners=4) as site:
        first, _ = [await Listener.to(site, "queue=mail") for _ in range(2)]
        answer = await site.ask("GET", "/v1/events?queue=mail")
        assert (answer.status, answer.json["reason"]) == (503, "OVERLOADED")
        first.writer.transport.abort()
        await _makes_room(site)


async def _makes_room(site: RunningSite) -> None:
    async with asyncio.timeout(60):
        while (await site.ask("GET", "/v1/events?queue=nothing")).status == 503:
            await asyncio.sleep(0.01)


async def test_a_listener_that_does_not_read_is_let_go_and_nothing_has_failed() -> None:
    api = WatchedApi()
    api.ends[JOB] = replace(job(JobState.SUCCEEDED), custom_status="x" * 16_000_000)  # more than buffers hold
    with capture_logs() as lines:
        async with http_site(api, event_listeners=4, write_within_s=0.2) as site:
            await Listener.to(site, f"job={JOB}")
            await Listener.to(site, f"job={JOB}")
            assert (await site.ask("GET", "/v1/events?queue=mail")).status == 503
            await _makes_room(site)
    assert [line for line in lines if line["log_level"] == "error"] == []


GONE = ClientConnectionResetError("Cannot write to closing transport")
"""What aiohttp says. Whether the end of a connection or an event comes first is a matter of microseconds."""


async def test_a_listener_that_goes_while_an_event_is_written_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    write = web.StreamResponse.write

    async def gone(response: web.StreamResponse, data: bytes) -> None:
        if b"event: change" in data:
            raise GONE
        await write(response, data)

    monkeypatch.setattr(web.StreamResponse, "write", gone)
    with capture_logs() as lines:
        async with http_site(WatchedApi()) as site:
            listener = await Listener.to(site, "queue=mail")
            await listener.at_end()
    assert [line for line in lines if line["log_level"] == "error"] == []


async def test_a_listener_that_goes_before_its_answer_begins_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = web.StreamResponse.prepare

    async def gone(response: web.StreamResponse, request: web.BaseRequest) -> Any:
        if response.content_type == "text/event-stream":
            raise GONE
        return await prepare(response, request)

    monkeypatch.setattr(web.StreamResponse, "prepare", gone)
    with capture_logs() as lines:
        async with http_site(WatchedApi()) as site:
            assert (await site.ask("GET", "/v1/events?queue=mail")).status == 0
            assert await site.is_well()
    assert [line for line in lines if line["log_level"] == "error"] == []

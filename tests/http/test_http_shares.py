"""Pools that the callers of an HTTP process share: one caller floods each of them, and a calm one beside it loses
nothing. The ids of the cases are the names of the pools in docs/access.md, which tests/access/test_common_pools.py
checks.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import httpx
import pytest

from pinlater import Client
from pinlater.dashboard.bulk_runs import AT_ONCE, MAX_WAITING, BulkRun, BulkRuns, RunState
from pinlater.dashboard.history_recorder import WORDS_BYTES
from pinlater.dashboard.queue_history import SPANS, History
from pinlater.dashboard.queue_record import QueueRecord, share_words
from pinlater.dashboard.snapshots import Snapshots
from pinlater.errors import Overloaded, ServerUnreachable
from pinlater.http.fair_shares import FairEntries, FairPlaces
from pinlater.http.request_use import MAX_KNOWN_TOKENS, KnownTokens
from pinlater.job_filters.bulk_order import ACTIONS, RunOrder
from pinlater.job_filters.filter_parser import parse_filter
from pinlater.model import AccessView, JobInfo, JobState, RequestContext
from pinlater.web.status_site import StatusSite
from tests.http.calls import problem_of
from tests.server.http_site import HttpAnswer, RunningSite, WatchedApi, answers_in, http_site
from tests.server.running import running
from tests.server.serving import until
from tests.unit.stand import stand
from tests.unit.test_web import Reports

NOISY, CALM, ADMIN = (f"plt_{letter * 43}" for letter in "nca")
FORM = "application/x-www-form-urlencoded"
JOB = "mail:s1:p1:1790000000000001"
SIZE = 20
PATIENCE_S = 20.0
LOADED_S = 0.5
"""What a busy machine may add to any time."""


class Neighbours:
    """A site that is small, with a noisy and a calm caller."""

    def __init__(self, api: WatchedApi, site: RunningSite) -> None:
        self.api = api
        self.site = site

    async def ask(self, token: str, path: str, **headers: str) -> HttpAnswer:
        return await self.site.ask("GET", path, Authorization=f"Bearer {token}", **headers)

    async def begin(self, token: str, path: str, body: bytes = b"", *, address: str = "127.0.0.1") -> Begun:
        """A request that is under way, as far as its body goes."""
        reader, writer = await self.site.connect(address)
        lines = [f"{'POST' if body else 'GET'} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}"]
        if body:
            lines.append(f"Content-Length: {len(body) + 1}")
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        return Begun(reader, writer)

    async def log_in(self, token: str) -> str:
        """A browser that has logged in: its cookie."""
        page = await self.site.ask("GET", "/session", Sec_Fetch_Site="same-origin")
        body = urlencode({"csrf": page.json["csrf_token"], "token": token, "next": "/docs"}).encode()
        sent = {"Content_Type": FORM, "Cookie": _cookie_of(page), "Sec_Fetch_Site": "same-origin"}
        answer = await self.site.ask("POST", "/login", body, **sent)
        assert answer.status == 303, answer.body
        return _cookie_of(answer)

    async def flood(self, begin: Callable[[], Awaitable[Begun]]) -> HttpAnswer:
        """Begins requests until one is answered; that answer."""
        begun: list[Begun] = []
        for _ in range(2 * SIZE):
            begun.append(await begin())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    return await begun[-1].answer()
        async with asyncio.timeout(PATIENCE_S):
            done, rest = await asyncio.wait(
                [asyncio.ensure_future(each.answer()) for each in begun], return_when=asyncio.FIRST_COMPLETED
            )
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        return done.pop().result()


class Begun(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def answer(self) -> HttpAnswer:
        async with asyncio.timeout(PATIENCE_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            (found,) = answers_in(head)
            length = int(found.headers.get("Content-Length", 0))
            return found._replace(body=await self.reader.readexactly(length))


def _cookie_of(answer: HttpAnswer) -> str:
    return answer.headers["Set-Cookie"].partition(";")[0]


def _is_refused(answer: HttpAnswer) -> None:
    """In words that say what to do, and when."""
    assert (answer.status, answer.json["reason"]) == (503, "OVERLOADED")
    assert answer.json["retryable"] is True
    assert int(answer.headers["Retry-After"]) >= 1
    assert "this caller has " in answer.json["detail"]


@contextlib.asynccontextmanager
async def neighbours(pool: str, **settings: Any) -> AsyncIterator[Neighbours]:
    """`pool` has SIZE places."""
    api = WatchedApi()
    api.tokens |= {NOISY: "token:noisy", CALM: "token:calm"}
    own = OwnApi()
    own.tokens = api.tokens
    async with http_site(api, pages="/dashboard", connect=lambda **_: own, **settings) as site:
        if pool in site.pools:
            site.pools[pool].size = SIZE
        yield Neighbours(api, site)


async def _requests(at: Neighbours) -> None:
    _is_refused(await at.flood(lambda: at.begin(NOISY, "/hang")))
    assert (await at.ask(CALM, "/session")).status == 200


async def _waits(at: Neighbours) -> None:
    at.api.ends[JOB] = JobInfo(JOB, JobState.PENDING, 1, 2, 2, "", 5, 5, 5)
    path = f"/v1/jobs/{JOB}?wait_ms=20000"
    _is_refused(await at.flood(lambda: at.begin(NOISY, path)))
    assert (await at.ask(NOISY, f"/v1/jobs/{JOB}")).status == 200  # what does not wait is answered
    mine = asyncio.ensure_future(at.ask(CALM, path))
    waits: FairPlaces = at.site.pools["http_waits"]
    async with asyncio.timeout(PATIENCE_S):
        while waits.taken <= SIZE // 2:
            await asyncio.sleep(0.01)
    at.api.jobs_changed.set()
    assert (await mine).status == 200


async def _bodies(at: Neighbours) -> None:
    _is_refused(await at.flood(lambda: at.begin(NOISY, "/echo", b"x" * 100_000)))
    headers = {"Authorization": f"Bearer {CALM}"}
    assert (await at.site.ask("POST", "/echo", b"x" * 200_000, **headers)).status == 200


async def _streams(at: Neighbours) -> None:
    path = "/v1/events?queue=mail"

    async def begin() -> Begun:
        begun = await at.begin(NOISY, path)
        if (found := await begun.answer()).status == 503:
            refused.append(found)
        return begun

    refused: list[HttpAnswer] = []
    while not refused:
        await begin()
    _is_refused(refused[0])
    assert (await (await at.begin(CALM, path)).answer()).status == 200


async def _watches(at: Neighbours) -> None:
    """What a caller has missed is kept for it for a while, whoever else comes and goes."""
    path = "/v1/events?queue=mail"
    begun = await at.begin(CALM, path)
    last = ""
    async with asyncio.timeout(PATIENCE_S):
        while not last:
            line = (await begun.reader.readline()).decode()
            last = line.removeprefix("id: ").strip() if line.startswith("id: ") else ""
    begun.writer.close()
    for number in range(3 * SIZE):
        noisy = await at.begin(NOISY, path, address=f"127.0.1.{number + 1}")
        assert (await noisy.answer()).status == 200
        noisy.writer.transport.abort()
        streams: FairPlaces = at.site.pools["http_event_streams"]
        async with asyncio.timeout(PATIENCE_S):
            while streams.taken:
                await asyncio.sleep(0.005)
    watches: FairEntries[Any] = at.site.pools["http_event_watches"]
    assert (len(watches), watches.hits > 0) == (SIZE, True)
    at.api.queues["mail"] = ("2", 0)
    reader, writer = await at.site.connect()
    lines = ["Host: localhost", f"Authorization: Bearer {CALM}", f"Last-Event-ID: {last}"]
    writer.write("\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode())
    async with asyncio.timeout(PATIENCE_S):
        while not (line := (await reader.readline()).decode()).startswith("event: "):
            pass
    assert line.strip() in ("event: change", "event: counts")


async def _sessions(at: Neighbours) -> None:
    cookie = await at.log_in(CALM)
    visitor = await at.site.ask("GET", "/session", Sec_Fetch_Site="same-origin")
    for _ in range(2 * SIZE):
        await at.log_in(NOISY)  # each begins by a visit of nobody
    assert (await at.site.ask("GET", "/session", Cookie=cookie)).json["identity"] == "token:calm"
    sent = {"Cookie": _cookie_of(visitor), "X_CSRF_Token": visitor.json["csrf_token"], "Sec_Fetch_Site": "same-origin"}
    assert (await at.site.ask("POST", "/echo", b"x", **sent)).status == 200


async def _links(at: Neighbours) -> None:
    async def link(token: str) -> str:
        answer = await at.site.ask("POST", "/dashboard/links", Authorization=f"Bearer {token}")
        return str(answer.json["path"])

    mine, first = await link(CALM), await link(NOISY)
    for _ in range(2 * SIZE):
        await link(NOISY)
    assert (await at.site.ask("GET", first)).status == 410
    assert (await at.site.ask("GET", mine)).status == 200


async def _bound(at: Neighbours) -> None:
    """Who has its share is not refused: its claims are left to their time-outs."""

    async def is_bound(token: str) -> bool:
        body = b'{"release_on_disconnect": true}'
        reader, writer = await at.site.connect()
        lines = ["Host: localhost", f"Authorization: Bearer {token}", "Content-Type: application/json"]
        head = "\r\n".join(["POST /v1/queues/mail/dequeue HTTP/1.1", *lines, f"Content-Length: {len(body)}", "", ""])
        writer.write(head.encode() + body)
        answer = await Begun(reader, writer).answer()
        return bool(answer.json["bound"])

    assert [await is_bound(NOISY) for _ in range(SIZE)] == [True] * (SIZE // 2) + [False] * (SIZE - SIZE // 2)
    assert await is_bound(CALM)


class OwnApi(WatchedApi):
    """As the client of one connection."""

    def cancel_long_polls(self) -> None:
        """There are none."""

    async def close(self) -> None:
        """There is nothing to close."""


CASES: dict[str, Callable[[Neighbours], Awaitable[None]]] = {
    "http_requests": _requests,
    "http_waits": _waits,
    "http_bodies": _bodies,
    "http_bound_connections": _bound,
    "http_event_streams": _streams,
    "http_event_watches": _watches,
    "http_sessions": _sessions,
    "http_links": _links,
}


@pytest.mark.parametrize("pool", CASES)
async def test_who_floods_a_pool_takes_no_place_of_a_calm_caller(pool: str) -> None:
    settings = {"max_request_bytes": 2**20, "max_buffered_bytes": 2**20} if pool == "http_bodies" else {}
    async with neighbours("" if settings else pool, **settings) as at:
        await CASES[pool](at)
        assert at.site.pools[pool].hits > 0


def looker(token: str, number: int = 0) -> RequestContext:
    """A caller at one of its addresses."""
    return RequestContext("web", token=token, caller_address=f"10.0.0.{number}")


@contextlib.asynccontextmanager
async def looking(
    pool: str, monkeypatch: pytest.MonkeyPatch, given: WatchedApi | None = None
) -> AsyncIterator[tuple[Snapshots, WatchedApi]]:
    monkeypatch.setattr("pinlater.dashboard.snapshots.KEPT_S", 600.0)
    api = given or WatchedApi()
    api.tokens |= {NOISY: "token:noisy", CALM: "token:calm"}
    snapshots = Snapshots(api, lambda context: context.token)
    {each.name: each for each in snapshots.pools}[pool].size = SIZE
    try:
        yield snapshots, api
    finally:
        await snapshots.close()


@pytest.mark.parametrize("pool", ["http_turns"])
async def test_requests_that_take_long_leave_turns_to_others_and_say_so_to_those_that_get_none(
    pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pinlater.http.request_use.MAX_TURNS", SIZE)
    monkeypatch.setattr("pinlater.http.request_use.TURN_WITHIN_S", 0.02)
    async with neighbours(pool) as at:
        refused = await at.flood(lambda: at.begin(NOISY, "/hang"))
        assert (refused.status, "had no turn" in refused.json["detail"]) == (503, True)
        assert (await at.ask(CALM, "/session")).status == 200


@pytest.mark.parametrize("pool", ["http_snapshots", "http_queue_rows", "http_rights"])
async def test_who_looks_at_everything_makes_no_calm_caller_load_anew(
    pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with looking(pool, monkeypatch) as (snapshots, api):
        _, rows = await snapshots.queue_rows(looker(CALM))
        await snapshots.access(looker(CALM))
        for number in range(3 * SIZE):
            await snapshots.queue_rows(looker(NOISY, number))
            await snapshots.access(looker(NOISY, number))
        looks = api.looks
        if pool != "http_rights":
            assert (await snapshots.queue_rows(looker(CALM)))[1] is rows
        assert snapshots.last_access(looker(CALM)) is not None
        snapshots.forget(looker(NOISY))
        await snapshots.cluster(looker(CALM))
        assert api.looks == looks
        assert {each.name: each for each in snapshots.pools}[pool].hits > 0


@pytest.mark.parametrize("pool", ["http_away"])
async def test_who_gets_no_answer_in_time_makes_nobody_else_go_without_one(
    pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SlowForOne(WatchedApi):
        async def get_access(self, *, context: RequestContext | None = None) -> AccessView:
            if context is not None and context.token == NOISY:
                await asyncio.Event().wait()
            return await super().get_access(context=context)

    monkeypatch.setattr("pinlater.dashboard.snapshots.WITHIN_S", 0.01)
    async with looking(pool, monkeypatch, SlowForOne()) as (snapshots, _):
        for number in range(SIZE + 5):
            with pytest.raises(ServerUnreachable):
                await snapshots.access(looker(NOISY, number))
        monkeypatch.setattr("pinlater.dashboard.snapshots.WITHIN_S", PATIENCE_S)
        assert (await snapshots.access(looker(CALM))).identity == "token:calm"


@pytest.mark.parametrize("pool", ["http_drawings"])
async def test_who_draws_every_chart_makes_nobody_draw_anew(pool: str) -> None:
    history = History(WatchedApi(), RequestContext("history"), None, every_s=600.0)
    history.drawings.size = SIZE
    drawn: list[str] = []
    await history.open()
    try:
        for owner, names in ((CALM, ["calm"]), (NOISY, [f"noisy-{n}" for n in range(3 * SIZE)]), (CALM, ["calm"])):
            for name in names:
                await history.drawn(owner, name, "mail", SPANS["1h"], lambda _, name=name: drawn.append(name))
        assert drawn.count("calm") == 1
        assert (history.drawings.name, history.drawings.hits) == (pool, 2 * SIZE + 1)
    finally:
        await history.close()


@pytest.mark.parametrize("pool", ["http_runs", "http_waiting_runs", "http_run_turns"])
async def test_runs_of_one_caller_neither_hold_up_nor_push_out_those_of_another(pool: str) -> None:
    async with stand() as at:
        runs = BulkRuns(at.service)
        shared = {each.name: each for each in runs.pools}[pool]
        if pool == "http_runs":
            shared.size = SIZE

        def begin(who: str) -> BulkRun:
            order = RunOrder(ACTIONS["delete"], parse_filter("state:ready"))
            queues: dict[str, Sequence[int]] = {"mail": (1,)}
            context = RequestContext(who)
            return runs.start(BulkRun(order, who, who, who, context, queues, of_about=1))

        async def done(run: BulkRun) -> BulkRun:
            await until(lambda: run.is_ended)
            await asyncio.sleep(0)  # its turn is free when its task is over
            return run

        before = await done(begin("calm"))
        if pool == "http_runs":
            for _ in range(2 * SIZE):
                await done(begin("noisy"))
        else:
            many = [begin("noisy") for _ in range(AT_ONCE // 2 + MAX_WAITING // 2)]
            with pytest.raises(Overloaded, match="this caller has"):
                begin("noisy")
            mine = begin("calm")
            assert mine.state is RunState.RUNNING
            for run in (mine, *many):
                await done(run)
        assert runs.find(before.id) is before
        await runs.close()


@pytest.mark.parametrize("pool", ["http_connections"])
async def test_many_connections_of_others_close_none_that_a_calm_caller_keeps(pool: str) -> None:
    async with http_site(WatchedApi(), max_connections=2 * SIZE, max_peer_connections=SIZE) as site:
        reader, writer = await site.connect("127.0.0.2")

        async def ask() -> int:
            writer.write(b"GET /session HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return (await Begun(reader, writer).answer()).status

        assert await ask() == 200
        for number in range(6 * SIZE):
            await site.connect(f"127.0.0.{3 + number % 2}")
        assert await ask() == 200
        assert await site.is_well()
        assert site.counts()["limits_hit", pool] > SIZE


@pytest.mark.parametrize("pool", ["http_status_connections"])
async def test_one_address_keeps_no_probe_from_the_status_page(pool: str) -> None:
    status = StatusSite(Reports(readiness=[[]]))
    await status.serve("127.0.0.1:0", SIZE)
    try:
        port = int(status.bound.rpartition(":")[2])
        probe = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))

        async def ask() -> int:
            probe[1].write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return (await Begun(*probe).answer()).status

        assert await ask() == 200
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3 * SIZE)]
        assert await ask() == 200
        for _, writer in held:
            writer.close()
        probe[1].close()
    finally:
        await status.close()


@pytest.mark.parametrize("pool", ["http_history"])
def test_queues_that_fail_with_many_words_leave_those_of_others(pool: str) -> None:
    noisy = [
        QueueRecord(failed=900, reasons={f"{at:04}-{word}" + "x" * 50: 100 for word in range(8)}) for at in range(200)
    ]
    calm = QueueRecord(failed=1, reasons={"KeyError": 1}, types={"shop.mails.welcome": 1})
    share_words([*noisy, calm], WORDS_BYTES)
    assert (calm.reasons, calm.types) == ({"KeyError": 1}, {"shop.mails.welcome": 1}), pool
    kept = [word for record in noisy for word in record.reasons]
    assert 0.9 * WORDS_BYTES < sum(map(len, kept)) + 2 * len(kept) < WORDS_BYTES


@pytest.mark.parametrize("pool", ["http_known_tokens"])
def test_a_token_that_is_used_stays_known_whatever_others_show(pool: str) -> None:
    known = KnownTokens()
    known.add(CALM)
    for number in range(MAX_KNOWN_TOKENS + SIZE):
        known.add(f"plt_{number}")
        assert CALM in known or number % 100
    assert (known.kept.name, known.kept.hits) == (pool, SIZE + 1)


RULES = """
[roles.noisy]
may = ["enqueue", "consume", "read"]
queues = ["noisy"]

[roles.calm]
may = ["enqueue", "consume", "read"]
queues = ["calm"]
"""


@pytest.mark.parametrize("pool", ["http_server_connections"])
async def test_one_token_that_parks_all_it_can_delays_no_answer_to_another(tmp_path: Path, pool: str) -> None:
    """On a server as operators start it; both callers have one address, as behind a proxy."""
    (tmp_path / "rules.toml").write_text(RULES)
    arguments = ["--api", "127.0.0.1:0", "--rules", "rules.toml", "--max-connections", "2000"]
    with running(tmp_path, *arguments) as server:
        address = str(server.wait_for("api_ready")["address"]).rstrip("/")
        await asyncio.to_thread(make_tenants, server.port, tmp_path)
        options: dict[str, Any] = {"base_url": address, "timeout": 60.0, "trust_env": False}
        noisy = httpx.AsyncClient(limits=httpx.Limits(max_connections=None), **options)
        calm = httpx.AsyncClient(headers={"Authorization": f"Bearer {CALM}"}, **options)

        async def time_one() -> float:
            begun_s = time.monotonic()
            (await calm.post("/v1/queues/calm/jobs", json={"body": "x"})).raise_for_status()
            answer = (await calm.post("/v1/queues/calm/dequeue", json={"wait_ms": 20_000})).raise_for_status()
            assert len(answer.json()["jobs"]) == 1
            (await calm.post("/v1/queues/calm/ack", json=answer.json())).raise_for_status()
            return time.monotonic() - begun_s

        async def park() -> httpx.Response:
            headers = {"Authorization": f"Bearer {NOISY}"}
            return await noisy.post("/v1/queues/noisy/dequeue", json={"wait_ms": 50_000}, headers=headers)

        async with noisy, calm:
            quiet = sorted([await time_one() for _ in range(20)])
            parked = [asyncio.ensure_future(park()) for _ in range(300)]
            done, rest = await asyncio.wait(parked, return_when=asyncio.FIRST_COMPLETED, timeout=3 * PATIENCE_S)
            busy = sorted([await time_one() for _ in range(20)])
            assert [task for task in rest if not task.done()], "the flood was over before the calm caller was"
            for task in parked:
                task.cancel()
            await asyncio.gather(*parked, return_exceptions=True)
        problem = problem_of(done.pop().result())
        assert (problem["reason"], problem["retryable"]) == ("OVERLOADED", True)
        assert busy[-2] < 2 * quiet[-1] + LOADED_S, (pool, quiet, busy)


def make_tenants(port: int, folder: Path) -> None:
    password = (folder / "pinlater-data" / "admin-password").read_text().strip()
    with Client(f"127.0.0.1:{port}") as nobody:
        for name, token in (("noisy", NOISY), ("calm", CALM), ("admin", ADMIN)):
            nobody.update_token(name, hashlib.sha256(token.encode()).hexdigest(), [name], password)
    with Client(f"127.0.0.1:{port}", token=ADMIN) as admin:
        for name in ("noisy", "calm"):
            admin.create_queue(name)

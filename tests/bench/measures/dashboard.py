"""Pages of the dashboard over a million jobs in each state and 2,000 queues: how soon they are there, what they cost.

The browser is Debian's chromium, without a cache at its first page. What a page costs is the processor time beyond that
of the same server without an open page.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from playwright.sync_api import Page

from pinlater import AsyncClient, Job
from pinlater.backends.base import ConfigEntry
from pinlater.data_folder.password import hash_password
from pinlater.model import JobFilter, JobState, new_version
from tests.bench.figures import AtMost, Figure, number
from tests.bench.fill import HOUR_MS, Say, fill_claimed, fill_ended, fill_future, fill_pending, now_ms
from tests.bench.processes import CpuWatch, Program, Server, served
from tests.bench.queues_stand import PASSWORD
from tests.bench.run import STORES, Run, Stand, stand
from tests.browser.chromium import chromium, visit
from tests.browser.stand import StorageState, log_in
from tests.stores.process import free_port

JOBS, QUEUES = 1_000_000, 2_000
"""Jobs in each state in the queue mail, and queues with it."""

FEW = 3
"""Jobs in each of the other queues."""

STATUS = "attempt 5 of 5: TimeoutError: mx1.example.org did not answer (mail.py:42 in deliver) [2026-11-23T00:09:12Z]"
SETTLE_S = 15.0
"""Until all queues were counted, and the history has begun."""

SECONDS = 30.0
VISITS = 5
TOLD_WITHIN_S = 30.0
FIRST_PAINT_MS, PAGE_MS = 300, 1_000
ONE_PAGE, MANY_PAGES = 1, 50
SHARE = {ONE_PAGE: 1.0, MANY_PAGES: 5.0}
"""How many pages are open, and how much of a core in % they may cost the server."""

_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
_LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


class Looked(NamedTuple):
    """An address, by the name that a report shows."""

    name: str
    path: str


FILTERS = (
    Looked("body, found by none", 'queue:mail state:ready body:~"nobody@example.org"'),
    Looked("status, found by none", 'queue:mail state:failed status:~"no such text"'),
    Looked("status, found by all", "queue:mail state:failed status:~Timeout"),
    Looked("every queue", 'state:failed status:~"no such text"'),
    Looked("age", "queue:mail state:succeeded age:>30d"),
)
"""Those that no index serves."""


def measure(run: Run) -> Iterator[Figure]:
    for name in STORES:
        with stand(run, name) as store, _filled(run, store) as (server, address, job):
            session = log_in(f"http://{address}", PASSWORD)
            yield from _seen(run, store, address, session, _pages(job))
            yield from _costs(run, store, server, address, session, _pages(job))


def _pages(job: str) -> list[Looked]:
    """Every page that shows jobs or queues."""
    base = "/dashboard"
    return [
        Looked("overview", base),
        Looked("queues", f"{base}/queues"),
        Looked("queue", f"{base}/queues/mail"),
        Looked("jobs", f"{base}/jobs"),
        *(
            Looked(f"jobs {state}", f"{base}/jobs?filter={quote(f'queue:mail state:{state}')}")
            for state in ("ready", "scheduled", "running", "succeeded", "failed")
        ),
        Looked("job", f"{base}/jobs/{quote(job, safe='')}"),
        Looked("runs", f"{base}/runs"),
        Looked("flows", f"{base}/flows"),
        Looked("schedules", f"{base}/schedules"),
        Looked("workers", f"{base}/workers"),
        Looked("cluster", f"{base}/cluster"),
        Looked("audit", f"{base}/audit"),
    ]


# -- how soon ----------------------------------------------------------------------------------------------------------


def _seen(run: Run, store: Stand, address: str, session: StorageState, pages: list[Looked]) -> Iterator[Figure]:
    filters = [Looked(f"filter: {each.name}", f"/dashboard/jobs?filter={quote(each.path)}") for each in FILTERS]
    with chromium() as browser:
        paints = []
        for _ in range(VISITS):
            with visit(browser, f"http://{address}", session) as (page, _):
                page.goto("/dashboard")
                paints.append(_painted_ms(page))
        run.say(f"  {store.name}: first paint after {', '.join(map(number, paints))} ms")
        yield Figure(
            f"dashboard/first paint {store.name}",
            "ms",
            paints,
            [AtMost(FIRST_PAINT_MS)],
            persistence=store.persistence,
            notes="the overview in a browser that has shown nothing yet",
        )
        with visit(browser, f"http://{address}", session) as (page, _):
            for looked in (*pages, *filters):
                took_ms = [_loaded_ms(page, looked.path) for _ in range(VISITS)]
                run.say(f"  {store.name}: {looked.name} {', '.join(map(number, took_ms))} ms")
                yield Figure(
                    f"dashboard/{looked.name} {store.name}",
                    "ms",
                    took_ms[:1] if looked in filters else took_ms,
                    [AtMost(PAGE_MS)],
                    persistence=store.persistence,
                    notes="until it is whole; "
                    + ("the first visit" if looked in filters else f"slowest {max(took_ms):,.0f} ms"),
                )


def _painted_ms(page: Page) -> float:
    return _told(page, _PAINT)


def _loaded_ms(page: Page, path: str) -> float:
    answer = page.goto(path)
    assert answer is not None
    assert answer.ok, f"{path}: {answer.status}"
    return _told(page, _LOADED)


def _told(page: Page, expression: str) -> float:
    """A time in ms, as soon as the browser has it: until then it is 0. Pages let nothing wait for that within them."""
    ends_s = time.monotonic() + TOLD_WITHIN_S
    while not (found := float(page.evaluate(expression))):
        assert time.monotonic() < ends_s, expression
        page.wait_for_timeout(5)
    return found


# -- what it costs -----------------------------------------------------------------------------------------------------


def _costs(
    run: Run, store: Stand, server: Server, address: str, session: StorageState, pages: list[Looked]
) -> Iterator[Figure]:
    ((cookie, *_),) = (session["cookies"],)
    shown = f"{cookie['name']}={cookie['value']}"
    seconds = max(10.0, SECONDS * run.sizes.scale)
    pids = {**store.pids, **_by_task(server)}
    quiet = _shares(pids, seconds)
    many = [pages[at % len(pages)].path for at in range(MANY_PAGES)]
    for case, paths in (("overview", many[:1]), ("queue", [pages[2].path]), ("mixed", many)):
        program = Program(" ".join(["open_pages", *paths]), address=address, cookie=shown, seconds=seconds)
        watch = CpuWatch(pids)
        watch.start()
        program.go()
        result = program.result()
        spent = {name: each / result["seconds"] * 100 - quiet[name] for name, each in watch.stop().items()}
        each = ", ".join(f"{name} {share:.2f}" for name, share in spent.items())
        run.say(f"  {store.name}: {len(paths)} open ({case}): {each} % of a core; p99 {result['p99_ms']:.0f} ms")
        yield Figure(
            f"dashboard/{len(paths)} open, {case} {store.name}",
            "%",
            [sum(share for name, share in spent.items() if name.startswith("server"))],
            [AtMost(SHARE[len(paths)])],
            persistence=store.persistence,
            notes=f"of a core, the server alone; each, beyond {_text(quiet)} without a page: {each}; "
            f"{result['same']} of {result['jobs']} asks found nothing new; p99 {result['p99_ms']:.0f} ms",
        )


def _text(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.2f}" for name, share in shares.items())


def _shares(pids: dict[str, int], seconds: float) -> dict[str, float]:
    """What each process takes of a core, in %, while nothing happens."""
    watch = CpuWatch(pids)
    watch.start()
    time.sleep(seconds)
    return {name: spent / seconds * 100 for name, spent in watch.stop().items()}


def _by_task(server: Server) -> dict[str, int]:
    """The processes of a server: those that serve, and that of the HTTP interface."""
    named = {}
    for name, pid in server.pids().items():
        is_http = b"api_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
        named["http" if is_http else name] = pid
    return named


# -- what there is -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _filled(run: Run, store: Stand) -> Iterator[tuple[Server, str, str]]:
    """A server on a store with all jobs and queues, the address of its HTTP interface, and a job that failed."""
    url, address = store.fresh(), f"127.0.0.1:{free_port()}"
    asyncio.run(fill_place(store, url, run.sizes.jobs(JOBS), run.sizes.jobs(QUEUES, 10), run.say))
    options = ["--api", address, "--admin-password-hash", hash_password(PASSWORD)]
    with served([url], 1, options=options) as server:
        job = asyncio.run(_fill_few(server, run.sizes.jobs(QUEUES, 10)))
        time.sleep(SETTLE_S)
        yield server, address, job


async def fill_place(store: Stand, url: str, jobs: int, queues: int, say: Say) -> None:
    """So many jobs in each state of the queue mail, and other queues beside it, through the store's own statements."""
    shard = store.shard(url)
    await shard.open()
    try:
        names = ("mail", *(f"queue_{number}" for number in range(1, queues)))
        await shard.put_config([ConfigEntry(name, new_version(now_ms(), ""), "{}") for name in names], now_ms())
        await fill_claimed(shard, "mail", jobs, now_ms(), 6 * HOUR_MS, say)
        await fill_ended(shard, "mail", jobs, now_ms(), say, every_failed=0)
        await fill_ended(shard, "mail", jobs, now_ms(), say, every_failed=1, status=STATUS)
        await fill_pending(shard, "mail", jobs, say)
        await fill_future(shard, "mail", jobs, say)
    finally:
        await shard.close()


async def _fill_few(server: Server, queues: int) -> str:
    async with AsyncClient(server.address) as client:
        for number in range(1, queues):
            await client.enqueue(f"queue_{number}", [Job(b'{"to": "ada@example.org"}')] * FEW)
        page = await client.scan(JobFilter("mail", JobState.FAILED), limit=1)
        return page.jobs[0].descriptor

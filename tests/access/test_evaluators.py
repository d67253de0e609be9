"""Whatever evaluates what a caller wrote, at its worst input: what it spends, and how long it keeps the event loop."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from pinlater.dashboard.filter_completion import complete
from pinlater.durations import parse_duration
from pinlater.errors import PinLaterError, RequestInvalid
from pinlater.flows.flow_limits import MAX_ITEMS, MAX_PAYLOAD_BYTES
from pinlater.http.forms import JobForm
from pinlater.http.route import form_refusal
from pinlater.job_filters.filter_parser import MAX_NAMES, FilterError, parse_filter
from pinlater.model import (
    CONTINUATION_END,
    Ack,
    DequeueRequest,
    Job,
    JobFilter,
    JobState,
    RequestContext,
    Schedule,
    ScheduleChange,
)
from pinlater.model.callers import matches
from pinlater.model.flow_words import NewFlow, NewItem
from pinlater.model.job_selection import JobPhase, JobSelection, TextCondition
from pinlater.queues.changes import Author, changed
from pinlater.service.body_pattern import BodyPattern
from pinlater.sizes import parse_size
from pinlater.timetable import Firings, TimetableInvalid, cron_warnings
from tests.flows.flow_stand import FlowStand, flow_stand
from tests.flows.stand import ROOT
from tests.speed import slower

MIB = 1024 * 1024
NOW_MS = 1_790_000_000_000
TURN_S = 0.1
"""Processor time of the event loop between two turns of another task: a fifth of a second is felt by everybody."""

QUEUE = "mail"
MANY_STATES = "[ab]*a[ab]{900}c"
"""Has more states at once than fit into memory."""

WORST = "(?:(?:a|b|c|d){1,50}){1,20}x"
EMPTIES = b"[" + b",".join([b"[]"] * (MAX_PAYLOAD_BYTES // 3 - 1)) + b"]"
"""JSON that becomes twenty times as large in memory."""


CRONS = [
    *("0 0 29 2 *", "* * * 2 1#5", "0 0 * 2 0#5", "0 0 31 2 *", "0 0 31 2,4,6,9,11 *", "* * 29 2 *", "59 23 LW 2 *"),
    *("*/59 */23 29 2 1#5", "0,59 0 29 2 6#5", ",".join(["1"] * 90) + " * * 2 1#5", "0 " * MIB, "0" * MIB + " * * * *"),
    "1-" * 90 + "1 * * * *",
]


def ab(size: int) -> bytes:
    return bytes(random.Random(7).choices(b"ab", k=size))


class Spent(NamedTuple):
    """`turn_s`: the most processor time of the loop between two turns of another; `cpu_s`: that of the process."""

    turn_s: float
    cpu_s: float


@asynccontextmanager
async def measured() -> AsyncIterator[list[Spent]]:
    """What is spent meanwhile."""
    turns: list[float] = []

    async def take_turns() -> None:
        last_s = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now_s = time.thread_time()
            turns.append(now_s - last_s)
            last_s = now_s

    spent: list[Spent] = []
    gc.collect()
    gc.freeze()  # as a server does: what is there already is not walked again and again
    other = asyncio.get_running_loop().create_task(take_turns())
    await asyncio.sleep(0)
    began_s = time.process_time()
    try:
        yield spent
    finally:
        cpu_s = time.process_time() - began_s
        await asyncio.sleep(0.002)
        other.cancel()
        gc.unfreeze()
        spent.append(Spent(max(turns, default=0.0), cpu_s))


Call = Callable[[FlowStand], Awaitable[object]]


def searched(bodies: Sequence[str] = (), statuses: Sequence[str] = ()) -> Call:
    selection = JobSelection(
        QUEUE,
        [JobPhase.READY],
        body_conditions=[TextCondition(each) for each in bodies],
        status_conditions=[TextCondition(each) for each in statuses],
    )
    return lambda at: at.at.service.search_jobs(selection, limit=1_000)


def with_cursor(text: str) -> Call:
    async def call(at: FlowStand) -> None:
        service, filter = at.at.service, JobFilter(QUEUE, JobState.PENDING)
        for refused in (
            service.scan(filter, continuation=text),
            service.search_jobs(JobSelection(QUEUE), continuation=text),
            service.get_schedules(continuation=text),
            service.get_flows(continuation=text),
        ):
            with pytest.raises(PinLaterError, match="continuation"):
                await refused

    return call


async def added(at: FlowStand) -> None:
    flow_id = (await at.at.service.create_flow(NewFlow("f", [ROOT]))).id
    await at.at.service.add_flow_items(flow_id, ROOT.name, [NewItem(EMPTIES)] * 60)


async def created(at: FlowStand) -> None:
    await at.at.service.create_flow(NewFlow("f", [ROOT], items={ROOT.name: [NewItem(EMPTIES)] * 60}))


async def acked(at: FlowStand, result: bytes, items: int) -> None:
    service = at.at.service
    await service.create_flow(NewFlow("f", [ROOT], items={ROOT.name: [NewItem(b"1")] * items}))
    jobs: list[Any] = []
    while len(jobs) < items:
        jobs += await service.dequeue(DequeueRequest(ROOT.queue, items, wait_ms=5_000))
    acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor, result=result) for job in jobs]
    await service.ack(ROOT.queue, acks, [])


async def paged(at: FlowStand) -> None:
    flow_id = (await at.at.service.create_flow(NewFlow("f", [ROOT]))).id
    await at.at.service.get_flow_items(flow_id, numbers=[1] * 65_000)


async def listed(at: FlowStand) -> None:
    """Of many schedules the next 100 firings each."""
    service = at.at.service
    for number in range(15):
        change = ScheduleChange(name=f"s{number}", queue=QUEUE, cron=CRONS[2], timezone="America/New_York")
        await service.update_schedule(change, "", context=RequestContext("me", is_granted=True))
    found = 0
    page = await service.get_schedules(next_limit=100, limit=1_000)
    while page.continuation != CONTINUATION_END:
        found += len(page.schedules)
        page = await service.get_schedules(next_limit=100, limit=1_000, continuation=page.continuation)
    assert found + len(page.schedules) == 15


CALLS: dict[str, tuple[Call, str, float]] = {
    "a pattern over a body of a megabyte": (searched([WORST]), "a pattern of at most 476 steps", 2.0),
    "patterns over many bodies": (searched([MANY_STATES[:10] + "{90}c", "[ab]{200}c"] * 10), "a pattern of|", 30.0),
    "patterns over short statuses": (searched(statuses=["x" * 150 + str(n) for n in range(20)]), "", 5.0),
    "more patterns than are taken": (searched(["a"] * 21), "at most 20", 2.0),
    "payloads that are added": (added, "", 5.0),
    "payloads of a new flow": (created, "", 5.0),
    "one result that is large": (lambda at: acked(at, b"[" + EMPTIES + b"]" + b" " * MAX_PAYLOAD_BYTES, 1), "", 5.0),
    "many results": (lambda at: acked(at, b"[" + b"[]," * 4_600 + b"1]", 1_000), "", 30.0),
    "a cursor": (with_cursor("1.1." * MIB), "", 2.0),
    "a cursor of digits": (with_cursor("1" * 4 * MIB), "", 2.0),
    "numbers of items": (paged, "at most 1000", 2.0),
    "firings of schedules": (listed, "", 60.0),
    "descriptors": (lambda at: at.at.service.lookup(["mail:" + "x" * 500] * 10_000), "", 2.0),
    "descriptors that are none": (lambda at: at.at.service.lookup(["mail:s1:p" + "1" * 500] * 1_000), "", 2.0),
}
"""What is called, what is said of it ("": it is carried out), and what it may spend in seconds of a processor."""


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_at_its_worst_spends_no_more_than_its_bound_and_leaves_turns_to_others(
    tmp_path: Path, name: str
) -> None:
    call, refusal, cpu_s = CALLS[name]
    async with flow_stand(tmp_path) as at:
        await at.at.service.create_flow(NewFlow("first", [ROOT]))  # which loads what flows need
        await at.at.service.enqueue(QUEUE, [Job(ab(MIB))])
        await at.at.service.enqueue(QUEUE, [Job(b"a", custom_status="short")] * 500)
        async with measured() as spent:
            said = ""
            try:
                await asyncio.wait_for(call(at), 120)
            except RequestInvalid as error:
                said = error.message
        assert bool(said) == bool(refusal) or refusal.endswith("|"), said
        assert refusal.rstrip("|") in said or not said
    assert spent[0].turn_s < TURN_S * slower()
    assert spent[0].cpu_s < cpu_s * slower()


async def test_searches_share_two_threads_and_a_small_one_waits_for_no_large_one() -> None:
    """Eight callers search as much as they can; a ninth one searches a little."""
    large = [ab(100_000) for _ in range(200)]
    searches = [asyncio.create_task(BodyPattern(MANY_STATES).select(large, 300.0)) for _ in range(8)]
    await asyncio.sleep(0)
    async with measured() as spent:
        assert await asyncio.wait_for(BodyPattern("[ab]{30}c").select([ab(100_000)] * 5), 240) == [False] * 5
        assert not any(each.done() for each in searches)
    assert spent[0].turn_s < TURN_S * slower()
    for each in searches:
        each.cancel()
        with suppress(asyncio.CancelledError):
            await each


PATTERNS = [
    "(" * 2_000 + ")" * 2_000,
    "(?:a{0,30}){0,30}" * 100,
    r"\pL{1000}",
    "(?i)" + "\u0130" * 1_000,
    "[" + "".join(chr(0x100 + 2 * n) for n in range(1_300)) + "]{1,3}",
    "|".join(f"ab{n}" for n in range(700)),
    "((((a{1,9}){1,9}){1,9}){1,9}){1,9}",
    ".{1000}" * 500,
]


@pytest.mark.parametrize("pattern", PATTERNS, ids=range(len(PATTERNS)))
def test_a_pattern_is_compiled_or_refused_at_once(pattern: str) -> None:
    assert cpu(lambda: BodyPattern(pattern), RequestInvalid) < 0.5 * slower()


ZONES = ["UTC", "America/New_York", "Africa/Casablanca", "Australia/Lord_Howe", "../" * MIB, "A" * MIB]


@pytest.mark.parametrize("cron", CRONS, ids=range(len(CRONS)))
def test_a_cron_expression_is_answered_in_time(cron: str) -> None:
    def all_of_it() -> None:
        for zone in ZONES:
            with suppress(TimetableInvalid):
                firings = Firings(Schedule(name="s", queue="q", cron=cron, timezone=zone), 0)
                firings.next(NOW_MS, 5)
                firings.latest(NOW_MS, 0)
                firings.latest(NOW_MS + 50 * 365 * 86_400_000, NOW_MS)

    assert cpu(all_of_it) < 3.0 * slower()


NAMES = [f"tenant-{number}-queue" for number in range(10_000)]
PURE: dict[str, Callable[[], object]] = {
    "the name of a setting": lambda: changed({}, {}, ["max_pending" * MIB], Author("ann", NOW_MS)),
    "the name of a setting that is set": lambda: changed({}, {"m" * 8 * MIB: "1"}, [], Author("ann", NOW_MS)),
    "a duration": lambda: changed({}, {"failed_ttl": "1h" * 4 * MIB}, [], Author("ann", NOW_MS)),
    "a duration of digits": lambda: parse_duration("1" * 8 * MIB),
    "a duration that almost is one": lambda: parse_duration("1h1m1s" * MIB + "!"),
    "a size": lambda: parse_size("1" * 8 * MIB),
    "a number": lambda: changed({}, {"max_pending": "1" * 8 * MIB}, [], Author("ann", NOW_MS)),
    "cron warnings": lambda: cron_warnings("*/1," * 2 * MIB),
    "a filter of queues": lambda: parse_filter("queue:" + ",".join(f"*{n}*a*" for n in range(600))),
    "a filter of quotes": lambda: parse_filter('body:"' + '\\"' * 1_900),
    "a filter of conditions": lambda: parse_filter("attempts:1 " * 360),
    "a filter of priorities": lambda: parse_filter("priority:0001" + "9" * 3_900),
    "a long filter": lambda: parse_filter("queue:" * 2 * MIB),
    "the completion of a filter": lambda: complete(
        "queue:a," * 1_000, 8_000, {"queue": {f"q{n}": "" for n in range(9_999)}}
    ),
    "a glob": lambda: [matches("*a" * 100 + "b", "a" * 200) for _ in range(1_000)],
}
"""What is no call, or only a part of one. All are refused or answered."""


@pytest.mark.parametrize("name", PURE)
def test_a_text_is_read_in_a_time_that_its_length_explains(name: str) -> None:
    assert cpu(PURE[name], ValueError, PinLaterError) < 0.5 * slower()


def test_a_filter_names_so_many_queues_that_comparing_them_is_quick() -> None:
    line = parse_filter("queue:" + ",".join(f"*{n}*a*" for n in range(MAX_NAMES)))
    assert cpu(lambda: line.queues(NAMES)) < 3.0 * slower()
    with pytest.raises(FilterError, match="101 values; allowed: 100"):
        parse_filter("queue:" + ",".join(f"*{n}" for n in range(MAX_NAMES + 1)))


def test_what_is_wrong_with_a_form_is_said_in_few_words() -> None:
    for text in (b'{"body":"x","body_encoding":"%b"}' % (b"x" * 8 * MIB), b'{"body":"x","%b":1}' % (b" - at `" * MIB)):
        with pytest.raises(msgspec.ValidationError) as caught:
            msgspec.json.decode(text, type=JobForm)
        assert cpu(lambda error=caught.value: form_refusal(error)) < 0.5 * slower()  # type: ignore[misc]
        assert len(form_refusal(caught.value).message) < 1_000


def test_a_call_takes_no_more_items_than_it_may_before_it_reads_one() -> None:
    assert cpu(lambda: NewFlow("f", [ROOT], items={ROOT.name: [NewItem(EMPTIES)] * (MAX_ITEMS + 1)})) < 0.5 * slower()


def cpu(work: Callable[[], object], *refusals: type[Exception]) -> float:
    """Seconds of a processor."""
    began_s = time.process_time()
    with suppress(*refusals):
        work()
    return time.process_time() - began_s

"""Jobs found, counted and changed by their tags, over two shards."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import pytest

from pinlater.errors import RequestInvalid
from pinlater.model import CONTINUATION_END, Ack, ExtendedJob, Job, JobAction, RequestContext
from pinlater.model.job_selection import FoundJobsChange, JobPhase, JobSelection, TextCondition
from tests.conformance.bindings import BINDINGS
from tests.conformance.served import QUEUE, START_MS, Served
from tests.conformance.test_service_searches import found

pytestmark = pytest.mark.parametrize("binding", [each.param() for each in BINDINGS if each.has_tags], indirect=True)


def of(*tags: str, phases: Sequence[JobPhase] | None = None) -> JobSelection:
    return JobSelection(QUEUE, phases, tags=tags)


async def stored(served: Served, number: int, *tags: str, **fields: int) -> list[str]:
    return [(await served.enqueue(ExtendedJob(b"%d" % n, tags=tags, **fields)))[0] for n in range(number)]


async def names(served: Served, selection: JobSelection, limit: int = 3) -> list[str]:
    return [info.descriptor for info in await found(served, selection, limit)]


async def test_jobs_of_a_tag_are_found_the_last_first_over_all_shards(served: Served) -> None:
    mine = await stored(served, 9, "tenant:7")
    await served.spread()
    both = await stored(served, 2, "tenant:7", "urgent")
    later = await stored(served, 1, "tenant:7", run_after_ms=START_MS + 60_000)
    await stored(served, 2, "urgent")
    assert len({each.split(":")[1] for each in mine}) == 2

    def age(descriptor: str) -> tuple[int, str]:
        _, shard, _, job_id = descriptor.split(":")
        return -int(job_id), shard

    assert await names(served, of("tenant:7")) == [*sorted([*mine, *both], key=age), *later]
    assert await names(served, of("tenant:7", "urgent")) == sorted(both, key=age)
    assert await names(served, of("urgent", "tenant:7")) == sorted(both, key=age)
    assert await names(served, of("nobody")) == []
    assert await names(served, of("tenant:7", phases=[JobPhase.SCHEDULED])) == later
    selection = JobSelection(QUEUE, body_conditions=[TextCondition("^1$")], tags=["tenant:7"])
    assert sorted(await names(served, selection)) == sorted([mine[1], both[1]])
    selection = JobSelection(QUEUE, descriptors=[mine[0], later[0], "mail:s1:p1:1000000000000000"], tags=["tenant:7"])
    assert sorted(await names(served, selection, 100)) == sorted([mine[0], later[0]])
    selection = JobSelection(QUEUE, descriptors=[mine[0]], tags=["urgent"])
    assert await names(served, selection, 100) == []


async def test_a_search_by_tag_looks_at_no_other_jobs(served: Served) -> None:
    await served.spread(24)
    await stored(served, 3, "t")
    page = await served.api.search_jobs(of("t"), limit=100)
    assert (len(page.jobs), page.looked_at, page.continuation) == (3, 3, CONTINUATION_END)


@pytest.mark.parametrize("action", JobAction)
async def test_all_jobs_of_a_tag_are_changed_and_no_others(served: Served, action: JobAction) -> None:
    for tag in ("mine", "other"):
        await stored(served, 5, tag)
    await served.enqueue(Job(b"plain"))
    phases = {JobAction.DELETE: [JobPhase.READY], JobAction.RETRY: [JobPhase.FAILED]}.get(action)
    if action in (JobAction.RETRY, JobAction.REPLAY):
        jobs = await served.dequeue(100)
        await served.api.ack(QUEUE, [], [Ack(job.descriptor, permanent=True) for job in jobs])
    change = FoundJobsChange(of("mine", phases=phases), action, dry_run=True)
    counted = await served.api.change_found_jobs(change)
    expected = 0 if action is JobAction.REPLAY else 5  # these are no letters
    assert (counted.changed, counted.looked_at) == (expected, 5)
    change.dry_run, change.limit = False, 2
    changed = 0
    while True:
        answer = await served.api.change_found_jobs(change)
        changed += answer.changed
        change.continuation = answer.continuation
        if answer.continuation == CONTINUATION_END:
            break
    assert changed == expected
    states = {info.state.name for info in await found(served, of("mine"))}
    assert states == {JobAction.RETRY: {"PENDING"}, JobAction.REPLAY: {"FAILED"}}.get(action, set())
    assert len(await found(served, of("other"))) == 5


@pytest.mark.parametrize(
    ("tags", "match"),
    [
        (("",), "a tag of tags is ''; allowed: 1 to 64 bytes of UTF-8"),
        (("ü" * 33,), "1 to 64 bytes of UTF-8"),
        (("a", "b", "a"), "tags is 'a'; allowed: each tag once"),
        (("a\nb",), "a text without control characters"),
        (("\x7f",), "a text without control characters"),
        (tuple(map(str, range(11))), "the length of tags is 11; allowed: at most 10: leave some out"),
        (("\ud800",), "1 to 64 bytes of UTF-8"),
    ],
)
async def test_tags_that_cannot_be_are_refused_and_nothing_is_stored(
    served: Served, tags: tuple[str, ...], match: str
) -> None:
    with pytest.raises(RequestInvalid, match=match):
        await served.enqueue(Job(b"fine"), ExtendedJob(b"", tags=tags))
    with pytest.raises(RequestInvalid, match=match):
        await served.api.search_jobs(of(*tags))
    assert await found(served, JobSelection(QUEUE)) == []


async def test_the_audit_names_the_tags(served: Served) -> None:
    await stored(served, 2, "tenant:7")
    who = RequestContext(f"operator-{secrets.token_hex(8)}")
    await served.api.change_found_jobs(FoundJobsChange(of("tenant:7"), JobAction.CANCEL, note="gone"), context=who)
    (entry,) = [each for each in await served.api.audit(limit=1_000) if each.who == who.source]
    assert entry.detail.endswith(", tags tenant:7: gone")

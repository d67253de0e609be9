"""The custom status: where text is added, and how it is cut (decision 2)."""

from __future__ import annotations

import pytest

from pinlater.backends.base import AckOutcome
from pinlater.backends.status_lines import expired_status
from pinlater.model import MAX_STATUS_CHARS, JobState
from tests.conformance.subject import Subject

TEXTS = {
    "ascii": "abc",
    "accents": "éàß",
    "emoji": "🦆🚀👩‍👩‍👧‍👦",
    "combining": "e\u0301a\u0308\u0323",
    "nul": "a\0b",
    "quotes": "'\"\\%_`\n\r\t",
    "astral": "\U0001f986",
    "blanks": "  x  ",
    "right to left": "שלום",
}


@pytest.fixture(params=list(TEXTS.values()), ids=list(TEXTS))
def text(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


async def test_text_comes_back_as_it_was_given(subject: Subject, text: str) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS, custom_status=text)
    await subject.checkpoint(descriptor, prepend_status=text + "2")
    await subject.succeed(descriptor, append_status=text + "3")
    assert (await subject.info(descriptor)).custom_status == text + "2" + text + text + "3"


async def test_appended_text_is_cut_at_the_bound_keeping_its_front(subject: Subject, text: str) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS, custom_status="front")
    long = text * MAX_STATUS_CHARS
    assert await subject.fail(descriptor, append_status=long) is AckOutcome.RETRIED
    assert (await subject.info(descriptor)).custom_status == "…\n" + long[: MAX_STATUS_CHARS - 2]


async def test_appended_text_survives_whole_and_pushes_the_end_of_what_was_there_over_the_bound(
    subject: Subject, text: str
) -> None:
    old = (text * MAX_STATUS_CHARS)[: MAX_STATUS_CHARS - 100]
    descriptor = await subject.job(attempts_allowed=3, custom_status=old)
    for number in "12":
        line = (number + text * 200)[:200]
        await subject.claimed()
        assert await subject.fail(descriptor, append_status=line) is AckOutcome.RETRIED
        status = (await subject.info(descriptor)).custom_status
        assert status == old[: MAX_STATUS_CHARS - 202] + "…\n" + line
        assert len(status) == MAX_STATUS_CHARS


async def test_text_in_front_pushes_the_end_over_the_bound(subject: Subject, text: str) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS, custom_status="end" * 100)
    long = (text * MAX_STATUS_CHARS)[: MAX_STATUS_CHARS - 7]
    assert await subject.checkpoint(descriptor, prepend_status=long)
    assert (await subject.info(descriptor)).custom_status == long + "endende"


@pytest.mark.parametrize("over", [0, 1])
async def test_text_is_kept_whole_where_there_is_room_for_it_and_the_mark(
    subject: Subject, text: str, over: int
) -> None:
    whole = (text * MAX_STATUS_CHARS)[: MAX_STATUS_CHARS - 2 + over]
    descriptor = await subject.job_in(JobState.IN_PROGRESS, custom_status=whole[:-9])
    assert await subject.succeed(descriptor, append_status=whole[-9:]) is AckOutcome.SUCCEEDED
    expected = whole[: -9 - over] + "…\n" + whole[-9:] if over else whole
    assert (await subject.info(descriptor)).custom_status == expected


async def test_an_empty_text_leaves_a_status_of_the_bound_whole(subject: Subject) -> None:
    exact = "🦆" * MAX_STATUS_CHARS
    descriptor = await subject.job_in(JobState.IN_PROGRESS, custom_status=exact)
    assert await subject.fail(descriptor) is AckOutcome.RETRIED
    assert (await subject.info(descriptor)).custom_status == exact


async def test_an_empty_text_changes_nothing(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS, custom_status="same")
    await subject.checkpoint(descriptor)
    await subject.succeed(descriptor)
    assert (await subject.info(descriptor)).custom_status == "same"


async def test_the_line_of_an_expired_claim_survives_too(subject: Subject) -> None:
    full = "🦆" * (MAX_STATUS_CHARS - 5)
    descriptor = await subject.job(custom_status=full)
    await subject.claimed(timeout_ms=10)
    subject.tick(11)
    await subject.expire()
    line = expired_status(subject.now_ms, 1)
    kept = MAX_STATUS_CHARS - 2 - len(line)
    assert (await subject.info(descriptor)).custom_status == full[:kept] + "…\n" + line


async def test_status_adds_up_over_attempts(subject: Subject) -> None:
    descriptor = await subject.job(attempts_allowed=3, custom_status="0")
    for number in "123":
        await subject.claimed()
        await subject.fail(descriptor, append_status=number)
    assert (await subject.info(descriptor)).custom_status == "0123"

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


async def test_appended_text_is_cut_at_the_bound_keeping_the_front(subject: Subject, text: str) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS, custom_status="front")
    long = text * MAX_STATUS_CHARS
    assert await subject.fail(descriptor, append_status=long) is AckOutcome.RETRIED
    assert (await subject.info(descriptor)).custom_status == ("front" + long)[:MAX_STATUS_CHARS]


async def test_text_in_front_pushes_the_end_over_the_bound(subject: Subject, text: str) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS, custom_status="end" * 100)
    long = (text * MAX_STATUS_CHARS)[: MAX_STATUS_CHARS - 7]
    assert await subject.checkpoint(descriptor, prepend_status=long)
    assert (await subject.info(descriptor)).custom_status == long + "endende"


async def test_text_of_exactly_the_bound_is_kept_whole(subject: Subject, text: str) -> None:
    exact = (text * MAX_STATUS_CHARS)[:MAX_STATUS_CHARS]
    descriptor = await subject.job_in(JobState.IN_PROGRESS, custom_status=exact[:-1])
    assert await subject.succeed(descriptor, append_status=exact[-1] + "over") is AckOutcome.SUCCEEDED
    assert (await subject.info(descriptor)).custom_status == exact


async def test_an_empty_text_changes_nothing(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS, custom_status="same")
    await subject.checkpoint(descriptor)
    await subject.succeed(descriptor)
    assert (await subject.info(descriptor)).custom_status == "same"


async def test_the_line_of_an_expired_claim_is_cut_too(subject: Subject) -> None:
    full = "🦆" * (MAX_STATUS_CHARS - 5)
    descriptor = await subject.job(custom_status=full)
    await subject.claimed(timeout_ms=10)
    subject.tick(11)
    await subject.expire()
    line = expired_status(subject.now_ms, 1)
    assert (await subject.info(descriptor)).custom_status == full + line[:5]


async def test_status_adds_up_over_attempts(subject: Subject) -> None:
    descriptor = await subject.job(attempts_allowed=3, custom_status="0")
    for number in "123":
        await subject.claimed()
        await subject.fail(descriptor, append_status=number)
    assert (await subject.info(descriptor)).custom_status == "0123"

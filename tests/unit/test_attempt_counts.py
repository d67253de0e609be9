"""How many attempts of a job were made, as lists say it."""

from __future__ import annotations

import pytest

from pinlater.backends.status_lines import expired_status
from pinlater.cli.job_text import attempts_text, attempts_used
from pinlater.dashboard.job_rows import job_row
from pinlater.model import JobAttempt, JobInfo, JobState
from pinlater.model.trail import AttemptOutcome

FRAMEWORK = "attempt 1 of 6: ValueError: no such order (mail.py:42 in send) [2026-11-23T00:09:12Z, 1.2s, web-1:7]\n"
TRACE = "  Traceback: attempt 5 of 6: of another\n"


def job(state: JobState, remaining: int, status: str = "", *outcomes: AttemptOutcome | None) -> JobInfo:
    attempts = [JobAttempt(number, 1, 1, 1, outcome, "w") for number, outcome in enumerate(outcomes, start=1)]
    return JobInfo("mail:s1:p1:1", state, 1, 6, remaining, status, 1, 1, 1, attempts=attempts or None)


@pytest.mark.parametrize(
    ("info", "failed", "begun"),
    [
        pytest.param(job(JobState.FAILED, 0, FRAMEWORK + TRACE), "1 of 6", "1 of 6", id="permanent, of the framework"),
        pytest.param(job(JobState.FAILED, 0, "boom"), "up to 6", "up to 6", id="of another worker"),
        pytest.param(
            job(JobState.FAILED, 0, "attempt 9 of 9: x\n"), "up to 6", "up to 6", id="it tells of another number"
        ),
        pytest.param(
            job(JobState.FAILED, 0, FRAMEWORK + expired_status(5, 0)), "6 of 6", "6 of 6", id="its claim expired"
        ),
        pytest.param(job(JobState.FAILED, 2, "gave up"), "4 of 6", "4 of 6", id="some remain"),
        pytest.param(job(JobState.PENDING, 5, FRAMEWORK), "1 of 6", "1 of 6", id="it is tried again"),
        pytest.param(job(JobState.IN_PROGRESS, 5), "1 of 6", "2 of 6", id="it runs"),
        pytest.param(
            job(JobState.FAILED, 0, "", AttemptOutcome.EXPIRED, AttemptOutcome.FAILED), "2 of 6", "2 of 6", id="a trail"
        ),
    ],
)
def test_a_list_says_what_is_known(info: JobInfo, failed: str, begun: str) -> None:
    assert job_row(info, 5, sees_bodies=True).attempts == failed
    assert attempts_text(info) == begun
    assert attempts_used(info) == (6 if begun.startswith("up") else int(begun[0]))

"""The time-line of a job: what the lines of its status tell, and what is left as a note."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pinlater.backends.status_lines import (
    crash_budget_status,
    dead_letter_status,
    expired_status,
    released_status,
)
from pinlater.dashboard.job_rows import job_row, last_line
from pinlater.dashboard.job_timeline import add_changes, timeline
from pinlater.model import AuditEntry, JobInfo, JobState
from pinlater.model.status_text import job_expired_status, not_replaced_status

NOW_MS = 1_795_400_000_000
CREATED_MS = 1_795_392_540_000
FIRST = (
    "attempt 1 of 2: ConnectionError: mx1.example.com refused (mail.py:42 in deliver) "
    "[2026-11-23T00:09:12Z, 1.2s, web-1:4711]\n"
)
SECOND = "attempt 2 of 2: ConnectionError: no [mx2] (mail.py:42 in deliver) [2026-11-23T00:09:22Z, 30.1s, web-2:913]\n"
TRACE = '  File "/srv/shop/jobs.py", line 17, in send\n    deliver(address)\n'


def job(state: JobState = JobState.FAILED, status: str = "", **fields: Any) -> JobInfo:
    info = JobInfo("mail:s1:p2:1790000000000000", state, 2, 2, 0, status, CREATED_MS, CREATED_MS, CREATED_MS, **fields)
    if state in (JobState.FAILED, JobState.SUCCEEDED) and info.finished_at_ms is None:
        info.finished_at_ms = CREATED_MS + 60_000
    return info


def titles(info: JobInfo) -> list[str]:
    return [step.title for step in timeline(info, NOW_MS).steps]


def test_attempts_have_their_times_delays_workers_errors_and_traceback() -> None:
    found = timeline(job(status=FIRST + SECOND + TRACE), NOW_MS)
    enqueued, first, second, failed = found.steps
    assert (enqueued.title, enqueued.at_ms) == ("Enqueued", CREATED_MS)
    assert (first.title, first.kind, first.worker, first.took) == ("Attempt 1 of 2 failed", "bad", "web-1:4711", "1.2s")
    assert first.text == "ConnectionError: mx1.example.com refused (mail.py:42 in deliver)"
    assert first.at_ms == 1_795_392_552_000
    assert first.gap_ms == 12_000
    assert second.text == "ConnectionError: no [mx2] (mail.py:42 in deliver)"
    assert second.gap_ms == 8_800
    assert second.trace == ['File "/srv/shop/jobs.py", line 17, in send', "  deliver(address)"]
    assert (failed.title, failed.at_ms) == ("Failed for good", CREATED_MS + 60_000)
    assert found.notes == []


def test_lines_of_the_servers_are_steps() -> None:
    status = (
        expired_status(CREATED_MS + 5, 1)
        + released_status(CREATED_MS + 9, 0)
        + crash_budget_status(3)
        + job_expired_status(CREATED_MS + 20, CREATED_MS + 10)
        + not_replaced_status(CREATED_MS + 30)
    )
    found = timeline(job(status=status), NOW_MS)
    assert [(step.title, step.at_ms) for step in found.steps[1:-1]] == [
        ("Its worker was lost", CREATED_MS + 5),
        ("Its worker was lost", CREATED_MS + 9),
        ("Given up", None),
        ("Too late", CREATED_MS + 20),
        ("Newer arguments not taken from here on", CREATED_MS + 30),
    ]
    assert found.notes == []


def test_a_dead_letter_begins_with_the_job_that_it_is_a_copy_of() -> None:
    origin = "mail:s2:p1:1790000000000001"
    letter = dead_letter_status(origin, CREATED_MS - 99, 2, 0, CREATED_MS + 50)
    found = timeline(job(JobState.PENDING, letter + FIRST + SECOND, origin=origin), NOW_MS)
    assert [step.title for step in found.steps] == [
        "Enqueued",
        "Attempt 1 of 2 failed",
        "Attempt 2 of 2 failed",
        "Copied as a dead letter",
        "Ready",
    ]
    assert found.steps[0].at_ms == CREATED_MS - 99
    assert (found.steps[3].descriptor, found.steps[3].at_ms) == (origin, CREATED_MS + 50)


def test_what_others_write_is_a_note_and_is_not_lost() -> None:
    found = timeline(job(status=f"from the shop\n{FIRST}half way\nattempt of mine: no\n"), NOW_MS)
    assert found.notes == ["from the shop", "half way", "attempt of mine: no"]
    assert [step.title for step in found.steps] == ["Enqueued", "Attempt 1 of 2 failed", "Failed for good"]


def test_what_servers_write_behind_a_text_without_an_end_of_line_is_a_step() -> None:
    for line in (expired_status(NOW_MS, 1), not_replaced_status(NOW_MS), job_expired_status(NOW_MS, NOW_MS)):
        shown = timeline(job(status=f"half [done]{line}"), NOW_MS)
        assert (shown.notes, shown.steps[1].title) == (
            ["half [done]"],
            timeline(job(status=line), NOW_MS).steps[1].title,
        )


def test_the_last_step_says_how_it_is_now() -> None:
    claim = "web-1:4711:1790000000000:42:worker:7"
    assert titles(job(JobState.PENDING)) == ["Enqueued", "Ready"]
    later = job(JobState.PENDING)
    later.run_after_ms = NOW_MS + 1
    assert titles(later) == ["Enqueued", "Runs"]
    assert titles(job(JobState.PENDING, waits_for="mail:s1:p1:1790000000000009"))[-1].startswith("Waits for another")
    running = job(JobState.IN_PROGRESS, claim_descriptor=claim, claimed_at_ms=NOW_MS - 5, cancel_requested_by="ada")
    steps = timeline(running, NOW_MS).steps
    assert [(step.title, step.worker) for step in steps[1:]] == [("Running", "worker:7"), ("Asked to stop", "")]
    assert titles(job(JobState.SUCCEEDED))[-1] == "Done"
    assert titles(job(JobState.FAILED, cancelled=True))[-1] == "Cancelled"


def test_a_claim_in_another_form_is_shown_as_it_is() -> None:
    running = job(JobState.IN_PROGRESS, claim_descriptor="odd", claimed_at_ms=5)
    assert timeline(running, NOW_MS).steps[-1].worker == "odd"


@given(st.text(max_size=300), st.sampled_from(list(JobState)))
def test_any_status_has_a_time_line(status: str, state: JobState) -> None:
    info = job(state, status)
    found = timeline(info, NOW_MS)
    assert found.steps
    job_row(info, NOW_MS, sees_bodies=True)


numbers = st.from_regex(r"[0-9]{1,20}", fullmatch=True)


@given(numbers, numbers)
def test_numbers_beyond_all_time_do_no_harm(at: str, number: str) -> None:
    status = (
        f"[claim expired at {at}, attempts remaining {number}]\nattempt {number} of {number}: X [2026-99-99T00:00:00Z, "
        f"{number}s, w]\n[failed: EXPIRED at {at}, ended at {at}]\n"
    )
    timeline(job(status=status), NOW_MS)


def test_the_last_line_leaves_out_when_and_where() -> None:
    assert last_line(f"note\n{FIRST}{SECOND}{TRACE}") == "ConnectionError: no [mx2] (mail.py:42 in deliver)"
    assert last_line("one\ntwo\n\n") == "two"
    assert last_line("") == last_line("  \n") == ""
    assert len(last_line("x" * 5_000)) == 240


def test_who_retried_a_job_stands_where_it_was_retried() -> None:
    info = job(JobState.PENDING, FIRST + SECOND)
    found = timeline(info, NOW_MS)

    def entry(at_ms: int, action: str = "retry_jobs", of: str = info.descriptor) -> AuditEntry:
        return AuditEntry(at_ms, "ada", action, "mail", f"1 job, of {of}, FAILED", "web-1")

    between_ms = 1_795_392_555_000
    others = [
        entry(CREATED_MS - 1),
        entry(between_ms, "delete_jobs"),
        entry(between_ms, of="mail:s1:p2:1790000000000001"),
        entry(between_ms, of=f"{info.descriptor}7"),
        entry(between_ms, "ask_jobs_to_stop"),
    ]
    add_changes(found, info, [entry(NOW_MS), *others, entry(between_ms)])
    assert [(step.title, step.text) for step in found.steps if step.title == "Retried"] == [("Retried", "by ada")] * 2
    assert [step.title for step in found.steps] == [
        *("Enqueued", "Attempt 1 of 2 failed", "Retried", "Attempt 2 of 2 failed", "Retried", "Ready"),
    ]
    assert found.steps[3].gap_ms == 7_000


def test_who_rescheduled_a_job_stands_there_with_what_it_was_given() -> None:
    info = job(JobState.PENDING)
    info.run_after_ms = NOW_MS + 1
    found = timeline(info, NOW_MS)
    given = "runs after 2028-11-01T09:00:00Z, gets attempts 5, another body"
    for at_ms, detail in ((NOW_MS - 9, given), (NOW_MS - 5, "runs at once")):
        entry = AuditEntry(at_ms, "ada", "reschedule_jobs", "mail", f"1 job, {detail}, of {info.descriptor}", "web-1")
        add_changes(found, info, [entry])
    assert [(step.title, step.text) for step in found.steps] == [
        ("Enqueued", "priority 2"),
        ("Rescheduled", f"by ada, {given}"),
        ("Rescheduled", "by ada, runs at once"),
        ("Runs", ""),
    ]


def test_when_a_job_was_asked_to_stop_is_told_by_the_audit() -> None:
    info = job(JobState.IN_PROGRESS)
    info.cancel_requested_by = "ada"
    found = timeline(info, NOW_MS)
    detail = f"2 jobs, of {info.descriptor} mail:s1:p2:1790000000000001"
    add_changes(found, info, [AuditEntry(NOW_MS - 5, "ada", "ask_jobs_to_stop", "mail", detail, "web-1")])
    assert [(step.title, step.at_ms, step.text) for step in found.steps][-1] == ("Asked to stop", NOW_MS - 5, "by ada")

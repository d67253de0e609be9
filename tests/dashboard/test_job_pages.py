"""One job: what its page shows, and each change that it offers."""

from __future__ import annotations

import html
import json
import re
import time
from urllib.parse import quote

import pytest

from pinlater import Ack, DequeueRequest, Heartbeat, Job, JobFilter, JobState, LogLine
from pinlater.model import ExtendedJob, JobInfo, RequestContext
from pinlater.model.job_selection import JobSelection
from tests.dashboard.conftest import Place
from tests.dashboard.test_job_list import call, fail
from tests.dashboard.visitor import Visitor, csrf_of

TRACE = '  File "/srv/jobs.py", line 17, in send\n    deliver()\n'


def page_of(descriptor: str) -> str:
    return f"/dashboard/jobs/{quote(descriptor, safe='')}"


def info_of(place: Place, descriptor: str) -> JobInfo:
    return place.client.lookup([descriptor], include_body=True)[descriptor]


def test_a_failed_job_has_its_time_line_call_and_traceback(place: Place, visitor: Visitor, queue: str) -> None:
    (made,) = place.client.enqueue(queue, [Job(call("shop.send", "ada", 3))])
    place.client.dequeue(DequeueRequest(queue, 1))
    status = f"attempt 1 of 2: ValueError: no (jobs.py:17 in send) [2026-11-23T00:09:12Z, 1.2s, web-1:47]\n{TRACE}"
    place.client.ack(queue, failed=[Ack(made, status, permanent=True)])
    shown = visitor.text(page_of(made))
    for text in (
        "shop.send('ada', 3)",
        "Attempt 1 of 2 failed",
        "ValueError: no (jobs.py:17 in send)",
        "took 1.2s, on web-1:47",
        'File "/srv/jobs.py", line 17, in send',
        "Failed for good",
        "A call, in JSON",
    ):
        assert text in shown


def test_a_job_that_failed_for_good_at_once_has_one_attempt_with_its_times_and_worker(
    place: Place, visitor: Visitor, queue: str
) -> None:
    (made,) = place.client.enqueue(queue, [Job(b"x", attempts_allowed=6)])
    place.client.dequeue(DequeueRequest(queue, 1), context=RequestContext("web-1:47"))
    place.client.ack(queue, failed=[Ack(made, "no", permanent=True)])
    shown = visitor.text(page_of(made))
    assert "Attempts 1 of 6 failed" in shown
    assert re.search(r"Outcome Worker 1 .* failed web-1:47", shown)


def test_what_a_job_logs_is_shown_while_it_runs(place: Place, visitor: Visitor, queue: str) -> None:
    (made,) = place.client.enqueue(queue, [Job(b"x")])
    (job,) = place.client.dequeue(DequeueRequest(queue, 1))
    said = [LogLine("page 1 <b>", 1_790_000_000_123), LogLine("page 2", 1_790_000_001_000)]
    place.client.heartbeat(queue, [Heartbeat(made, job.claim_descriptor, log_lines=said)])
    shown = visitor.text(page_of(made))
    assert "14:13:20.123 page 1 <b>" in shown
    assert "page 2" in shown


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"a": {"b": [1, null]}}', "a { 1 }"),
        ("Grüße".encode(), "Grüße"),
        (b"\x00\xff\x10", "00000000 00 ff 10"),
        (b"", "Empty."),
        (b"x" * 40_000, "this is the beginning of it"),
    ],
)
def test_each_kind_of_body_is_shown_and_can_be_had_whole(
    place: Place, visitor: Visitor, queue: str, body: bytes, text: str
) -> None:
    (made,) = place.client.enqueue(queue, [Job(body)])
    assert text in visitor.text(page_of(made))
    got = visitor.get(f"{page_of(made)}/body")
    assert got.content == body
    assert got.headers["Content-Type"] == "application/octet-stream"
    assert got.headers["Content-Disposition"].startswith("attachment")
    assert "sandbox" in got.headers["Content-Security-Policy"]


def test_results_keys_claims_and_what_a_job_waits_for_are_shown(place: Place, visitor: Visitor, queue: str) -> None:
    first, second = [
        place.client.enqueue(queue, [ExtendedJob(b"x", dedupe_key=f"report {number}", serialize_key="account")])[0]
        for number in (1, 2)
    ]
    waiting = visitor.get(page_of(second)).text
    assert f'href="{page_of(first)}"' in waiting
    assert "which is before it in its serialize key" in waiting
    place.client.dequeue(DequeueRequest(queue, 1))
    running = visitor.text(page_of(first))
    for text in ("report 1", "account", "Running", "Claim ends"):
        assert text in running
    place.client.ack(queue, succeeded=[Ack(first, result=b'{"sent": true}')])
    assert "sent : true" in visitor.text(page_of(first))
    assert visitor.get(f"{page_of(first)}/result").content == b'{"sent": true}'
    visitor.get(f"{page_of(second)}/result", status=404)


def test_a_ready_job_says_why_it_does_not_run(place: Place, visitor: Visitor, queue: str) -> None:
    (made,) = place.client.enqueue(queue, [Job(b"")])
    assert "No worker polls its queue." in visitor.text(page_of(made))
    place.client.update_queue(queue, place.password, set={"paused": "true", "paused_why": "the provider is down"})
    (hold,) = place.client.explain_jobs([made])
    shown = visitor.text(page_of(made))
    assert hold.text.startswith("Its queue is paused by ")
    assert shown.count(hold.text) == 2  # above, and in the time-line
    assert "waits for a worker" not in shown


def test_tags_are_links_to_the_jobs_that_have_them_and_a_copy_has_them(
    place: Place, visitor: Visitor, queue: str
) -> None:
    tags = ("tenant:7", 'a "quoted" \\ <b>')
    (made,) = place.client.enqueue(queue, [ExtendedJob(b"first", tags=tags)])
    place.client.enqueue(queue, [ExtendedJob(b"other", tags=["tenant:70"])])
    page = visitor.get(page_of(made)).text
    links = re.findall(r'<a class="tag" href="([^"]+)">([^<]+)</a>', page)
    assert [html.unescape(text) for _, text in links] == [*tags]
    for link, _ in links:
        found = visitor.get(html.unescape(link)).text
        assert page_of(made) in found
        assert "other" not in visitor.text(html.unescape(link))
    visitor.press(page_of(made), f"{page_of(made)}/copy", queue=queue, when="now")
    both = place.client.search_jobs(JobSelection(queue, tags=tags)).jobs
    assert len(both) == 2
    assert all(job.tags == [*tags] for job in both)


def test_what_is_no_job_is_not_found(visitor: Visitor, queue: str) -> None:
    for name in ("nonsense", f"{queue}:s1:p1:1790000000000000", "%2e%2e", "a/b"):
        visitor.get(f"/dashboard/jobs/{name}", status=404)


def test_a_failed_job_is_retried(place: Place, visitor: Visitor, queue: str) -> None:
    (made,) = fail(place.client, queue, "no\n")
    told = visitor.press(page_of(made), f"{page_of(made)}/retry", attempts="5")
    assert "The job waits for a worker again." in told
    assert (info_of(place, made).state, info_of(place, made).attempts_remaining) == (JobState.PENDING, 5)
    assert f"{page_of(made)}/retry" not in visitor.actions(page_of(made))
    shown = visitor.text(page_of(made))
    assert re.search(r"Retried .*by .* Ready", shown)
    assert re.search(r"Outcome Worker 1 .* failed", shown)


def test_a_job_that_waits_is_cancelled_and_one_that_runs_is_asked_to_stop(
    place: Place, visitor: Visitor, queue: str
) -> None:
    running, waiting = place.client.enqueue(queue, [Job(b"1"), Job(b"2")])
    place.client.dequeue(DequeueRequest(queue, 1))
    assert "was cancelled" in visitor.press(page_of(waiting), f"{page_of(waiting)}/cancel")
    assert place.client.lookup([waiting]) == {}
    assert visitor.actions(page_of(running)) == {f"{page_of(running)}/cancel", f"{page_of(running)}/copy"}
    told = visitor.press(page_of(running), f"{page_of(running)}/cancel", running="1")
    assert "Its worker is asked to stop" in told
    assert "has asked its worker to stop it" in told
    assert info_of(place, running).cancel_requested_by


def test_a_job_is_deleted_after_its_end(place: Place, visitor: Visitor, queue: str) -> None:
    (made,) = fail(place.client, queue, "no\n")
    assert "was deleted" in visitor.press(page_of(made), f"{page_of(made)}/delete")
    assert place.client.lookup([made]) == {}


def test_a_waiting_job_gets_another_time_body_and_number_of_attempts(
    place: Place, visitor: Visitor, queue: str
) -> None:
    (made,) = place.client.enqueue(queue, [Job(b"line 1\nline 2")])
    path = f"{page_of(made)}/reschedule"
    before = info_of(place, made)
    told = visitor.press(page_of(made), path, body="line 1\r\nline 2", when="+1h", attempts="7")
    assert "The job was changed." in told
    changed = info_of(place, made)
    assert (changed.body, changed.attempts_allowed) == (b"line 1\nline 2", 7)
    assert changed.run_after_ms > before.run_after_ms + 3_500_000
    visitor.press(page_of(made), path, body="another", when="now")
    assert info_of(place, made).body == b"another"
    assert info_of(place, made).run_after_ms <= time.time() * 1000 + 1_000
    assert "Nothing was to be changed" in visitor.press(page_of(made), path, body="another")
    stale = visitor.press(page_of(made), path, body="third", updated_at="17")
    assert "It was changed meanwhile" in stale
    # The page that the first change led to has taken the latest entries of the audit, and keeps them for a moment.
    assert re.search(r"Rescheduled .* by \S+, runs after \S+Z, gets attempts 7", told)
    assert "allowed: now, a length of time" in visitor.press(page_of(made), path, body="x", when="soon")
    assert info_of(place, made).body == b"another"


def test_a_copy_is_enqueued_with_what_the_form_says(place: Place, visitor: Visitor, queue: str) -> None:
    (made,) = fail(place.client, queue, "no\n")
    path = f"{page_of(made)}/copy"
    told = visitor.press(page_of(made), path, body="changed", priority="2", attempts="9", when="+1h", queue=queue)
    assert f"This is the copy of {made}" in told
    (copy,) = place.client.scan(JobFilter(queue, JobState.PENDING, future=True)).jobs
    found = info_of(place, copy.descriptor)
    assert (found.body, found.priority, found.attempts_allowed) == (b"changed", 2, 9)
    assert info_of(place, made).state is JobState.FAILED
    assert "gone" in visitor.press(page_of(made), path, body="x", queue="gone")


def test_a_binary_body_is_copied_as_it_is(place: Place, visitor: Visitor, queue: str) -> None:
    (made,) = place.client.enqueue(queue, [Job(b"\x00\xff")])
    page = visitor.get(page_of(made)).text
    assert 'name="body"' not in page
    visitor.press(page_of(made), f"{page_of(made)}/copy")
    bodies = [job.body for job in place.client.dequeue(DequeueRequest(queue, 5))]
    assert bodies == [b"\x00\xff"] * 2


def test_a_dead_letter_is_replayed(place: Place, visitor: Visitor, queue: str) -> None:
    letters = f"{queue}-dead"
    place.client.create_queue(letters)
    place.client.update_queue(queue, place.password, set={"dead_letter_queue": letters})
    (made,) = fail(place.client, queue, "no\n")
    for _ in range(100):
        moved = info_of(place, made).moved_to
        if moved:
            break
        time.sleep(0.2)
    assert moved
    assert f"A copy lies as a dead letter: {moved}" in visitor.text(page_of(made))
    shown = visitor.text(page_of(moved))
    assert f"It is a copy of {made}" in shown
    assert "Copied as a dead letter" in shown
    assert "went back to the queue" in visitor.press(page_of(moved), f"{page_of(moved)}/replay")
    assert place.client.lookup([moved]) == {}


def test_secrets_of_a_call_are_not_shown(place: Place, visitor: Visitor, queue: str) -> None:
    told = {"job": "login", "args": ["ada", "hunter22"], "headers": {"pinlater-secret": "1"}}
    body = b"PINLATER/1 application/json\n" + json.dumps(told).encode()
    (made,) = place.client.enqueue(queue, [Job(body)])
    page = visitor.get(page_of(made)).text
    assert "hunter22" not in page
    assert "login(&#39;ada&#39;" in page


def test_who_may_not_see_or_change_gets_neither_bodies_nor_buttons(ruled: Place) -> None:
    (made,) = ruled.client.enqueue("mail", [Job(b"a secret body", custom_status="a note\n")])
    viewer = ruled.visitor("viewer")
    shown = viewer.get(page_of(made)).text
    assert "a secret body" not in shown
    assert "a note" not in shown
    assert "Bodies of this queue are hidden from you." in shown
    assert viewer.actions(page_of(made)) == set()
    viewer.get(f"{page_of(made)}/body", status=404)
    for what in ("cancel", "delete", "retry", "reschedule", "copy", "replay"):
        response = viewer.send(f"{page_of(made)}/{what}", {"csrf": csrf_of(shown), "when": "now", "body": "x"})
        assert response.status_code in (303, 403, 404), what
    assert info_of(ruled, made).body == b"a secret body"


def test_a_change_without_the_text_of_the_session_changes_nothing(place: Place, visitor: Visitor, queue: str) -> None:
    (made,) = place.client.enqueue(queue, [Job(b"x")])
    response = visitor.send(f"{page_of(made)}/cancel", {"csrf": "guessed"})
    assert response.status_code == 403
    assert info_of(place, made).state is JobState.PENDING

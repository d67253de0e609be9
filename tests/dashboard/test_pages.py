"""Every page with something to show, and with nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from pinlater import Client
from pinlater.dashboard import audit_list, queue_list
from pinlater.dashboard.queue_rows import QueueRow, sum_of, worst_first
from pinlater.model import (
    DEAD_LETTERS,
    Ack,
    DequeueRequest,
    Job,
    WorkerReport,
)
from pinlater.model.workers import OutboxReport, WorkerCommand, WorkerJob
from tests.dashboard.conftest import Place
from tests.dashboard.visitor import Visitor, text_of

WITHIN_S = 100.0


def until(check: Callable[[], bool]) -> None:
    """Counts come a moment after what they count."""
    deadline = time.monotonic() + WITHIN_S
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_the_overview_has_queues_shards_servers_and_workers(place: Place, visitor: Visitor, queue: str) -> None:
    place.client.enqueue(queue, [Job(b"x")] * 7)
    until(lambda: re.search(rf"{queue} 7 ", visitor.text("/dashboard/queues")) is not None)
    shown = visitor.text("/dashboard")
    for text in ("Ready", "Scheduled", "Running", "Failed", "Enqueued", "Done", "Shards", "Servers", "Workers"):
        assert text in shown
    assert f"127.0.0.1:{place.server.port}" in visitor.text("/dashboard/cluster")
    assert "sqlite" in visitor.text("/dashboard/cluster")


def test_queues_are_found_sorted_and_paged(place: Place, visitor: Visitor) -> None:
    names = [f"many-{number:03}" for number in range(queue_list.PAGE_SIZE + 20)]
    for name in names:
        place.client.create_queue(name)
    place.client.enqueue("many-007", [Job(b"x")] * 3)
    path = "/dashboard/queues?name=MANY-"
    until(lambda: f" {len(names)} of " in visitor.text(path))
    first = visitor.text(path)
    assert f"1 to {queue_list.PAGE_SIZE} of {len(names)}" in first
    assert names[queue_list.PAGE_SIZE] not in first
    second = visitor.text(f"{path}&page=2")
    assert names[queue_list.PAGE_SIZE] in second
    assert names[0] not in second
    assert names[-1] in visitor.text(f"{path}&order=turned")

    def comes_first() -> bool:
        found = re.search(r"many-\d\d\d", visitor.text(f"{path}&sort=ready"))
        return found is not None and found[0] == "many-007"

    until(comes_first)
    assert "many-007" in visitor.text("/dashboard/queues?name=many-&show=busy")
    assert "many-008" not in visitor.text("/dashboard/queues?name=many-&show=busy")
    assert "No queue is like that" in visitor.text("/dashboard/queues?name=nothing-of-that-name")
    for odd in ("page=0", "page=99999", "page=x", "sort=x", "show=x", "page=%C2%B2"):
        visitor.get(f"/dashboard/queues?{odd}")


def test_a_queue_has_its_numbers_and_its_settings(place: Place, visitor: Visitor, queue: str) -> None:
    jobs = [Job(b"x", priority=1), Job(b"x", priority=2), Job(b"x", run_after_ms=int(time.time() * 1000) + 10**8)]
    place.client.enqueue(queue, jobs)
    place.client.update_queue(queue, place.password, set={"claim_timeout": "77s"})
    path = f"/dashboard/queues/{queue}"
    until(lambda: "Ready 2 " in visitor.text(path))
    shown = visitor.text(path)
    assert "Scheduled 1 " in shown
    assert "claim_timeout" in shown
    assert "77s set for this queue" in shown
    assert "the server's default" in shown
    assert f"pinlater-worker --app YOUR.MODULE:app --queues {queue}" in shown


def test_what_is_not_there_is_said_so(visitor: Visitor) -> None:
    for path in ("/dashboard/queues/nobody", "/dashboard/queues/a%20b", "/dashboard/nothing", "/dashboard/queues/x/y"):
        assert "This page cannot be shown" in visitor.text(path, status=404)


def test_workers_say_what_they_run(place: Place, visitor: Visitor, queue: str) -> None:
    (descriptor,) = place.client.enqueue(queue, [Job(b"x")])
    running = [WorkerJob(descriptor, "send_mail", 4_000)]
    report = WorkerReport(
        id=f"w-{queue}", name=f"mailer-{queue}", host="vm1", pid=4711, up_ms=90_000, queues={queue: 2}, slots=4,
        busy_slots=1, running=running, versions={"app": "2026.11"},
    )  # fmt: skip
    place.client.dequeue(DequeueRequest(queue, 1, worker=report))
    path = f"/dashboard/workers?queue={queue}"
    until(lambda: f"mailer-{queue}" in visitor.text(path))
    shown = visitor.text(path)
    for text in (
        "vm1, process 4711",
        f"{queue} \u00d72",
        "1 of 4",
        descriptor,
        "send_mail",
        "2026.11",
        "working",
        "1 worker",
    ):
        assert text in shown
    assert f"mailer-{queue}" in visitor.text(f"/dashboard/workers?name=mailer-{queue}")
    assert f"mailer-{queue}" in visitor.text(f"/dashboard/queues/{queue}")
    assert "No such worker" in visitor.text("/dashboard/workers?name=nobody")
    visitor.get("/dashboard/workers?cursor=nonsense")


def test_a_relay_of_an_outbox_is_shown_as_what_it_is(place: Place, visitor: Visitor, queue: str) -> None:
    outbox = OutboxReport(f"sqlite:///{queue}.db/pinlater_outbox", 12, 180_000, 300_000, "queue mail takes no jobs")
    report = WorkerReport(f"relay-{queue}", "outbox relay", 1, "host-9", 7, outbox=outbox)
    place.client.checkpoint("outbox", [], worker=report)
    path = "/dashboard/workers?name=outbox+relay"
    until(lambda: outbox.name in visitor.text(path))
    page = visitor.text(path)
    for text in ("relay of outbox", "12 wait, the oldest for 3 min", "queue mail takes no jobs"):
        assert text in page
    for text in ("slots busy", "0 of 0", "Quiet"):
        assert text not in page.partition("outbox relay")[2]
    place.client.checkpoint("outbox", [], worker=replace(report, up_ms=2, has_stopped=True))


def test_workers_are_told_to_rest_go_on_and_end(place: Place, visitor: Visitor, queue: str) -> None:
    report = WorkerReport(
        id=f"w-{queue}", name=f"mailer-{queue}", host=f"vm-{queue}", pid=4711, up_ms=90_000, queues={queue: 2}, slots=4,
        is_quiet=False,
    )  # fmt: skip
    place.client.create_queue(queue)
    place.client.heartbeat(queue, [], worker=report)
    path, action = f"/dashboard/workers?queue={queue}", "/dashboard/workers/commands"
    until(lambda: f"mailer-{queue}" in visitor.text(path))
    assert "It takes no more jobs, and ends those it has." in visitor.text(path)
    shown = visitor.press(path, action, command="quiet", worker=report.id, host="", name="")
    assert "They take no more jobs, within 15 seconds: 1 taken." in shown
    answers = place.client.heartbeat(queue, [], worker=replace(report, up_ms=90_001, is_quiet=True))
    assert answers.command is not None
    assert answers.command.command is WorkerCommand.QUIET
    until(lambda: "quiet" in visitor.text(path))
    assert "It takes jobs again." in visitor.text(path)
    shown = visitor.press(path, action, command="stop", worker="", host=f"vm-{queue}", name="")
    assert "They end when their jobs have ended: 1 taken." in shown
    shown = visitor.press(path, action, command="stop", worker="", host="nowhere", name="")
    assert "no worker was meant" in shown


def test_the_audit_is_filtered_and_paged(place: Place, visitor: Visitor) -> None:
    for number in range(audit_list.PAGE_SIZE + 5):
        place.client.create_queue(f"noted-{number}")
    first = visitor.text("/dashboard/audit?filter=noted- create")
    assert f"{audit_list.PAGE_SIZE} of " in first
    assert "noted-0 " not in first
    (following,) = set(re.findall(r'rel="next" href="([^"]+)"', visitor.get("/dashboard/audit?filter=noted-").text))
    second = visitor.text(following.replace("&amp;", "&"))
    assert "noted-0 " in second
    assert f"noted-{audit_list.PAGE_SIZE + 4} " not in second
    assert "First page" in second
    assert "None of the" in visitor.text("/dashboard/audit?filter=nothing+like+that")


@pytest.mark.parametrize(
    "path",
    ["", "/queues", "/queues/{queue}", "/workers", "/cluster", "/audit", "/nothing", "/queues?name=%22%3E%3Cb%3E"],
)
def test_pages_load_nothing_from_elsewhere_and_write_no_style_or_script(
    visitor: Visitor, queue: str, path: str
) -> None:
    response = visitor.client.get(f"/dashboard{path}".format(queue=queue))
    html = response.text
    assert "<!DOCTYPE html>" in html
    assert not re.search(r"<[^>]*\s(style|on\w+)=", html)
    assert "<style" not in html
    assert not re.search(r"<script(?![^>]*\ssrc=\"/dashboard/static/)", html)
    assert '"><b>' not in html
    policy = response.headers["Content-Security-Policy"]
    assert "script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    assert response.headers["Cache-Control"] == "no-store"
    ids = re.findall(r'\sid="([^"]+)"', html)
    assert len(ids) == len(set(ids))


def test_texts_of_callers_are_text(place: Place, visitor: Visitor, queue: str) -> None:
    evil = '<img src=x onerror="alert(1)">\u202egnp'
    report = WorkerReport(
        id=f"e-{queue}", name=evil, host=evil, pid=1, up_ms=5, queues={queue: 1}, slots=1, versions={"app": evil}
    )
    place.client.dequeue(DequeueRequest(queue, 1, worker=report))
    place.client.update_queue(queue, place.password, set={"paused": "true", "paused_why": evil})
    until(lambda: "onerror" in visitor.text(f"/dashboard/workers?queue={queue}"))
    for path in ("", f"/queues/{queue}", f"/workers?queue={queue}", "/audit"):
        html = visitor.get(f"/dashboard{path}").text
        assert "<img" not in html
        assert "\u202e" not in html
    assert "&lt;img src=x onerror=" in visitor.get(f"/dashboard/queues/{queue}").text


def test_an_open_page_gets_what_has_changed_and_nothing_else(place: Place, visitor: Visitor, queue: str) -> None:
    path = f"/dashboard/queues/{queue}"
    until(lambda: visitor.client.get(path, headers={"X-Live": "1"}).status_code == 200)

    def settled() -> bool:
        first = visitor.get(path, X_Live="1")
        again = visitor.client.get(path, headers={"X-Live": "1", "If-None-Match": first.headers["ETag"]})
        return again.status_code == 304 and not again.content

    until(settled)
    before = visitor.get(path, X_Live="1")
    assert before.text.startswith('<main id="main"')
    assert "<html" not in before.text
    place.client.update_queue(queue, place.password, set={"max_attempts": "3"})

    def changed() -> bool:
        known = {"X-Live": "1", "If-None-Match": before.headers["ETag"]}
        return visitor.client.get(path, headers=known).status_code == 200

    until(changed)


def test_files_are_kept_for_good_under_the_hash_of_what_is_in_them(place: Place, visitor: Visitor) -> None:
    paths = set(re.findall(r'"(/dashboard/static/[^"]+)"', visitor.get("/dashboard").text))
    assert len(paths) >= 5
    anybody = Visitor(place.address)
    for path in paths:
        response = anybody.get(path)
        assert response.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        anybody.get(path, status=304, If_None_Match=response.headers["ETag"])
        plain = anybody.get(path, Accept_Encoding="identity")
        assert plain.content == response.content
    (css,) = [path for path in paths if path.endswith("dashboard.css")]
    old = anybody.get(css.replace(css.split("/")[3], "0" * 16))
    assert old.headers["Cache-Control"] == "no-cache"
    for odd in (
        "/dashboard/static/x/../site.py",
        "/dashboard/static/x/nothing.css",
        "/dashboard/static/x/%2e%2e%2fsite.py",
    ):
        assert anybody.client.get(odd).status_code in (303, 404)


def test_alarms_come_first_and_mark_their_queues(place: Place, visitor: Visitor, queue: str) -> None:
    long_ago_ms = int(time.time() * 1000) - 600_000
    place.client.enqueue(queue, [Job(b"x", run_after_ms=long_ago_ms)])
    until(lambda: f"{queue}: no worker takes its 1 ready job" in visitor.text("/dashboard"))
    html = visitor.get("/dashboard").text
    assert html.index("no worker takes its") < html.index("Ready")
    assert re.search(r"<title>\(\d+\) Overview", html)
    assert f"{queue} alarm" in visitor.text(f"/dashboard/queues?name={queue}")
    place.client.mute_alarm("no_worker", 60_000, "known", place.password, subject=queue)
    until(lambda: f"{queue}: no worker" not in visitor.text("/dashboard"))
    assert "1 muted" in visitor.text("/dashboard")
    (muted,) = [each for each in place.client.get_alarms().alarms if each.queue == queue]
    assert muted.muted_why == "known"
    assert any(each.action == "mute_alarm" and each.target == f"no_worker/{queue}" for each in place.client.audit())
    place.client.delete_queue(queue, place.password)


def test_dead_letters_wait_for_nobody() -> None:
    letters = QueueRow("dead", ready=2_002, oldest_ms=1_000, flags=[DEAD_LETTERS])
    total = sum_of([letters, QueueRow("mail", ready=684, oldest_ms=9_000)])
    assert (total.ready, total.oldest_ms) == (684, 9_000)


def test_the_worst_queues_come_first() -> None:
    now_ms = 1_790_000_000_000
    rows = [QueueRow(f"moves-{number}", ready=100, rates={"enqueued": 20.0}) for number in range(30)]
    rows += [QueueRow("idle"), QueueRow("alarmed"), QueueRow("worse"), QueueRow("failed", failed=100_000)]
    rows += [QueueRow("fails", failed=3), QueueRow("waits", ready=1, oldest_ms=now_ms - 600_000)]
    held_ms = now_ms - 6_000_000
    rows += [QueueRow("paused", ready=1, oldest_ms=held_ms, flags=["paused"])]
    rows += [QueueRow("letters", ready=1, oldest_ms=held_ms, flags=[DEAD_LETTERS])]
    names = [row.name for row in worst_first(rows, now_ms, ["worse", "alarmed", "worse", ""], {"fails": 2})]
    assert names[:6] == ["worse", "alarmed", "fails", "failed", "waits", "moves-0"]
    assert names[-1] == "idle"
    steady = [QueueRow("a", ready=130), QueueRow("b", ready=140)]
    assert [row.name for row in worst_first(steady, now_ms, [], {})] == ["a", "b"]


def failed_jobs(client: Client, queue: str, number: int) -> None:
    """Jobs that have failed for good."""
    client.enqueue(queue, [Job(b"x", attempts_allowed=1)] * number)
    left = number
    while left:
        jobs = client.dequeue(DequeueRequest(queue, left))
        client.ack(queue, [], [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs])
        left -= len(jobs)


def test_failed_jobs_are_counted(place: Place, visitor: Visitor, queue: str) -> None:
    failed_jobs(place.client, queue, 4)
    until(lambda: "Failed 4 " in visitor.text(f"/dashboard/queues/{queue}"))
    assert queue in text_of(visitor.get("/dashboard/queues?show=failed").text)


def test_pages_and_their_files_come_compressed_where_a_browser_takes_that(visitor: Visitor) -> None:
    page = visitor.get("/dashboard")
    assert page.headers["Content-Encoding"] in ("gzip", "deflate")
    assert int(page.headers["Content-Length"]) < len(page.content) / 3
    for path in re.findall(r'"(/dashboard/static/[^"]+\.(?:js|css))"', page.text):
        assert "Content-Encoding" in visitor.get(path).headers, path
    plain = visitor.get("/dashboard", Accept_Encoding="identity")
    assert "Content-Encoding" not in plain.headers
    assert visitor.client.head("/dashboard").status_code == 200


def test_what_is_not_there_is_said_without_names_of_calls(visitor: Visitor) -> None:
    shown = visitor.text("/dashboard/queues/nowhere", status=404)
    assert "queue 'nowhere' does not exist." in shown
    assert "The page Queues lists those that exist." in shown
    assert "createQueue" not in shown


def test_the_way_out_of_a_question_is_not_named_like_the_deed(place: Place, visitor: Visitor, queue: str) -> None:
    (job,) = place.client.enqueue(queue, [Job(b"x")])
    for path in (f"/dashboard/jobs/{job}", f"/dashboard/queues/{queue}", "/dashboard/cluster"):
        for form in re.findall(r'<form class="panel".*?</form>', visitor.get(path).text, re.DOTALL):
            sends, leaves = re.findall(r"<button[^>]*>([^<]+)</button>", form)
            assert leaves in ("Keep it", "Leave it", "Let it run"), path
            assert sends != leaves


def test_the_page_to_try_the_calls_leads_back(visitor: Visitor) -> None:
    page = visitor.get("/docs/api").text
    assert '<a href="/">Back to the pages</a>' in page
    assert visitor.client.get("/").headers["Location"] == "/dashboard"

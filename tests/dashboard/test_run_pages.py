"""Bulk runs: the question before one begins, its progress, its stop, and who may see it."""

from __future__ import annotations

import re

from pinlater import DequeueRequest, Job, JobFilter, JobState
from tests.dashboard.conftest import Place
from tests.dashboard.test_job_list import address, counted, fail, patiently
from tests.dashboard.visitor import Visitor, csrf_of, text_of

ENDED = re.compile(r'class="state (?:good|bad|held)">(?:done|failed|stopped)<')


def asked(visitor: Visitor, **form: str | list[str]) -> str:
    """The page that asks before a run begins."""
    csrf = csrf_of(visitor.get(address(str(form.get("filter", "")))).text)
    response = visitor.client.post(
        "/dashboard/runs/new", data={"csrf": csrf, **form}, headers={"Sec-Fetch-Site": "same-origin"}
    )
    assert response.status_code == 303, response.text
    return visitor.get(response.headers["Location"]).text


def refused(visitor: Visitor, **form: str) -> str:
    """What is said instead."""
    csrf = csrf_of(visitor.get("/dashboard/jobs").text)
    response = visitor.send("/dashboard/runs/new", {"csrf": csrf, **form})
    assert response.status_code == 303, response.text
    return visitor.text(response.headers["Location"])


def begun(visitor: Visitor, page: str, **more: str) -> str:
    """Sends the form of that page; the address of the run."""
    fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', page[page.index('class="box"') :])
    form: dict[str, str | list[str]] = {}
    for name, value in fields:
        value = value.replace("&#34;", '"').replace("&amp;", "&")
        form[name] = [*form[name], value] if name in form else ([value] if name == "job" else value)  # type: ignore[misc]
    response = visitor.client.post("/dashboard/runs", data={**form, **more}, headers={"Sec-Fetch-Site": "same-origin"})
    assert response.status_code == 303, response.text
    return str(response.headers["Location"])


def done(visitor: Visitor, path: str) -> str:
    patiently(lambda: ENDED.search(visitor.get(path).text) is not None)
    return visitor.text(path)


def test_all_that_a_filter_finds_is_retried_after_a_question(place: Place, visitor: Visitor, queue: str) -> None:
    fail(place.client, queue, *["TimeoutError\n"] * 5, *["ValueError\n"] * 3)
    counted(visitor, queue, "failed 8")
    question = asked(visitor, filter=f"queue:{queue} state:failed status:timeout", action="retry", which="all")
    assert "5 jobs would be touched now" in text_of(question)
    assert place.client.count(JobFilter(queue, JobState.FAILED)) == 8
    path = begun(visitor, question, note="after the outage", attempts="4")
    shown = done(visitor, path)
    assert "Retried 5 jobs" in shown
    assert "after the outage" in shown
    assert place.client.count(JobFilter(queue, JobState.FAILED)) == 3
    assert {info.attempts_remaining for info in place.client.scan(JobFilter(queue, JobState.PENDING)).jobs} == {4}
    (entry,) = [each for each in place.client.audit(limit=100) if each.target == queue and each.action == "retry_jobs"]
    assert entry.detail.endswith(f"queue:{queue} state:failed status:timeout: after the outage")
    assert entry.detail.startswith("5 jobs")
    runs = visitor.text("/dashboard/runs")
    assert f"queue:{queue} state:failed status:timeout" in runs


def test_counted_jobs_are_told_as_counted(place: Place, visitor: Visitor, queue: str) -> None:
    place.client.enqueue(queue, [Job(b"x")] * 6)
    counted(visitor, queue, "ready 6")

    def question() -> str:
        return asked(visitor, filter=f"queue:{queue}", action="cancel", which="all")

    patiently(lambda: "6 jobs as last counted, in 1 queue" in text_of(question()))
    assert "Cancelled 6 jobs" in done(visitor, begun(visitor, question()))


def test_dead_letters_go_back_queue_by_queue(place: Place, visitor: Visitor, queue: str) -> None:
    """By the links on the pages of their queue and of the one where they lie; other jobs there are left alone."""
    letters, other = f"{queue}-letters", f"{queue}-other"
    for name in (letters, other):
        place.client.create_queue(name)
    for name in (queue, other):
        place.client.update_queue(name, place.password, set={"dead_letter_queue": letters})
    failed = fail(place.client, queue, *["no\n"] * 3)
    fail(place.client, other, "no\n", "no\n")
    place.client.enqueue(letters, Job(b"no dead letter"))

    def button(name: str, which: str) -> str:
        """Where the button leads; "": it is not there."""
        found = re.findall(rf'id="{which}" href="([^"]+)"', visitor.get(f"/dashboard/queues/{name}").text)
        return found[0].replace("&amp;", "&") if found else ""

    patiently(lambda: "Replay its 3 dead letters" in visitor.text(f"/dashboard/queues/{queue}"))
    held = visitor.text(f"/dashboard/queues/{letters}")
    assert held.index(f"{queue} 3 Replay those of {queue}") < held.index(f"{other} 2 Replay those of {other}")
    question = visitor.get(button(queue, "replay")).text
    assert "3 jobs would be touched now" in text_of(question)
    assert "Replayed 3 jobs" in done(visitor, begun(visitor, question))
    assert len(place.client.dequeue(DequeueRequest(queue, 10))) == 3
    assert place.client.count(JobFilter(letters, JobState.PENDING)) == 3

    patiently(lambda: button(queue, "replay") == "")
    assert "None of its dead letters lies there" in visitor.text(f"/dashboard/queues/{queue}")
    patiently(lambda: "3 replayed" in visitor.text(f"/dashboard/queues/{queue}"))
    replayed = visitor.text(f"/dashboard/jobs/{failed[0]}")
    assert "Its dead letter was replayed as" in replayed
    assert "Replayed as" in replayed
    assert 'id="retry"' not in visitor.get(f"/dashboard/jobs/{failed[0]}").text

    question = visitor.get(button(letters, f"replay-{other}")).text
    assert "2 jobs would be touched now" in text_of(question)
    assert "Replayed 2 jobs" in done(visitor, begun(visitor, question))
    assert place.client.count(JobFilter(letters, JobState.PENDING)) == 1
    patiently(lambda: "No dead letter lies here" in visitor.text(f"/dashboard/queues/{letters}"))
    assert button(letters, "replay") == ""


def test_selected_jobs_are_changed_and_no_others(place: Place, visitor: Visitor, queue: str) -> None:
    made = fail(place.client, queue, *["no\n"] * 4)
    question = asked(visitor, filter=f"queue:{queue}", action="delete", which="selected", job=made[:2])
    assert "Delete 2 selected jobs" in text_of(question)
    assert "Deleted 2 jobs" in done(visitor, begun(visitor, question))
    assert set(place.client.lookup(made)) == set(made[2:])


def test_what_cannot_be_asked_for_is_said(visitor: Visitor, queue: str) -> None:
    for form, says in (
        ({"filter": f"queue:{queue}", "action": "delete"}, "needs a state"),
        ({"filter": f"queue:{queue} state:ready", "action": "retry"}, "Retry is for jobs that are failed, cancelled"),
        ({"filter": f"queue:{queue}", "action": "cancel", "which": "selected"}, "no job was selected"),
        ({"filter": "nonsense", "action": "cancel"}, "is no condition"),
        ({"filter": "", "action": "explode"}, "action is 'explode'"),
    ):
        assert says in refused(visitor, **form), form


def test_a_run_over_nothing_cannot_begin(visitor: Visitor, queue: str, place: Place) -> None:
    page = asked(visitor, filter=f"queue:{queue} state:failed", action="retry", which="all")
    assert "0 jobs" in text_of(page)


def test_a_run_is_stopped_on_its_page(place: Place, visitor: Visitor, queue: str) -> None:
    for _ in range(10):
        place.client.enqueue(queue, [Job(b"x" * 100, custom_status="x")] * 2_000)
    counted(visitor, queue, "ready 20,000")
    path = begun(visitor, asked(visitor, filter=f"queue:{queue} state:ready status:x", action="delete", which="all"))
    stopped = visitor.press(path, f"{path}/stop")
    assert "stop" in stopped
    shown = done(visitor, path)
    if "It was stopped" in shown:  # else it was faster
        left = place.client.count(JobFilter(queue, JobState.PENDING))
        assert 0 < left < 20_000
        assert any("stopped before its end" in each.detail for each in place.client.audit(limit=20))


def test_a_run_is_shown_to_who_began_it_and_to_admins_alone(ruled: Place) -> None:
    ruled.client.enqueue("mail", [Job(b"x", custom_status="of a run")] * 3)
    operator = ruled.visitor("operator")
    patiently(lambda: "of a run" in operator.text(address("queue:mail")))
    question = asked(operator, filter='queue:mail state:ready status:"of a run"', action="cancel", which="all")
    path = begun(operator, question)
    assert "Cancelled 3 jobs" in done(operator, path)
    for role, status in (("viewer", 404), ("of-mail", 404), ("admin", 200)):
        ruled.visitor(role).get(path, status=status)
    assert "Nothing was changed in bulk" in ruled.visitor("of-mail").text("/dashboard/runs")


def test_queues_that_one_may_not_change_are_left_alone_and_named(ruled: Place) -> None:
    for name in ("mail", "sms"):
        ruled.client.enqueue(name, [Job(b"x", custom_status="of two queues")])
    viewer = ruled.visitor("viewer")
    admin = ruled.visitor("admin")
    patiently(lambda: "of two queues" in admin.text(address("queue:sms state:ready")))
    visitor = ruled.visitor("of-mail")
    patiently(lambda: "of two queues" in visitor.text(address("queue:mail state:ready")))

    def question() -> str:
        return asked(visitor, filter='state:ready status:"of two queues"', action="cancel", which="all")

    patiently(lambda: "1 job would be touched now" in text_of(question()))
    done(visitor, begun(visitor, question()))
    assert ruled.client.count(JobFilter("sms", JobState.PENDING)) >= 1
    page = viewer.get("/dashboard/jobs").text
    response = viewer.send("/dashboard/runs", {"csrf": csrf_of(page), "filter": "queue:mail", "action": "cancel"})
    assert response.status_code == 403

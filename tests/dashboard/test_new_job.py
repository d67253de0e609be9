"""The form for a new job: what it offers, makes and refuses."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from pinlater import DequeueRequest, Job
from pinlater.job_body import describe_body
from pinlater.model import WorkerReport
from pinlater.model.workers import WorkerJob
from tests.dashboard.conftest import Place
from tests.dashboard.test_job_list import call, patiently
from tests.dashboard.visitor import Visitor, csrf_of, text_of

NEW = "/dashboard/jobs/new"


def completed(visitor: Visitor, filter: str) -> list[dict[str, str]]:
    """What can come at the end of a filter."""
    path = f"/dashboard/jobs/completions?filter={quote(filter)}&at={len(filter)}"
    found: list[dict[str, str]] = visitor.get(path).json()["options"]
    return found


def made(place: Place, visitor: Visitor, **form: str) -> tuple[str, str]:
    """What is told, and the descriptor of the new job; "" for none."""
    response = visitor.send(NEW, {"csrf": csrf_of(visitor.get(NEW).text), "form": "job", **form})
    assert response.status_code == 303, response.text
    shown = visitor.get(response.headers["Location"]).text
    found = re.search(r"[a-z0-9-]+:s1:p[0-9]+:[0-9]+", text_of(shown))
    return shown, found[0] if found and "is in queue" in shown else ""


def test_a_call_is_enqueued_by_its_type_and_its_arguments(place: Place, visitor: Visitor, queue: str) -> None:
    arguments = '{"order": 7, "to": ["ada"]}'
    form = {"queue": queue, "type": "shop.receipt", "body": arguments, "when": "+1h", "priority": "2", "attempts": "5"}
    _, descriptor = made(place, visitor, **form, dedupe="once", serialize="ada", tags="tenant:7\r\nplan: pro\r\n")
    info = place.client.lookup([descriptor], include_body=True)[descriptor]
    called = describe_body(info.body or b"")
    assert called is not None
    assert (called.job, called.kwargs) == ("shop.receipt", {"order": 7, "to": ["ada"]})
    assert (info.priority, info.attempts_allowed, info.dedupe_key, info.serialize_key) == (2, 5, "once", "ada")
    assert info.tags == ["tenant:7", "plan: pro"]
    assert {option["text"] for option in completed(visitor, f"queue:{queue} tag:")} == {"tenant:7", '"plan: pro"'}
    assert [option["text"] for option in completed(visitor, f"queue:{queue} tag:pl")] == ['"plan: pro"']
    assert "tenant:7 plan: pro" in visitor.text(f"/dashboard/jobs?filter=queue:{queue}")
    assert info.run_after_ms - info.created_at_ms > 3_500_000
    _, plain = made(place, visitor, queue=queue, body="a\r\nb")
    assert place.client.lookup([plain], include_body=True)[plain].body == b"a\nb"


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"type": "shop.receipt", "body": "{order: 7}"}, "the arguments are no JSON"),
        ({"type": "shop.receipt", "body": "7"}, "the arguments are to be a list"),
        ({"type": "a/b", "body": "[]"}, "is no type of job"),
        ({"when": "tomorrow"}, "tomorrow"),
        ({"queue": "nowhere"}, "does not exist"),
    ],
)
def test_what_cannot_be_enqueued_stays_in_the_form(
    place: Place, visitor: Visitor, queue: str, form: dict[str, str], told: str
) -> None:
    shown, descriptor = made(place, visitor, **{"queue": queue, "dedupe": "typed before", **form})
    assert descriptor == ""
    assert told in text_of(shown)
    assert 'value="typed before"' in shown


def test_types_that_workers_know_or_run_and_that_the_queue_had_are_offered(
    place: Place, visitor: Visitor, queue: str
) -> None:
    (job, _) = place.client.enqueue(queue, [Job(call("shop.seen")), Job(b"no call")])
    running = [WorkerJob(job, "shop.runs", 5)]
    report = WorkerReport("w-new", "w", 1_000, "h", 1, queues={queue: 1}, slots=2, running=running)
    report.job_types = ["shop.known"]
    place.client.dequeue(DequeueRequest(queue, 1, worker=report))
    path = f"{NEW}?queue={queue}"
    for offered in ("shop.runs", "shop.seen", "shop.known", queue):  # what takes long on a busy machine is left out
        patiently(lambda option=f'<option value="{offered}">': option in visitor.get(path).text)  # type: ignore[misc]


def test_who_may_not_enqueue_is_refused_and_has_no_button(ruled: Place) -> None:
    viewer = ruled.visitor("viewer")
    assert NEW not in viewer.get("/dashboard/jobs").text
    csrf = csrf_of(viewer.get("/dashboard/jobs").text)
    assert viewer.send(NEW, {"csrf": csrf, "queue": "mail", "body": "x"}).status_code == 403

"""Forms with a mistake: the page that has one shows it open, with what was typed, and a browser can go back."""

from __future__ import annotations

import re
from html import unescape

import pytest

from pinlater import Client, Job
from pinlater.dashboard.refused_form import with_typed
from tests.dashboard.conftest import Place
from tests.dashboard.test_job_list import address, fail
from tests.dashboard.visitor import Visitor, csrf_of, text_of

OPEN = re.compile(r'<details class="action" id="([^"]+)" open>(.*?)</details>', re.DOTALL)


def sent(visitor: Visitor, page: str, action: str, **form: str) -> str:
    """The page that a form with a mistake leads to."""
    return visitor.shown(action, {"csrf": csrf_of(visitor.get(page).text), **form})


def job_of(client: Client, queue: str, kind: str) -> str:
    return client.enqueue(queue, Job(b"as it was")) if kind == "ready" else fail(client, queue, "no\n")[0]


@pytest.mark.parametrize(
    ("page", "action", "form", "typed"),
    [
        ("queues/{queue}", "pause", "pause", {"why": "the disk is full", "for": "soon"}),
        ("queues/{queue}", "settings", "change-max_attempts", {"key": "max_attempts", "value": "many"}),
        ("queues/{queue}", "delete", "delete", {"name": "another"}),
        ("jobs/{ready}", "reschedule", "reschedule", {"when": "tomorrow", "attempts": "3", "body": "<b>\n new"}),
        ("jobs/{ready}", "copy", "copy", {"queue": "not there", "priority": "2", "when": "now", "body": '"x"'}),
        ("jobs/{failed}", "retry", "retry", {"attempts": "none"}),
        ("queues", "", "new-queue", {"name": "not a name"}),
    ],
)
def test_a_form_with_a_mistake_stays_open_with_what_was_typed(
    place: Place, visitor: Visitor, queue: str, page: str, action: str, form: str, typed: dict[str, str]
) -> None:
    names = {kind: job_of(place.client, queue, kind) for kind in ("ready", "failed") if f"{{{kind}}}" in page}
    path = f"/dashboard/{page.format(queue=queue, **names)}"
    shown = sent(visitor, path, f"{path}/{action}".rstrip("/"), form=form, **typed)
    ((opened, fields),) = OPEN.findall(shown)
    assert opened == form
    assert 'class="notice bad"' in shown
    for name, text in typed.items():
        box = re.search(rf'<(?:input|textarea)[^>]*name="{name}"[^>]*>([^<]*)', fields)
        assert box is not None, name
        value = re.search(r'value="([^"]*)"', box[0])
        assert unescape(box[1].removeprefix("\n") if value is None else value[1]) == text
    assert fields.count(" autofocus") == 1
    assert OPEN.findall(visitor.get(path).text) == [], "it is theirs once"


def test_what_was_typed_into_the_question_of_a_run_stays(place: Place, visitor: Visitor, queue: str) -> None:
    (job,) = fail(place.client, queue, "no\n")
    csrf = csrf_of(visitor.get(address(f"queue:{queue}")).text)
    form = {"csrf": csrf, "filter": f"queue:{queue}", "action": "retry", "which": "selected", "job": job}
    question = visitor.send("/dashboard/runs/new", form).headers["Location"]
    jobs = re.search(r'name="jobs" value="([^"]+)"', visitor.get(question).text)
    assert jobs is not None
    form |= {"jobs": jobs[1], "form": "run", "attempts": "0", "note": "after the outage"}
    again = visitor.get(visitor.send("/dashboard/runs", form).headers["Location"]).text
    assert "Retry 1 selected job" in text_of(again)
    assert 'value="after the outage"' in again
    assert "attempts is &#39;0&#39;" in again


def test_what_was_sent_has_an_address_to_go_back_to(visitor: Visitor, queue: str) -> None:
    """A browser cannot go back to the answer of a form itself."""
    for path, form in (
        ("/dashboard/runs/new", {"filter": f"queue:{queue} state:failed", "action": "retry", "which": "all"}),
        ("/dashboard/schedules/@new", {"name": "nightly", "queue": queue, "cron": "every night", "step": "check"}),
        ("/dashboard/schedules/@new", {"name": "nightly", "queue": queue, "cron": "0 3 * * *", "step": "check"}),
    ):
        response = visitor.send(path, {"csrf": csrf_of(visitor.get(path.replace("/runs/new", "/runs")).text), **form})
        assert response.status_code == 303, path
        shown = visitor.get(response.headers["Location"]).text
        assert unescape(shown).count(form.get("cron") or form["filter"]) > 0


def test_a_form_that_is_too_large_to_be_kept_is_told_of_all_the_same(
    place: Place, visitor: Visitor, queue: str
) -> None:
    path = f"/dashboard/jobs/{job_of(place.client, queue, 'ready')}"
    shown = sent(visitor, path, f"{path}/reschedule", form="reschedule", when="tomorrow", body="x" * 100_000)
    assert OPEN.findall(shown) == []
    assert "tomorrow" in shown


def test_an_error_after_a_change_stays_until_it_is_read(ruled: Place) -> None:
    """The script of an open page leaves it alone: at its address there is nothing else."""
    viewer = ruled.visitor("viewer")
    form = {"csrf": csrf_of(viewer.get("/dashboard/queues/mail").text)}
    for path, status in (("queues/mail/pause", 403), ("queues/mail/explode", 404)):
        answer = viewer.send(f"/dashboard/{path}", form)
        assert answer.status_code == status
        assert re.search('<body[^>]* data-live="off">', answer.text)
    notice = ruled.visitor("operator")
    shown = sent(notice, "/dashboard/queues/mail", "/dashboard/queues/mail/pause", **{"for": "soon"})
    assert "data-read" in shown


def test_controls_of_every_kind_are_filled() -> None:
    fields = (
        '<input type="hidden" name="key" value="a"><select name="which"><option value="one" selected>1</option>'
        '<option value="two">2</option></select><input type="checkbox" name="all" value="1" checked>'
        '<input type="radio" name="by" value="cron" checked><input type="radio" name="by" value="every">'
        '<input name="other" value="stays"><textarea name="body">\nold</textarea>'
        '<datalist><option value="x"></datalist>'
    )
    assert with_typed(fields, [("key", "b"), ("which", "two"), ("by", "every"), ("body", "</textarea>")]) == (
        '<input type="hidden" name="key" value="a"><select name="which" autofocus><option value="one">1</option>'
        '<option value="two" selected>2</option></select><input type="checkbox" name="all" value="1">'
        '<input type="radio" name="by" value="cron"><input type="radio" name="by" value="every" checked>'
        '<input name="other" value="stays"><textarea name="body">\n&lt;/textarea&gt;</textarea>'
        '<datalist><option value="x"></datalist>'
    )

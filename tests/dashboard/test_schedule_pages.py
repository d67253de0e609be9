"""The pages of schedules against a real server: what they show, what they change, and what a form is checked for."""

from __future__ import annotations

import html
import itertools
import re
import time
from pathlib import Path

import pytest

from pinlater.model import DequeueRequest, JobFilter, JobState, Misfire, RequestContext, ScheduleChange, ScheduleView
from tests.dashboard.conftest import Place
from tests.dashboard.test_flow_pages import awaited, refused
from tests.dashboard.visitor import FORM, Visitor, csrf_of, text_of
from tests.server.running import running

SCHEDULES = "/dashboard/schedules"
NEW = f"{SCHEDULES}/@new"
PAGE_SIZE = 50
HOUR_MS = 3_600_000
_INPUT = re.compile(
    r'<input ([^>]*)>|<textarea name="(\w+)"[^>]*>\n(.*?)</textarea>|<option value="([^"]*)" selected>', re.S
)
_numbers = itertools.count()


@pytest.fixture
def word() -> str:
    """A beginning for names of schedules that no other test has."""
    return f"trees{next(_numbers)}"


def made(place: Place, name: str, queue: str, **values: object) -> ScheduleView:
    if "every_ms" not in values:
        values.setdefault("cron", "0 3 * * *")
    change = ScheduleChange(name=name, queue=queue, **values)  # type: ignore[arg-type]
    return place.client.update_schedule(change, place.password).view


def seen(place: Place, name: str) -> ScheduleView:
    """As the servers know it."""
    (found,) = place.client.get_schedules([name], include_body=True, next_limit=5).schedules
    return found


def is_there(place: Place, name: str) -> bool:
    return bool(place.client.get_schedules([name]).schedules)


def listed(visitor: Visitor, path: str) -> list[str]:
    return re.findall(r'<tr id="schedule-([^"]+)"', visitor.get(path).text)


def fields_of(page: str) -> dict[str, str]:
    """What a browser would send of the form of a schedule."""
    form = page.partition("data-check>")[2].partition("</form>")[0]
    fields = {}
    for attributes, area, text, misfire in _INPUT.findall(form):
        if area:
            fields[area] = html.unescape(text)
            continue
        if misfire:
            fields["misfire"] = misfire
            continue
        told = dict(re.findall(r'(\w+)="([^"]*)"', attributes))
        if told.get("type") in ("radio", "checkbox") and "checked" not in attributes:
            continue
        fields[told["name"]] = html.unescape(told.get("value", ""))
    return fields


def checked(visitor: Visitor, path: str, **changes: str) -> str:
    """The form after its first check, with these changes."""
    return visitor.shown(path, {**fields_of(visitor.get(path).text), **changes, "step": "check"})


def saved(visitor: Visitor, path: str, page: str) -> str:
    """What is told when a form that was checked is saved."""
    return text_of(visitor.shown(path, {**fields_of(page), "step": "save"}))


def test_without_a_schedule_the_page_says_how_to_make_one(tmp_path: Path) -> None:
    with running(tmp_path, "--api", "127.0.0.1:0") as server:
        address = str(server.wait_for("api_ready")["address"]).rstrip("/")
        visitor = Visitor(address).open(password=(tmp_path / "pinlater-data" / "admin-password").read_text().strip())
        shown = visitor.text(SCHEDULES)
    assert "There is no schedule yet" in shown
    assert "pinlater schedule set nightly" in shown
    assert "New schedule" in shown


def test_schedules_are_listed_in_words_and_filtered(place: Place, visitor: Visitor, queue: str, word: str) -> None:
    made(place, f"{word}.nightly", queue, timezone="Europe/Berlin", misfire=Misfire.SKIP)
    made(
        place, f"{word}.poll", queue, every_ms=90_000, misfire=Misfire.RUN_ALL, max_catch_up=7, made_by="shop.jobs:app"
    )
    made(place, f"{word}.gone", queue, end_ms=int(time.time() * 1000) + 30 * HOUR_MS)
    place.client.update_schedule(ScheduleChange(name=f"{word}.poll", paused=True), place.password)
    place.client.update_schedule(ScheduleChange(name=f"{word}.gone", end_ms=1), place.password)
    path = f"{SCHEDULES}?name={word}"
    assert listed(visitor, path) == [f"{word}.{name}" for name in ("gone", "nightly", "poll")]
    shown = visitor.text(path)
    assert "At 03:00 every day 0 3 * * * Europe/Berlin" in shown
    misfires = "a job for each, 7 at most"
    assert f"{word}.poll kept by shop.jobs:app Every 1 min 30 s {queue} none known {misfires} paused" in shown
    assert "left out on" in shown
    assert "in trouble it has ended: no time is left" in shown
    for show, name in (("on", "nightly"), ("paused", "poll"), ("in+trouble", "gone")):
        assert listed(visitor, f"{path}&show={show}") == [f"{word}.{name}"]
    assert listed(visitor, f"{SCHEDULES}?name={word.upper()}.NIGHT") == [f"{word}.nightly"]
    assert len(listed(visitor, f"{SCHEDULES}?queue={queue}")) == 3
    assert listed(visitor, f"{SCHEDULES}?made_by=shop.jobs:app&queue={queue}") == [f"{word}.poll"]
    assert "No schedule is like that" in visitor.text(f"{SCHEDULES}?name={word}x")
    assert "was not given for this list" in visitor.text(f"{SCHEDULES}?cursor=%3F")


@pytest.mark.parametrize("looking", ["", "&show=on"])
def test_schedules_come_in_pages(place: Place, visitor: Visitor, queue: str, word: str, looking: str) -> None:
    names = [f"{word}.{number:03}" for number in range(PAGE_SIZE + 3)]
    for name in names:
        made(place, name, queue)
    path = f"{SCHEDULES}?queue={queue}{looking}"
    first = visitor.get(path).text
    (following,) = re.findall(r'rel="next" href="([^"]+)"', first)
    assert re.findall(r'<tr id="schedule-([^"]+)"', first) == names[:PAGE_SIZE]
    following = html.unescape(following)
    assert listed(visitor, following) == names[PAGE_SIZE:]
    assert "First page" in visitor.text(following)


def test_a_schedule_shows_all_that_it_says(place: Place, visitor: Visitor, queue: str, word: str) -> None:
    view = made(
        place,
        word,
        queue,
        timezone="America/New_York",
        body=b'PINLATER/1 application/json\n{"job": "report", "kwargs": {"full": true}}',
        priority=2,
        attempts_allowed=7,
        serialize_key="account-7",
        jitter_ms=90_000,
        start_ms=2_000_000_000_000,
    )
    shown = visitor.text(f"{SCHEDULES}/{word}")
    for text in (
        "At 03:00 every day 0 3 * * * America/New_York",
        f"Queue {queue}",
        "Priority 2",
        "Attempts 7",
        "Serialize key account-7",
        "Missed times one job for all of them",
        "Jitter up to 1 min 30 s after its time",
        "Start Tue 2033-05-17 23:33:20 -0400",
        "It has not fired yet",
        "report (",
        "full : true",
    ):
        assert text in shown.replace("full:", "full :"), text
    assert len(view.next_ms) == 5
    assert shown.count(" 03:00:00 -0400") == 5
    whole = visitor.get(f"{SCHEDULES}/{word}/body")
    assert whole.content.startswith(b"PINLATER/1")
    assert "there is no schedule" in visitor.text(f"{SCHEDULES}/{word}x", status=404)
    assert "there is no schedule" in visitor.text(f"{SCHEDULES}/%3Cimg%3E", status=404)


def test_the_job_of_the_last_firing_is_linked(place: Place, visitor: Visitor, queue: str, word: str) -> None:
    made(place, word, queue, every_ms=3_600_000, start_ms=int(time.time() * 1000) + 2_500, serialize_key=word)
    shown = awaited(visitor, f"{SCHEDULES}/{word}", "Fired last", f"Job {queue}:")
    assert "ready" in shown
    (job,) = place.client.dequeue(DequeueRequest(queue, 1, wait_ms=5_000))
    awaited(visitor, f"{SCHEDULES}/{word}", f"Job {job.descriptor} : running")


def test_a_schedule_is_paused_and_resumed(place: Place, visitor: Visitor, queue: str, word: str) -> None:
    made(place, word, queue)
    path = f"{SCHEDULES}/{word}"
    assert f"Schedule {word} is paused" in visitor.press(path, f"{path}/pause")
    assert seen(place, word).schedule.paused
    assert "Would fire next" in visitor.text(path)
    assert f"Schedule {word} fires again" in visitor.press(path, f"{path}/resume")
    assert not seen(place, word).schedule.paused
    changes = [
        each.detail for each in place.client.audit(limit=50) if each.target == word and each.who == "anna@laptop"
    ]
    assert changes == ["paused=False", "paused=True"]


def test_a_schedule_is_run_now(place: Place, visitor: Visitor, queue: str, word: str) -> None:
    made(place, word, queue, body=b"\xff binary", priority=2, attempts_allowed=5, serialize_key=word, paused=True)
    path = f"{SCHEDULES}/{word}"
    assert "although the schedule is paused" in visitor.text(path)
    assert f"is in queue {queue}" in visitor.press(path, f"{path}/run")
    (job,) = place.client.scan(JobFilter(queue, JobState.PENDING, priority=2), limit=5).jobs
    assert (job.attempts_allowed, job.serialize_key) == (5, word)
    (taken,) = place.client.dequeue(DequeueRequest(queue, 1))
    assert taken.body == b"\xff binary"


def test_a_schedule_is_deleted_by_its_name(place: Place, visitor: Visitor, queue: str, word: str) -> None:
    view = made(place, word, queue)
    path = f"{SCHEDULES}/{word}"
    assert "nothing was deleted" in visitor.press(path, f"{path}/delete", name="other", version=view.version)
    place.client.update_schedule(ScheduleChange(name=word, priority=2), place.password)
    shown = visitor.press(path, f"{path}/delete", name=word, version=view.version)
    assert "somebody has changed" in shown
    now = seen(place, word)
    assert f'name="version" value="{now.version}"' in visitor.get(path).text
    assert f"Schedule {word} was deleted" in visitor.press(path, f"{path}/delete", name=word, version=now.version)
    assert not is_there(place, word)


def test_a_new_schedule_is_checked_before_it_is_made(place: Place, visitor: Visitor, queue: str, word: str) -> None:
    page = checked(visitor, NEW, name=word, queue=queue, cron="30 2 * * mon", timezone="Europe/Berlin", body="a\r\nb")
    shown = text_of(page)
    assert not is_there(place, word)
    assert "At 02:30 on Monday, Europe/Berlin:" in shown
    assert len(re.findall(r"Mon \d{4}-\d\d-\d\d 02:30:00 \+0[12]00", shown)) == 5
    told = saved(visitor, NEW, page)
    assert f"Schedule {word} is saved" in told
    view = seen(place, word)
    assert (view.schedule.cron, view.schedule.timezone) == ("30 2 * * mon", "Europe/Berlin")
    assert (view.schedule.queue, view.schedule.body, view.schedule.misfire) == (queue, b"a\nb", Misfire.RUN_ONCE)
    again = text_of(checked(visitor, NEW, name=word, queue=queue, cron="* * * * *"))
    assert f"There is a schedule {word} already" in again


def test_what_was_not_checked_is_not_saved(place: Place, visitor: Visitor, queue: str, word: str) -> None:
    page = checked(visitor, NEW, name=word, queue=queue, cron="0 3 * * *")
    fields = {**fields_of(page), "cron": "0 4 * * *", "step": "save"}
    page = visitor.shown(NEW, fields)
    assert "At 04:00 every day" in text_of(page)
    assert not is_there(place, word)
    assert "is saved" in saved(visitor, NEW, page)
    assert seen(place, word).schedule.cron == "0 4 * * *"
    forged = {**fields_of(visitor.get(NEW).text), "name": f"{word}b", "queue": queue, "cron": "* * * * *"}
    for checked_as in ("", "0" * 64):
        assert "is saved" not in visitor.shown(NEW, {**forged, "step": "save", "checked": checked_as})
    assert not is_there(place, f"{word}b")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"cron": "61 * * * *"}, "cron is '61 * * * *'"),
        ({"cron": ""}, "Cron expression is ''"),
        ({"timezone": "Mars/Olympus"}, "timezone is 'Mars/Olympus'"),
        ({"by": "every", "every": "often"}, "Every is 'often'; allowed: as in 250ms"),
        ({"by": "every", "every": "10ms"}, "every_ms is 10"),
        ({"queue": "nowhere"}, "queue 'nowhere' does not exist"),
        ({"priority": "high"}, "Priority is 'high'; allowed: a whole number"),
        ({"priority": "77"}, "priority"),
        ({"attempts": "0"}, "attempts_allowed is 0"),
        ({"jitter": "2d"}, "jitter_ms is 172800000"),
        ({"misfire": "later"}, "Misfires is 'later'"),
        ({"start": "soon"}, "Start is 'soon'"),
        ({"start": "2027-01-02T00:00", "end": "2027-01-01T00:00"}, "end_ms"),
        ({"serialize_key": "@own"}, "serialize_key is '@own'"),
        ({"name": "<img src=x>"}, "name is '<img src=x>'"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_lost(
    place: Place, visitor: Visitor, queue: str, word: str, changes: dict[str, str], told: str
) -> None:
    fields = {"name": word, "queue": queue, "cron": "0 3 * * *", "body": "kept", **changes}
    page = checked(visitor, NEW, **fields)
    assert "It cannot be saved like this" in page
    assert told in text_of(page)
    assert "<img" not in page
    assert 'value="save"' not in page
    left = fields_of(page)
    assert {name: left[name] for name in fields if name != "misfire"} == {
        name: value for name, value in fields.items() if name != "misfire"
    }
    assert not is_there(place, word)


def test_a_change_says_what_differs_and_changes_that_alone(
    place: Place, visitor: Visitor, queue: str, word: str
) -> None:
    start_ms = 2_000_000_012_345
    before = made(place, word, queue, body=b"kept", start_ms=start_ms, misfire=Misfire.SKIP, jitter_ms=5_000)
    path = f"{SCHEDULES}/{word}/edit"
    assert "As it is now, it fires next" in visitor.text(path)
    same = text_of(checked(visitor, path))
    assert "nothing would change" in same
    page = checked(visitor, path, by="every", every="1h30m")
    shown = text_of(page)
    assert "Every 1 h 30 min" in shown
    assert "Cron expression 0 3 * * * none" in shown
    assert "Every none 1h30m" in shown
    assert "is saved" in saved(visitor, path, page)
    view = seen(place, word)
    assert (view.schedule.every_ms, view.schedule.cron, view.schedule.start_ms) == (5_400_000, "", start_ms)
    assert (view.schedule.body, view.schedule.misfire, view.schedule.jitter_ms) == (b"kept", Misfire.SKIP, 5_000)
    assert before.version != view.version
    (entry, *_) = [each for each in place.client.audit(limit=20) if each.target == word]
    assert (entry.who, entry.detail) == ("anna@laptop", "every_ms=5400000")


def test_a_change_that_somebody_else_makes_meanwhile_is_shown_and_not_undone(
    place: Place, visitor: Visitor, queue: str, word: str
) -> None:
    made(place, word, queue)
    path = f"{SCHEDULES}/{word}/edit"
    page = checked(visitor, path, cron="0 4 * * *")
    ada = RequestContext("ada@shop")
    place.client.update_schedule(ScheduleChange(name=word, priority=2), place.password, context=ada)
    page = visitor.shown(path, {**fields_of(page), "step": "save"})
    shown = text_of(page)
    assert f"ada@shop has changed {word}" in shown
    assert "Nothing was saved" in shown
    assert "Cron expression 0 3 * * * 0 4 * * *" in shown
    assert "Priority 2 1" in shown
    found = seen(place, word)
    assert (found.schedule.cron, found.schedule.priority) == ("0 3 * * *", 2)
    page = visitor.shown(path, {**fields_of(page), "priority": "2", "step": "check"})
    assert "is saved" in saved(visitor, path, page)
    found = seen(place, word)
    assert (found.schedule.cron, found.schedule.priority) == ("0 4 * * *", 2)


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\x00",
        b"one\r\ntwo",
        "a\u202eb".encode(),
        b'PINLATER/1 application/json\n{"job": "j", "kwargs": {"token": "hunter2-hunter2"}, '
        b'"headers": {"pinlater-secret": "token"}}',
    ],
    ids=["binary", "line breaks", "direction", "secrets"],
)
def test_a_body_that_a_form_cannot_show_stays_as_it_is(
    place: Place, visitor: Visitor, queue: str, word: str, body: bytes
) -> None:
    made(place, word, queue, body=body)
    path = f"{SCHEDULES}/{word}/edit"
    page = checked(visitor, path, cron="0 5 * * *")
    assert "The body stays as it is" in page
    assert "hunter2" not in page + visitor.get(f"{SCHEDULES}/{word}").text
    assert "is saved" in saved(visitor, path, page)
    assert seen(place, word).schedule.body == body
    fields = {**fields_of(visitor.get(path).text), "body": "another", "step": "check"}
    del fields["keeps_body"]
    assert "is saved" in saved(visitor, path, visitor.shown(path, fields))
    assert seen(place, word).schedule.body == b"another"


def test_a_form_is_checked_by_a_script_while_it_is_written(
    place: Place, visitor: Visitor, queue: str, word: str
) -> None:
    made(place, word, queue)
    path = f"{SCHEDULES}/{word}/edit"
    page = visitor.get(path).text
    assert 'data-live="off"' in page
    assert "schedule_form.js" in page
    fields = {**fields_of(page), "cron": "0 6 * * *", "step": "check"}
    response = visitor.send(path, fields, X_Live="1")
    assert response.text.startswith("<main")
    assert "At 06:00 every day" in text_of(response.text)


def test_what_may_not_be_seen_or_changed_is_neither(ruled: Place, word: str) -> None:
    for queue in ("mail", "sms"):
        made(ruled, f"{word}.{queue}", queue, body=b"a secret body")
    path = f"{SCHEDULES}/{word}.sms"
    viewer, operator, of_mail = (ruled.visitor(role) for role in ("viewer", "operator", "of-mail"))
    shown = viewer.get(path).text
    assert FORM.findall(shown) == []
    assert "/edit" not in shown
    assert "a secret" not in shown
    assert "You may not see bodies. This one has 13 B" in shown
    assert "New schedule" not in viewer.text(SCHEDULES)
    viewer.get(f"{path}/body", status=404)
    for address in (f"{path}/edit", NEW):
        assert "may not" in viewer.text(address, status=403)
    for action in ("pause", "resume", "run", "delete", "edit"):
        assert "may not" in refused(viewer, path, f"{path}/{action}", name=f"{word}.sms")
    assert operator.actions(path) == {f"{path}/pause", f"{path}/delete"}  # running needs enqueue
    assert "is paused" in operator.press(path, f"{path}/pause")
    assert "a secret body" in operator.get(path).text
    assert f"{SCHEDULES}?queue=mail" in of_mail.get(SCHEDULES).text
    assert listed(of_mail, f"{SCHEDULES}?queue=mail&name={word}") == [f"{word}.mail"]
    assert "may not" in of_mail.text(f"{SCHEDULES}?queue=sms")
    own = f"{SCHEDULES}/{word}.mail?queue=mail"
    assert f'href="{own}"' in of_mail.get(f"{SCHEDULES}?queue=mail").text
    assert "a secret body" in of_mail.get(own).text
    assert FORM.findall(of_mail.get(own).text) == []  # schedules are changed by who may operate all queues
    of_mail.get(path, status=403)
    of_mail.get(f"{path}?queue=mail", status=404)
    found = seen(ruled, f"{word}.sms")
    assert found.schedule.paused


def test_without_the_admin_password_nothing_is_offered(place: Place, queue: str, word: str) -> None:
    made(place, word, queue)
    visitor = Visitor(place.address)
    response = visitor.client.get(f"{SCHEDULES}/{word}")
    assert response.status_code == 303
    assert response.headers["Location"].startswith("/login")


def test_tags_are_set_kept_and_taken_away(place: Place, visitor: Visitor, queue: str, word: str) -> None:
    made(place, word, queue, tags=("tenant:7", "plan: pro"))
    path = f"{SCHEDULES}/{word}/edit"
    assert "tenant:7\nplan: pro</textarea>" in visitor.get(path).text
    saved(visitor, path, checked(visitor, path, priority="2"))
    assert list(seen(place, word).schedule.tags) == ["tenant:7", "plan: pro"]
    page = checked(visitor, path, tags="tenant:7\r\nnightly")
    assert re.search(r"Tags.*plan: pro.*nightly", text_of(page))
    saved(visitor, path, page)
    assert list(seen(place, word).schedule.tags) == ["tenant:7", "nightly"]
    saved(visitor, path, checked(visitor, path, tags=""))
    assert list(seen(place, word).schedule.tags) == []


def test_texts_of_callers_are_shown_as_what_they_are(place: Place, visitor: Visitor, queue: str, word: str) -> None:
    def planted(field: str) -> str:
        return f"\"'><img/src=x/onerror=planted('{field}')>\u202e{{{{7*7}}}}"

    change = ScheduleChange(
        name=word,
        queue=queue,
        cron="0 3 * * *",
        body=planted("body").encode(),
        serialize_key=planted("serialize"),
        made_by=planted("maker"),
    )
    place.client.update_schedule(change, place.password, context=RequestContext(planted("source")))
    pages = [
        f"{SCHEDULES}/{word}",
        f"{SCHEDULES}?name={word}",
        f"/dashboard/queues/{queue}",
        f"{SCHEDULES}/{word}/edit",
    ]
    shown = {path: visitor.get(path).text for path in pages}
    for path, page in shown.items():
        assert "<img" not in page, path
        assert "planted(&#39;maker&#39;)" in page
        assert "\u202e" not in page or path.endswith(
            "/edit"
        )  # a field has what is there, so that it comes back as it was
    for field in ("body", "serialize"):
        assert f"planted(&#39;{field}&#39;)" in shown[pages[0]]
    for odd in ("?name=%3Cimg%20src=x%3E", "?queue=%22%3E%3Cimg%3E", "?made_by=%22%3E%3Cimg%3E", "?cursor=%3Cimg%3E"):
        assert "<img" not in visitor.get(SCHEDULES + odd).text
    page = checked(visitor, pages[3], cron="<img src=x>", timezone='"><img src=x>', serialize_key="<img src=x>")
    assert "<img" not in page


def test_the_page_of_a_queue_has_its_schedules(place: Place, visitor: Visitor, queue: str, word: str) -> None:
    assert "No schedule puts jobs into it" in visitor.text(f"/dashboard/queues/{queue}")
    made(place, word, queue)
    awaited(visitor, f"/dashboard/queues/{queue}", f"{word} At 03:00 every day")


def test_a_form_of_another_session_is_refused(place: Place, visitor: Visitor, queue: str, word: str) -> None:
    made(place, word, queue)
    other = place.visitor()
    csrf = csrf_of(other.get(f"{SCHEDULES}/{word}").text)
    assert visitor.send(f"{SCHEDULES}/{word}/pause", {"csrf": csrf}).status_code == 403
    assert not seen(place, word).schedule.paused

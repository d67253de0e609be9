"""The list of jobs: filters, counts, pages, completion, and what callers write escaped."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest

from pinlater import Ack, Client, DequeueRequest, Job
from pinlater.dashboard.job_list import PAGE_SIZE
from pinlater.job_filters.filter_fields import FIELDS
from pinlater.model import ExtendedJob
from tests.dashboard.conftest import Place
from tests.dashboard.visitor import Visitor, text_of

JOB = re.compile(r'<tr id="job-([^"]+)"')
EVIL = '<script>alert("x")</script><img src=x onerror=alert(1)>\u202e'


def call(job: str, *args: object) -> bytes:
    return b"PINLATER/1 application/json\n" + json.dumps({"job": job, "args": args}).encode()


def address(filter: str, **more: str) -> str:
    return f"/dashboard/jobs?filter={quote(filter)}" + "".join(f"&{name}={value}" for name, value in more.items())


def listed(visitor: Visitor, filter: str, **more: str) -> list[str]:
    """The descriptors that a page shows."""
    return JOB.findall(visitor.get(address(filter, **more)).text)


def next_page(page: str) -> str:
    found = re.search(r'rel="next" href="([^"]+)"', page)
    return found[1].replace("&amp;", "&") if found else ""


def fail(client: Client, queue: str, *statuses: str) -> list[str]:
    made = client.enqueue(queue, [Job(b"x") for _ in statuses])
    jobs = client.dequeue(DequeueRequest(queue, len(statuses)))
    acks = [Ack(job.descriptor, status, permanent=True) for job, status in zip(jobs, statuses, strict=True)]
    client.ack(queue, failed=acks)
    return made


def patiently(check: Callable[[], bool]) -> None:
    """Counts are kept for a while, longer where much else runs on the machine."""
    deadline = time.monotonic() + 90.0
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.3)


def counted(visitor: Visitor, queue: str, text: str) -> None:
    """Wait until pages know how many jobs there are."""
    patiently(lambda: text in visitor.text(address(f"queue:{queue}")))


def test_jobs_are_found_by_every_kind_of_condition(place: Place, visitor: Visitor, queue: str) -> None:
    slow, wrong = fail(
        place.client, queue, "attempt 1 of 2: TimeoutError: slow\n", "attempt 1 of 2: ValueError: no 'x'\n"
    )
    (typed,) = place.client.enqueue(queue, [Job(call("shop.resize", "a.jpg"), 2)])
    (named,) = place.client.enqueue(queue, [ExtendedJob(b"to: ada@example.org", dedupe_key="report 7")])
    counted(visitor, queue, "failed 2")
    of_queue = f"queue:{queue}"
    assert set(listed(visitor, of_queue)) == {slow, wrong, typed, named}
    for filter, found in (
        ("state:failed", {slow, wrong}),
        ("-state:failed", {typed, named}),
        ("status:timeout", {slow}),
        ('status:~"no .x."', {wrong}),
        ("-status:timeout state:failed", {wrong}),
        ("error:ValueError", {wrong}),
        ("error:*Error", {slow, wrong}),
        ("type:shop.*", {typed}),
        ('body:~"ada@"', {named}),
        ("priority:2", {typed}),
        ("-priority:2 state:ready", {named}),
        ("attempts:2", {slow, wrong}),
        ("attempts:>2", set()),
        ('key:"report 7"', {named}),
        (f"id:{typed}", {typed}),
        ("age:<1h", {slow, wrong, typed, named}),
        ("age:>1h", set()),
        ("ended:<1h", {slow, wrong}),
    ):
        assert set(listed(visitor, f"{of_queue} {filter}")) == found, filter
    assert listed(visitor, f"queue:{queue},nowhere -queue:{queue}") == []


def test_a_row_says_what_a_job_does_and_what_went_wrong(place: Place, visitor: Visitor, queue: str) -> None:
    place.client.enqueue(queue, [Job(call("shop.resize", "a.jpg"))])
    said = "TimeoutError: slow (a.py:1 in f)"
    fail(place.client, queue, f"attempt 1 of 2: {said} [2026-11-23T00:09:12Z, 1.2s, w:1]\n  File\n")
    shown = visitor.text(address(f"queue:{queue}"))
    assert "resize('a.jpg')" in shown
    assert said in shown
    assert "1.2s" not in shown


def test_states_and_queues_stand_beside_the_list_and_change_the_filter(
    place: Place, visitor: Visitor, queue: str
) -> None:
    fail(place.client, queue, "x", "x", "x")
    counted(visitor, queue, "failed 3")
    page = visitor.get(address(f"queue:{queue}")).text
    assert f'href="/dashboard/jobs?filter=queue%3A{queue}+state%3Afailed"' in page
    failed = visitor.get(address(f"queue:{queue} state:failed")).text
    assert f'href="/dashboard/jobs?filter=queue%3A{queue}" aria-current="true"' in failed


def test_pages_by_tag_over_two_queues_show_every_job_once(place: Place, visitor: Visitor, queue: str) -> None:
    """By when the jobs came, whatever their times are."""
    other, made = f"{queue[:60]}_b", []
    place.client.create_queue(other)
    for number in range(40):
        for name in (queue, other):
            made += place.client.enqueue(name, [ExtendedJob(b"", run_after_ms=10_000 - number, tags=["t"])])
        place.client.enqueue(queue, [Job(b"")])
    path, shown = address(f"queue:{queue},{other} tag:t"), list[str]()
    while path:
        page = visitor.get(path).text
        shown += JOB.findall(page)
        path = next_page(page)
    assert shown == made[::-1]


def test_pages_follow_each_other_and_none_is_shown_twice(place: Place, visitor: Visitor, queue: str) -> None:
    made = place.client.enqueue(queue, [Job(b"x", run_after_ms=1_790_000_000_000 + number) for number in range(120)])
    counted(visitor, queue, "ready 120")
    path = address(f"queue:{queue}")
    shown: list[str] = []
    pages = 0
    while path:
        page = visitor.get(path).text
        shown += JOB.findall(page)
        path = next_page(page)
        pages += 1
    assert pages == 3
    assert shown == made[::-1]
    anew = visitor.get(address(f"queue:{queue}", cursor="nonsense")).text
    assert len(JOB.findall(anew)) == PAGE_SIZE
    assert "it begins anew" in anew
    assert "it begins anew" not in page


@pytest.mark.parametrize(
    ("filter", "says"),
    [
        ("timeout", "'timeout' is no condition; write status:timeout"),
        ("state:over", "'over' is no state; there are ready"),
        ('status:"x', "a quote is not closed"),
        ('status:~"("', "RE2 pattern"),
        (EVIL, "is no condition"),
    ],
)
def test_what_is_wrong_in_a_filter_is_said_and_nothing_is_listed(visitor: Visitor, filter: str, says: str) -> None:
    page = visitor.get(address(filter))
    assert says in visitor.text(address(filter))
    assert JOB.findall(page.text) == []
    assert "<script>alert" not in page.text
    assert "onerror=alert(1)>" not in page.text.replace("onerror=alert(1)&gt;", "")


def test_what_callers_write_is_escaped_in_every_field(place: Place, visitor: Visitor, queue: str) -> None:
    place.client.enqueue(queue, [Job(EVIL.encode(), custom_status=EVIL)])
    status = f"attempt 1 of 2: {EVIL}\n  {EVIL}"
    place.client.enqueue(queue, [Job(call("a.b", EVIL, {EVIL: EVIL}), custom_status=status)])
    place.client.enqueue(queue, [ExtendedJob(b'{"' + b"<b>" + b'": "<i>"}', dedupe_key=EVIL, serialize_key=EVIL)])
    place.client.dequeue(DequeueRequest(queue, 1))
    descriptors = listed(visitor, f"queue:{queue}")
    assert len(descriptors) == 3
    paths = [address(f"queue:{queue}"), address(f'queue:{queue} status:"{EVIL}"'.replace('"x"', "x"))]
    paths += [f"/dashboard/jobs/{descriptor}" for descriptor in descriptors]
    for path in paths:
        page = visitor.get(path).text
        assert "<script>alert" not in page, path
        assert "<img src=x" not in page, path
        assert "<b>" not in page
        assert "<i>" not in page
        assert "\u202e" not in page, path


def test_completion_offers_fields_states_and_queues(visitor: Visitor, place: Place, queue: str) -> None:
    def offered(filter: str) -> list[str]:
        path = f"/dashboard/jobs/completions?filter={quote(filter)}&at={len(filter)}"
        return [option["text"] for option in visitor.get(path).json()["options"]]

    patiently(lambda: queue in offered(f"queue:{queue[:-1]}"))
    assert offered("sta") == ["state:", "status:"]
    assert offered("state:fai") == ["failed"]
    assert offered("") == [f"{field.name}:" for field in FIELDS]
    assert visitor.get("/dashboard/jobs/completions?filter=%22&at=x").json()["options"] == []


def test_the_fields_are_explained(visitor: Visitor) -> None:
    shown = visitor.text("/dashboard/jobs/filters")
    for field in FIELDS:
        assert field.help in shown
        assert field.examples[0] in shown


def test_a_viewer_sees_no_bodies_no_boxes_and_cannot_search_bodies(ruled: Place) -> None:
    ruled.client.enqueue("mail", [Job(call("shop.resize", "secret.jpg"), custom_status="seen\n")])
    viewer, operator = ruled.visitor("viewer"), ruled.visitor("operator")
    patiently(lambda: "secret.jpg" in operator.text(address("queue:mail")))
    patiently(lambda: JOB.search(viewer.get(address("queue:mail")).text) is not None)
    page = viewer.get(address("queue:mail")).text
    assert "secret.jpg" not in page
    assert 'type="checkbox"' not in page
    assert "/dashboard/runs/new" not in page
    hidden = viewer.text(address("queue:mail body:secret"))
    assert "bodies and statuses are hidden from you" in hidden


TRACE = (
    "a note of the producer\nattempt 1 of 2: ValueError: card 4111 (pay.py:1 in charge) [2026-11-23T00:09:12Z, 1.2s, "
    "w:1]\n  File pay.py\n"
)


def test_who_may_see_no_bodies_sees_no_errors_and_no_statuses(ruled: Place) -> None:
    ruled.client.create_queue("cards")
    (job,) = fail(ruled.client, "cards", TRACE)
    viewer, operator = ruled.visitor("viewer"), ruled.visitor("operator")
    patiently(lambda: "4111" in operator.text(address("queue:cards state:failed")))
    page = f"/dashboard/jobs/{job}"
    patiently(lambda: job in viewer.get(address("queue:cards state:failed")).text)
    for path in (address("queue:cards state:failed"), page):
        shown = viewer.text(path)
        for text in ("4111", "pay.py", "a note"):
            assert text not in shown, path
    assert "Attempt 1 of 2 failed" in shown
    assert "took 1.2s, on w:1" in shown
    assert "4111" in operator.text(page)
    for filter in ("status:4111", "-status:4111", 'status:~"card .*"'):
        found = viewer.get(address(f"queue:cards {filter}")).text
        assert "bodies and statuses are hidden from you" in text_of(found)
        assert JOB.search(found) is None


def test_only_queues_that_may_be_read_are_searched(ruled: Place) -> None:
    (other,) = ruled.client.enqueue("sms", [Job(b"not yours")])
    ruled.client.enqueue("mail", [Job(b"yours")])
    visitor = ruled.visitor("of-mail")
    patiently(lambda: "yours" in visitor.text(address("state:ready")))
    assert "not yours" not in visitor.text(address(""))
    assert "not yours" not in visitor.text(address(f"id:{other}"))
    assert visitor.get(f"/dashboard/jobs/{other}", status=403)


def test_an_open_list_follows_while_that_is_cheap(place: Place, visitor: Visitor, queue: str) -> None:
    place.client.enqueue(queue, [Job(b"x")])
    path = address(f"queue:{queue}")
    assert 'data-live="off"' not in visitor.get(path).text
    first = visitor.get(path, X_Live="1")
    assert first.text.lstrip().startswith("<main")
    time.sleep(0.01)
    visitor.get(path, status=304, X_Live="1", If_None_Match=first.headers["ETag"])

"""Errors as things: their groups beside the list of jobs, and what leads there."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import parse_qs, quote, urlsplit

from pinlater import Job
from pinlater.dashboard import history_charts
from pinlater.dashboard.error_kinds import BARS, HOUR_MS, grouped
from pinlater.dashboard.queue_record import QueueRecord
from pinlater.model import JobInfo, JobState
from tests.dashboard.conftest import Place
from tests.dashboard.test_history_charts import rendered, series
from tests.dashboard.test_job_list import JOB, address, counted, fail, patiently
from tests.dashboard.visitor import Visitor, text_of

NOW_MS = 1_790_000_000_000
GROUP = re.compile(r'<li id="error-([^"]+)">(.*?)</li>', re.DOTALL)


def failed(status: str, ago_ms: int, queue: str = "mail") -> JobInfo:
    return JobInfo(f"{queue}:s1:p1:{ago_ms}", JobState.FAILED, 1, 1, 0, status, 0, 0, NOW_MS - ago_ms)


def test_jobs_are_in_the_group_of_each_error_that_they_failed_with() -> None:
    late = "attempt 1 of 2: TimeoutError: late (a.py:1 in f) [2026-11-23T00:09:12Z, 1.2s, w:1]\n  File\n"
    jobs = [
        failed(late + "attempt 2 of 2: KeyError: 'vat'", 60_000),
        failed(late, 2 * HOUR_MS),
        failed("[claim expired at 5, attempts remaining 0]", 1),
        failed("no line of an error", 1),
    ]
    times, key, claim = sorted(grouped(jobs, NOW_MS, lambda _: True), key=lambda each: (-each.jobs, each.name))
    assert (times.name, times.jobs, times.line) == ("TimeoutError", 2, "late (a.py:1 in f)")
    assert (NOW_MS - times.first_ms, NOW_MS - times.last_ms) == (2 * HOUR_MS, 60_000)
    assert (sum(times.hour), times.hour[BARS - 1]) == (1, 1)
    assert (key.name, key.jobs, key.line) == ("KeyError", 1, "'vat'")
    assert claim.name == "claim expired"
    assert {each.line for each in grouped(jobs, NOW_MS, lambda _: False)} == {""}


def test_each_error_leads_to_its_jobs_and_to_their_retry(place: Place, visitor: Visitor, queue: str) -> None:
    late, wrong = "attempt 1 of 1: TimeoutError: late\n", "attempt 1 of 1: shop.WrongError: no 'x'\n"
    fail(place.client, queue, late, late, late, wrong, "[claim expired at 5, attempts remaining 0]\n")
    place.client.enqueue(queue, [Job(b"x")])
    counted(visitor, queue, "failed 5")
    path = address(f"queue:{queue}")
    patiently(lambda: "of all 5 that failed" in text_of(visitor.get(path).text))
    groups = dict(GROUP.findall(visitor.get(path).text))
    assert next(iter(groups)) == "TimeoutError"
    assert set(groups) == {"TimeoutError", "claim expired", "shop.WrongError"}
    assert "Retry these 3" in groups["TimeoutError"]
    assert "late" in text_of(groups["TimeoutError"])
    for name, jobs in (("TimeoutError", 3), ("claim expired", 1)):
        link, retry = (unescape(each) for each in re.findall(r'href="([^"]+)"', groups[name]))
        found = visitor.get(link).text
        assert len(JOB.findall(found)) == jobs
        assert 'aria-current="true"><span class="code">' in found
        assert f"{jobs} job{'s' if jobs > 1 else ''} would be touched now" in visitor.text(retry)
    assert GROUP.findall(visitor.get(address(f"queue:{queue} state:ready")).text) == []


def test_the_errors_that_there_are_complete_a_filter(place: Place, visitor: Visitor, queue: str) -> None:
    fail(place.client, queue, "attempt 1 of 1: TeapotError: short and stout\n")
    counted(visitor, queue, "failed 1")

    def offered(filter: str) -> list[str]:
        found = visitor.get(f"/dashboard/jobs/completions?filter={quote(filter)}&at={len(filter)}").json()["options"]
        return [option["text"] for option in found]

    patiently(lambda: offered(f"queue:{queue} error:") == ["TeapotError"])
    assert offered(f"queue:{queue} error:tea") == ["TeapotError"]
    assert offered(f"queue:{queue} error:coffee") == []


def test_who_may_see_no_bodies_sees_kinds_of_errors_and_no_texts(ruled: Place) -> None:
    ruled.client.create_queue("kinds")
    fail(ruled.client, "kinds", "attempt 1 of 1: CardError: 4111\n")
    viewer = ruled.visitor("viewer")
    path = address("queue:kinds")
    patiently(lambda: "CardError" in viewer.get(path).text)
    ((_, group),) = GROUP.findall(viewer.get(path).text)
    assert "4111" not in viewer.get(path).text
    assert "Retry" not in group


def test_what_is_counted_leads_to_its_jobs(place: Place, visitor: Visitor, queue: str) -> None:
    fail(place.client, queue, "no\n")
    counted(visitor, queue, "failed 1")

    def filters(page: str) -> set[str]:
        found = re.findall(r'href="(/dashboard/jobs\?filter=[^"]+)"', page)
        return {parse_qs(urlsplit(unescape(each)).query)["filter"][0] for each in found}

    assert {"state:ready", "state:failed", "age:<5m"} <= filters(visitor.get("/dashboard").text)
    patiently(lambda: f"queue:{queue} state:failed" in filters(visitor.get(f"/dashboard/queues?name={queue}").text))


def test_the_legend_of_failures_leads_to_their_jobs() -> None:
    record = QueueRecord(failed=4, reasons={"KeyError": 2, "claim expired": 1, "other": 1}, types={"resize": 4})
    reasons, types = (
        draw(series(record)) for draw in (history_charts.failures_by_reason, history_charts.failures_by_type)
    )
    assert {line.name: line.jobs for line in reasons.lines} == {
        "KeyError": "queue:mail state:failed error:KeyError",
        "claim expired": 'queue:mail state:failed error:"claim expired"',
        "other": "",
    }
    assert [line.jobs for line in types.lines] == ["queue:mail state:failed type:resize"]
    assert 'href="/dashboard/jobs?filter=queue%3Amail+state%3Afailed+error%3AKeyError"' in rendered(reasons).replace(
        "%20", "+"
    )

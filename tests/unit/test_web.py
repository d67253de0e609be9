"""Metrics in the two formats, the status page, and what the HTTP side answers."""

from __future__ import annotations

import asyncio
import re
import socket
from dataclasses import asdict, replace
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pinlater.metric_export import StatsdExport, exposition
from pinlater.metric_family import Series
from pinlater.metrics import FAMILIES, PREFIX, Metrics, merge
from pinlater.model import (
    ClusterStatus,
    LevelView,
    PauseView,
    QueueStatus,
    ServerView,
    ShardView,
    WorkerInfo,
    WorkersPage,
)
from pinlater.model.alarm_views import Alarm, AlarmsPage, Severity
from pinlater.model.job_selection import JobPhase
from pinlater.server.generation import Reports as WorkerReports
from pinlater.web.pages import cluster_page
from pinlater.web.status_site import StatusSite

NOW_MS = 1_790_000_000_000
STATUS = ClusterStatus(
    NOW_MS,
    [ServerView("ABCDEFGHIJ", "4711", "127.0.0.1:9010", NOW_MS - 90_000, NOW_MS - 1000, False, "the clock is off")],
    [
        ShardView("1", "redis://127.0.0.1:6379/0", "in", False, "", 100, 100, 0, None, "ABCDEFGHIJ/4711"),
        ShardView("2", "redis://127.0.0.1:6380/0", "out", True, "connection <refused>", 70, 100, 2000, NOW_MS),
    ],
    [
        QueueStatus(
            "mail", NOW_MS, [LevelView(1, 1_234_567, 2, 3, 4, 5, NOW_MS - 7_300_000)], {"enqueued": 12.5}, ["paused"]
        )
    ],
)


WORKERS = WorkersPage(
    NOW_MS,
    [
        WorkerInfo(
            "a1",
            "shop<b>",
            "web-1",
            4711,
            {"mail": 3},
            8,
            2,
            1,
            [],
            NOW_MS - 125_000,
            {"app": "2026.11"},
            False,
            NOW_MS - 90_000,
            NOW_MS - 4_000,
        ),
        WorkerInfo("a2", "idle", "web-2", 5, {}, 4, 0, 0, [], None, {}, True, NOW_MS, NOW_MS),
        WorkerInfo("a3", "held", "web-2", 6, {}, 4, 0, 0, [], None, {}, False, NOW_MS, NOW_MS, NOW_MS - 38_000),
    ],
    203,
    16,
    2,
    1,
)


def counted() -> Metrics:
    metrics = Metrics()
    metrics.add(3, "jobs_enqueued", "mail", 1)
    metrics.add(1, "jobs_enqueued", "mail", 2)
    for seconds in (0.0001, 0.003, 0.003, 99.0):
        metrics.observe(seconds, "call_seconds", "enqueueJobs")
    metrics.set_gauges((), {("connections",): 7})
    return metrics


def merged(*all_metrics: Metrics) -> Series:
    together: Series = {}
    for metrics in all_metrics:
        merge(together, metrics.snapshot())
    return together


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """By the values of the labels in the order of the family, the bound of a bucket at the end."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = (*FAMILIES[family.name.removeprefix("pinlater_")].labels, "le")
            found[sample.name, tuple(sample.labels[each] for each in labels if each in sample.labels)] = sample.value
    return found


def test_prometheus_reads_the_counts_of_all_processes() -> None:
    text = exposition(PREFIX, FAMILIES, merged(counted(), counted())).decode()
    found = samples(text)
    assert found["pinlater_jobs_enqueued_total", ("mail", "1")] == 6
    assert found["pinlater_jobs_enqueued_total", ("mail", "2")] == 2
    assert found["pinlater_connections", ()] == 14
    assert found["pinlater_call_seconds_count", ("enqueueJobs",)] == 8
    assert found["pinlater_call_seconds_bucket", ("enqueueJobs", "0.005")] == 6
    assert found["pinlater_call_seconds_bucket", ("enqueueJobs", "+Inf")] == 8
    assert abs(found["pinlater_call_seconds_sum", ("enqueueJobs",)] - 2 * 99.0061) < 1e-6
    for name in FAMILIES:
        assert f"# HELP pinlater_{name}" in text


def test_what_processes_of_a_newer_version_count_beside_is_left_out() -> None:
    together = merged(counted())
    merge(together, [(("tomorrows_family", "mail"), [1.0])])
    assert together == merged(counted())


def statsd(address: str, prefix: str, reasons: list[str] | None = None) -> StatsdExport:
    said = [] if reasons is None else reasons
    return StatsdExport(address, prefix, FAMILIES, lambda _address, reason: said.append(reason))


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "[::1]")])
def test_statsd_gets_what_counters_grew_by(family: socket.AddressFamily, host: str) -> None:
    with socket.socket(family, socket.SOCK_DGRAM) as receiver:
        receiver.bind((host.strip("[]"), 0))
        receiver.settimeout(10)
        export = statsd(f"{host}:{receiver.getsockname()[1]}", "team.pinlater")

        def sent(metrics: Series) -> set[str]:
            export.send(metrics)
            return set(receiver.recv(65536).decode().splitlines())

        lines = sent(merged(counted()))
        assert "team.pinlater.jobs_enqueued.mail.1:3|c" in lines
        assert "team.pinlater.connections:7|g" in lines
        assert "team.pinlater.call_seconds.enqueueJobs.count:4|c" in lines
        assert "team.pinlater.call_seconds.enqueueJobs.p50:0.005|g" in lines
        more = counted()
        more.add(5, "jobs_enqueued", "mail", 1)
        lines = sent(merged(more))
        assert "team.pinlater.jobs_enqueued.mail.1:5|c" in lines
        assert not any(line.startswith("team.pinlater.jobs_enqueued.mail.2") for line in lines)
        export.close()


def test_a_statsd_that_does_not_exist_is_no_harm() -> None:
    reasons: list[str] = []
    export = statsd("no-such-host.invalid:8125", "", reasons)
    export.send(merged(counted()))
    export.send(merged(counted()))
    export.close()
    assert len(reasons) == 1


ALARMS = AlarmsPage(
    NOW_MS,
    [
        Alarm("shard_out", "2", Severity.WARNING, "Shard 2 is out", NOW_MS),
        Alarm("waits_long", "mail", Severity.WARNING, "mail waits", NOW_MS, "mail"),
        Alarm("waits_long", "sms", Severity.WARNING, "sms waits", NOW_MS, "sms", muted_until_ms=NOW_MS + 1),
        Alarm("exposed", "", Severity.INFO, "everybody may do all", NOW_MS),
    ],
    "a/1",
    NOW_MS,
)


def test_the_page_is_headed_by_the_alarms_that_are_not_muted() -> None:
    page = cluster_page({**asdict(STATUS), "alarms": asdict(ALARMS)})
    assert "<title>PinLater: Shard 2 is out; mail waits</title>" in page
    assert "sms waits" not in page
    assert "everybody may do all" in page
    calm = replace(ALARMS, alarms=[])
    for judged, verdict in ((calm, "well"), (replace(calm, judged_at_ms=None), "not judged yet")):
        assert f"<title>PinLater: {verdict}</title>" in cluster_page({**asdict(STATUS), "alarms": asdict(judged)})
    alone = {**asdict(STATUS), "alarms": asdict(replace(calm, is_alone=True))}
    assert "<title>PinLater: no shard can be reached" in cluster_page(alone)


def test_the_page_shows_all_and_escapes_what_comes_from_elsewhere() -> None:
    page = cluster_page({**asdict(STATUS), "alarms": asdict(ALARMS)})
    for text in ("PinLater: Shard 2 is out; mail waits", "1,234,567", "2 h 1 min", "paused", "the clock is off"):
        assert text in page, text
    assert "takes no new jobs; connection &lt;refused&gt;; its clock is +2,000 ms off" in page
    assert "<refused>" not in page


def queue_rows(page: str) -> list[str]:
    """The rows of queues, as texts without markup."""
    table = page.partition("<h2>Queues</h2>")[2].partition("</table>")[0]
    return [re.sub(r"<[^>]*>", " ", row) for row in table.split("</tr>")[1:-1]]


def test_the_page_says_who_paused_a_queue_and_why_and_until_when_and_counts_as_people_do() -> None:
    pause = PauseView("ann@<host>", "the provider is down", NOW_MS - 600_000, NOW_MS + 3_600_000)
    queues = [
        QueueStatus("mq10", NOW_MS, [LevelView(1, 1), LevelView(2)]),
        QueueStatus("mq2", NOW_MS, [LevelView(1), LevelView(2)], {}, ["paused", "limited to 5/s"], pause),
        QueueStatus("mail", NOW_MS, [LevelView(1, 1, failed=3), LevelView(2, 2)], {}, ["paused"], PauseView()),
    ]
    page = cluster_page(asdict(replace(STATUS, queues=queues)))
    rows = [" ".join(row.split()) for row in queue_rows(page)]
    assert [row.split()[:2] for row in rows] == [["mail", "3"], ["mq2", "0"], ["mq10", "1"]]
    said = "paused by ann@&lt;host&gt; 10 min ago: the provider is down, until 2026-09-21 15:13:20 UTC, in 1 h"
    assert rows[1].endswith(f"{said}, limited to 5/s")
    assert rows[0].endswith("paused, until it is resumed")
    assert page.count('class="n bad" data-label="failed">3<') == 1
    assert all(f'data-label="{phase.word}"' in page for phase in JobPhase)
    assert "failed jobs in 1 of 3 queues; 2 queues paused" in page
    assert "not ready" in page


def test_on_a_phone_each_cell_says_what_it_is() -> None:
    page = cluster_page(asdict(STATUS))
    assert 'content="width=device-width, initial-scale=1"' in page
    assert "@media(max-width:60em)" in page
    cells = re.findall(r"<td[^>]*>", page)
    assert len(cells) > 20
    assert all("data-label=" in cell for cell in cells)


class Worker:
    def __init__(self, pid: int) -> None:
        self.pid = pid


class Reports:
    """What workers say, by kind; None: no answer."""

    def __init__(self, **reports: list[Any]) -> None:
        self.reports = reports
        self.asked: list[str] = []

    async def ask(self, kind: str, timeout_s: float = 5.0) -> list[tuple[Any, Any]]:
        self.asked.append(kind)
        return [(Worker(number), report) for number, report in enumerate(self.reports.get(kind, []), 1)]

    async def any_of(self, kind: str, timeout_s: float = 5.0) -> Any:
        return next((report for _, report in await self.ask(kind) if report is not None), None)

    async def metrics(self) -> Series:
        return merged(counted())


async def answers(reports: Reports, *paths: str) -> list[tuple[int, str]]:
    site = StatusSite(reports)
    await site.serve("127.0.0.1:0", 100)
    try:
        async with aiohttp.ClientSession() as session:
            found = []
            for path in paths:
                async with session.get(f"http://{site.bound}{path}") as response:
                    found.append((response.status, await response.text()))
            return found
    finally:
        await site.close()


async def test_a_well_server() -> None:
    reports = Reports(status=[None, asdict(STATUS)], readiness=[["no shard"], []])
    page, metrics, live, ready = await answers(reports, "/", "/metrics", "/livez", "/readyz")
    assert page[0] == 200
    assert "<h2>Queues</h2>" in page[1]
    assert metrics[0] == 200
    assert samples(metrics[1])["pinlater_jobs_enqueued_total", ("mail", "1")] == 3
    assert live[0] == ready[0] == 200


async def test_many_who_look_at_the_page_are_one_question_to_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinlater.web.status_site._PAGE_FOR_S", 3600.0)
    reports = Reports(status=[asdict(STATUS)])
    pages = await answers(reports, *["/"] * 20)
    assert {status for status, _ in pages} == {200}
    assert reports.asked == ["status"]


async def test_a_worker_that_is_stuck_does_not_keep_the_page_waiting() -> None:
    class Asked:
        takes_connections = True

        def __init__(self, report: str | None) -> None:
            self.report = report

        async def ask(self, kind: str, timeout_s: float) -> Any:
            if self.report is None:
                await asyncio.Event().wait()
            return self.report

    workers: list[Any] = [Asked(None), Asked("status"), Asked(None)]
    async with asyncio.timeout(60):
        assert await WorkerReports(lambda: workers).any_of("status", timeout_s=3600) == "status"


async def test_a_server_with_a_worker_that_is_stuck_is_not_live() -> None:
    (live,) = await answers(Reports(readiness=[[], None]), "/livez")
    assert live[0] == 503
    assert '"stuck_workers": [2]' in live[1]


async def test_a_server_that_cannot_serve_says_why() -> None:
    page, live, ready = await answers(Reports(readiness=[["draining"], ["no shard"]]), "/", "/livez", "/readyz")
    assert live[0] == 200
    assert ready == (503, '{"ready": false, "reasons": ["draining", "no shard"]}')
    assert page[0] == 503


async def test_a_full_shard_is_remarked_on_and_leaves_the_server_ready() -> None:
    remark = "shard 1 is full: free some space"
    (ready,) = await answers(Reports(readiness=[[], []], remarks=[[remark], [remark]]), "/readyz")
    assert ready == (200, f'{{"ready": true, "remarks": ["{remark}"]}}')


def test_the_page_says_which_shards_are_full() -> None:
    full = asdict(STATUS)
    full["shards"][0] |= {"is_full": True, "trouble": "free some space"}
    full["servers"][0]["shards_full"] = ["1"]
    page = cluster_page(full)
    assert '<td class="bad" data-label="state">full</td>' in page
    assert "free some space" in page
    assert "sees full: 1" in page


async def test_a_server_that_serves_with_a_wrong_clock_is_ready_and_says_so() -> None:
    (ready,) = await answers(Reports(readiness=[[], []], remarks=[["the clock is off"], None]), "/readyz")
    assert ready == (200, '{"ready": true, "remarks": ["the clock is off"]}')


async def test_without_workers_it_is_not_ready() -> None:
    (ready,) = await answers(Reports(), "/readyz")
    assert ready[0] == 503


async def test_an_address_that_is_taken_does_not_keep_the_server_from_serving_jobs() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        site = StatusSite(Reports())
        await site.serve(f"127.0.0.1:{taken.getsockname()[1]}", 100)
        assert site.bound == ""
        await site.serve("none", 100)
        await site.close()


async def test_what_is_not_http_leaves_no_traceback_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    site = StatusSite(Reports())
    await site.serve("127.0.0.1:0", 100)
    try:
        host, _, port = site.bound.rpartition(":")
        for sent in (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", b"\x16\x03\x01 no http\r\n\r\n"):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            assert b" 400 " in await reader.readline()
            writer.close()
            await writer.wait_closed()
    finally:
        await site.close()
    assert [record.getMessage() for record in caplog.records] == []


def test_the_page_shows_workers_where_any_has_said_who_it_is() -> None:
    page = cluster_page({**asdict(STATUS), "workers": asdict(WORKERS)})
    for shown in ("shop&lt;b&gt;", "mail=3", "2/8 ", "1 stuck", "2 min 5 s", "2026.11", "stopping", "silent for 38 s"):
        assert shown in page
    assert "and 200 more: pinlater worker list" in page
    none = replace(WORKERS, workers=[], total=0)
    assert "<h2>Workers</h2>" not in cluster_page({**asdict(STATUS), "workers": asdict(none)})
    assert "<h2>Workers</h2>" not in cluster_page(asdict(STATUS))

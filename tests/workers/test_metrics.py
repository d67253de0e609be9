"""What a worker counts, in the formats of Prometheus and statsd."""

from __future__ import annotations

import socket

from prometheus_client.parser import text_string_to_metric_families

from pinlater.metric_export import exposition
from pinlater.model import DequeuedJob
from pinlater_workers.jobs.context import waited_s
from pinlater_workers.jobs.outcome import Action
from pinlater_workers.observability.metrics import ERRORS_MAX, FAMILIES, OTHER, PREFIX, WorkerMetrics, WorkerView
from pinlater_workers.observability.statsd import worker_statsd

VIEW = WorkerView(since_good_poll_s=1.5, slots=8, running=3, stuck=1, unacked=2, at_hand=4)


def busy() -> WorkerMetrics:
    """A job per way of ending, and what is counted without one."""
    metrics = WorkerMetrics()
    for action in Action:
        metrics.started("thumbnail", wait_s=0.2)
        metrics.ended("thumbnail", action, run_s=0.03, error="OSError" if action in (Action.RETRY, Action.FAIL) else "")
    metrics.started("thumbnail", wait_s=-1)
    metrics.ended("thumbnail", Action.RETRY, run_s=7200, is_last=True, error="ValueError")
    metrics.dropped("thumbnail")
    metrics.ignored("thumbnail")
    metrics.unknown("mail", "type")
    metrics.unknown_failed("mail", "body")
    metrics.unreadable("mail")
    return metrics


def test_every_way_to_end_is_counted_and_a_retry_without_attempts_is_a_failure() -> None:
    series = busy().read(VIEW)
    counted = {key[0]: values for key, values in series.items() if key[1:] == ("thumbnail",)}
    assert counted["started"] == [8]
    assert counted["failed"] == [2]
    for name in ("succeeded", "retried", "snoozed", "rescheduled", "given_back", "cancelled"):
        assert counted[name] == [1], name
    for name in ("dropped_results", "ignored_results"):
        assert counted[name] == [1], name
    assert series["errors", "thumbnail", "OSError"] == [2]
    assert series["errors", "thumbnail", "ValueError"] == [1]
    assert series["unknown_types", "mail", "type"] == [1]
    assert series["unreadable", "mail"] == [1]


def test_gauges_are_those_of_the_view() -> None:
    series = WorkerMetrics().read(VIEW)
    assert series == {
        ("slots",): [8],
        ("slots_busy",): [3],
        ("slots_stuck",): [1],
        ("at_hand",): [4],
        ("unacked",): [2],
        ("last_good_poll_seconds",): [1.5],
    }


def test_the_types_of_exceptions_that_are_told_apart_are_bounded() -> None:
    metrics = WorkerMetrics()
    for number in range(ERRORS_MAX + 10):
        metrics.ended("a", Action.FAIL, 0.0, error=f"Error{number}")
    metrics.ended("a", Action.FAIL, 0.0, error="Error3")
    errors = {key[2]: values for key, values in metrics.read(VIEW).items() if key[0] == "errors"}
    assert len(errors) == ERRORS_MAX + 1
    assert errors[OTHER] == [10]
    assert errors["Error3"] == [2]


def test_a_job_waits_from_when_it_is_due_and_not_at_all_where_nobody_says_when_that_was() -> None:
    assert waited_s(DequeuedJob("mail:s1:p1:1", b"", 1, 2, 2, 1_500, 1_000), 2_000) == 0.5
    assert waited_s(DequeuedJob("mail:s1:p1:1", b"", 1, 2, 2, 0, 0), 2_000) == 0


def test_prometheus_reads_every_family_with_its_labels() -> None:
    text = exposition(PREFIX, FAMILIES, busy().read(VIEW)).decode()
    families = {family.name.removeprefix("pinlater_worker_"): family for family in text_string_to_metric_families(text)}
    assert families.keys() == FAMILIES.keys()
    for name, family in FAMILIES.items():
        assert families[name].type == family.kind
        assert families[name].samples, name
        assert all(sample.labels.keys() - {"le"} == set(family.labels) for sample in families[name].samples)
    counts = {sample.labels.get("le"): sample.value for sample in families["run_seconds"].samples}
    assert counts["0.01"] == 0
    assert counts["0.05"] == 7
    assert counts["3600.0"] == 7
    assert counts["+Inf"] == 8


def test_all_families_are_there_before_anything_is_counted() -> None:
    text = exposition(PREFIX, FAMILIES, WorkerMetrics().read(VIEW)).decode()
    assert all(f"# TYPE pinlater_worker_{name}" in text for name in FAMILIES)


def test_statsd_gets_what_counters_grew_by() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(20)
        export = worker_statsd(f"127.0.0.1:{receiver.getsockname()[1]}", "jobs")
        metrics = busy()
        export.send(metrics.read(VIEW))
        first = _lines_until(receiver, "jobs.last_good_poll_seconds:1.5|g")
        assert "jobs.started.thumbnail:8|c" in first
        assert "jobs.errors.thumbnail.OSError:2|c" in first
        assert "jobs.run_seconds.thumbnail.count:8|c" in first
        assert "jobs.run_seconds.thumbnail.p50:0.05|g" in first
        metrics.started("thumbnail", wait_s=0)
        export.send(metrics.read(VIEW))
        second = _lines_until(receiver, "jobs.last_good_poll_seconds:1.5|g")
        assert {line for line in second if line.endswith("|c")} == {
            "jobs.started.thumbnail:1|c",
            "jobs.wait_seconds.thumbnail.count:1|c",
        }
        export.close()


def _lines_until(receiver: socket.socket, last: str) -> set[str]:
    lines: set[str] = set()
    while last not in lines:
        lines |= set(receiver.recv(65536).decode().split("\n"))
    return lines

"""The setting of a circuit breaker, as people write it, and the windows that reach its rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinlater.backends.base import KvEntry
from pinlater.config import ConfigInvalid
from pinlater.metrics import Metrics
from pinlater.queues.breaker_counts import LATE_MS, AttemptCounts, counts_of_all, reached
from pinlater.queues.breaker_rule import BreakerRule, FailureShare, Tally
from pinlater.queues.file import QueueFile
from pinlater.queues.settings import BY_NAME

NOW_MS = 1_790_000_000_000
RULE = BreakerRule(50, 4, 60_000, 30_000)


@pytest.mark.parametrize(
    ("written", "rule", "shown"),
    [
        ("50%/100/1m/30s", BreakerRule(50, 100, 60_000, 30_000), "50%/100/1m/30s"),
        (" 1 % / 1 / 1s / 24h ", BreakerRule(1, 1, 1_000, 86_400_000), "1%/1/1s/1d"),
        ("100%/1000000000/1.5m/90s", BreakerRule(100, 10**9, 90_000, 90_000), "100%/1000000000/1m30s/1m30s"),
        ("none", None, "none"),
    ],
)
def test_a_rule_is_read_and_written_back(written: str, rule: BreakerRule | None, shown: str) -> None:
    setting = BY_NAME["pause_on_failures"]
    assert setting.kind.parse(written) == rule
    assert setting.text(rule) == shown
    assert setting.kind.parse(shown) == rule


@pytest.mark.parametrize(
    "written",
    [
        "",
        "50%",
        "50/100/1m/30s",
        "0%/100/1m/30s",
        "101%/100/1m/30s",
        "50%/0/1m/30s",
        "50%/1000000001/1m/30s",
        "50%/-1/1m/30s",
        "50%/1.5/1m/30s",
        "50%/100/999ms/30s",
        "50%/100/25h/30s",
        "50%/100/1m/999ms",
        "50%/100/1m/25h",
        "50%/100/60/30",
        "50%/100/1m/30s/1m",
        "\u06650%/100/1m/30s",
        50,
        True,
    ],
)
def test_what_is_no_rule_is_refused(written: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (what is allowed stands beside it)
        FailureShare().parse(written)


def counts_of(*taken: tuple[int, int, int], rule: BreakerRule = RULE) -> dict[str, KvEntry]:
    """The entry of a process that counted so many attempts and failures so many ms after NOW_MS."""
    metrics, counts = Metrics(), None
    for after_ms, attempts, failed in taken:
        counts = counts or _counting(metrics, rule)
        metrics.add(attempts - failed, "jobs_acked", "mail", 1, "succeeded")
        metrics.add(failed, "jobs_acked", "mail", 1, "retried")
        counts.count({"mail": rule}, NOW_MS + after_ms)
    assert counts is not None
    (part,) = counts.take_changed()
    body, expires_ms = counts.entry(part, NOW_MS)
    return {f"here/{part}": KvEntry(body, 1, expires_ms)}


def _counting(metrics: Metrics, rule: BreakerRule) -> AttemptCounts:
    counts = AttemptCounts(metrics)
    counts.count({"mail": rule}, NOW_MS)
    return counts


def tally_of(
    *entries: dict[str, KvEntry], rule: BreakerRule = RULE, since_ms: int = 0, after_ms: int = 0
) -> Tally | None:
    """Of all these processes, so many ms after NOW_MS."""
    named = {f"process-{number}/0": entry for number, each in enumerate(entries) for entry in each.values()}
    return reached(counts_of_all(named).get("mail", ()), rule, since_ms, NOW_MS + after_ms)


@pytest.mark.parametrize(
    ("attempts", "failed", "is_reached"), [(4, 2, True), (4, 1, False), (3, 3, False), (5, 2, False), (400, 200, True)]
)
def test_a_share_is_reached_with_at_least_so_many_attempts(attempts: int, failed: int, is_reached: bool) -> None:
    assert tally_of(counts_of((0, attempts, failed))) == (Tally(attempts, failed) if is_reached else None)


def test_the_counts_of_all_processes_are_one_sum() -> None:
    assert tally_of(counts_of((0, 2, 2)), counts_of((0, 2, 0))) == Tally(4, 2)
    assert tally_of(counts_of((0, 2, 2)), counts_of((0, 3, 0))) is None


def test_what_left_the_window_counts_no_more() -> None:
    early = counts_of((0, 2, 2))
    assert tally_of(early, counts_of((56_000, 2, 2)), after_ms=56_000) == Tally(4, 4)
    assert tally_of(early, counts_of((62_000, 2, 2)), after_ms=62_000) is None


def test_a_window_that_was_full_a_moment_ago_counts_when_its_counts_come_late() -> None:
    rule = BreakerRule(50, 4, 1_000, 30_000)
    entry = counts_of((0, 4, 4), rule=rule)
    assert tally_of(entry, rule=rule, after_ms=LATE_MS) == Tally(4, 4)
    assert tally_of(entry, rule=rule, after_ms=LATE_MS + 2_000) is None


def test_failures_in_two_windows_of_a_second_are_not_added_up() -> None:
    rule = BreakerRule(50, 4, 1_000, 30_000)
    assert tally_of(counts_of((0, 2, 2), (1_000, 2, 2), rule=rule), rule=rule, after_ms=1_000) is None


def test_what_was_counted_before_the_breaker_closed_counts_no_more() -> None:
    entry = counts_of((0, 4, 4), (9_000, 3, 3))
    assert tally_of(entry, since_ms=NOW_MS + 5_000, after_ms=9_000) is None
    again = counts_of((0, 4, 4), (9_000, 4, 3))
    assert tally_of(again, since_ms=NOW_MS + 5_000, after_ms=9_000) == Tally(4, 3)


def test_expired_and_released_claims_are_failures_and_what_takes_no_attempt_is_nothing() -> None:
    metrics = Metrics()
    counts = _counting(metrics, RULE)
    for family in ("claims_expired", "claims_released"):
        for outcome in ("retried", "failed", "cancelled"):
            metrics.add(1, family, "mail", outcome)
    for outcome in ("cancelled", "ignored"):
        metrics.add(9, "jobs_acked", "mail", 1, outcome)
    for family in ("jobs_expired", "jobs_given_back", "jobs_undelivered", "jobs_cancelled"):
        metrics.add(9, family, "mail")
    metrics.add(9, "jobs_acked", "other", 1, "failed")
    counts.count({"mail": RULE}, NOW_MS)
    assert tally_of({"here/0": KvEntry(*_entry(counts, *counts.take_changed()))}) == Tally(4, 4)


def test_what_was_counted_before_a_queue_had_a_breaker_is_left_out() -> None:
    metrics = Metrics()
    metrics.add(9, "jobs_acked", "mail", 1, "failed")
    counts = AttemptCounts(metrics)
    counts.count({"mail": RULE}, NOW_MS)
    assert counts.take_changed() == set()
    metrics.add(4, "jobs_acked", "mail", 1, "failed")
    counts.count({"mail": RULE}, NOW_MS)
    assert tally_of({"here/0": KvEntry(*_entry(counts, *counts.take_changed()))}) == Tally(4, 4)


def test_nothing_is_published_where_nothing_was_counted() -> None:
    metrics = Metrics()
    counts = _counting(metrics, RULE)
    assert counts.take_changed() == set()
    metrics.add(1, "jobs_acked", "mail", 1, "failed")
    counts.count({"mail": RULE}, NOW_MS)
    assert len(counts.take_changed()) == 1
    counts.count({"mail": RULE}, NOW_MS + 1_000)
    assert counts.take_changed() == set()


def test_another_window_begins_anew() -> None:
    metrics, longer = Metrics(), BreakerRule(50, 4, 600_000, 30_000)
    counts = _counting(metrics, RULE)
    metrics.add(3, "jobs_acked", "mail", 1, "failed")
    counts.count({"mail": RULE}, NOW_MS)
    metrics.add(1, "jobs_acked", "mail", 1, "failed")
    counts.count({"mail": longer}, NOW_MS)
    entry = {"here/0": KvEntry(*_entry(counts, *counts.take_changed()))}
    assert tally_of(entry, rule=longer) is None
    assert tally_of(entry) is None


def test_the_counts_of_many_queues_are_published_in_parts_and_each_queue_once() -> None:
    metrics, few = Metrics(), {f"q{number}": RULE for number in range(3)}
    counts = AttemptCounts(metrics)
    counts.count(few, NOW_MS)
    for queue in few:
        metrics.add(2, "jobs_acked", queue, 1, "failed")
    counts.count(few, NOW_MS)
    entries = {f"here/{part}": KvEntry(*_entry(counts, part)) for part in counts.take_changed()}
    assert len(entries) == 1
    many = {f"q{number}": RULE for number in range(1_000)}
    counts.count(many, NOW_MS)
    for queue in many:
        metrics.add(1, "jobs_acked", queue, 1, "failed")
    counts.count(many, NOW_MS)
    entries |= {f"here/{part}": KvEntry(*_entry(counts, part)) for part in counts.take_changed()}
    assert len(entries) > 1
    found = counts_of_all(entries)
    assert found.keys() == many.keys()
    assert {sum(tally.failed for tally in each.steps.values()) for each in found["q0"]} == {3}
    assert {sum(tally.failed for tally in each.steps.values()) for each in found["q999"]} == {1}


def _entry(counts: AttemptCounts, part: int) -> tuple[bytes, int, int]:
    body, expires_ms = counts.entry(part, NOW_MS)
    return body, 1, expires_ms


def test_an_entry_of_another_version_is_passed_over() -> None:
    good = counts_of((0, 4, 4))
    assert tally_of({"other/0": KvEntry(b"\x00not json", 1, NOW_MS)}, good) == Tally(4, 4)
    assert tally_of({"other/0": KvEntry(b'{"mail": "later"}', 1, NOW_MS)}, good) == Tally(4, 4)


def test_a_file_of_queue_settings_may_have_one(tmp_path: Path) -> None:
    path = tmp_path / "queues.toml"
    path.write_text('[defaults]\npause_on_failures = "50%/4/1m/30s"\n[queues.sms]\npause_on_failures = "none"\n')
    layers = QueueFile(path).layers
    assert layers.defaults["pause_on_failures"] == RULE
    assert layers.queues["sms"]["pause_on_failures"] is None
    path.write_text('[defaults]\npause_on_failures = "50%"\n')
    with pytest.raises(ConfigInvalid, match="SHARE%/ATTEMPTS/WINDOW/PROBE"):
        QueueFile(path)

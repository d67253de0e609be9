"""The picture that `pinlater top` draws, in all widths."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pinlater.cli.alarm_commands import calm_text
from pinlater.cli.top_frame import TopView, frame, queue_frame
from pinlater.model import (
    DEAD_LETTERS,
    ClusterStatus,
    JobInfo,
    JobState,
    LevelView,
    PauseView,
    QueueStatus,
    ServerView,
    ShardView,
    WorkersPage,
)
from pinlater.model.alarm_views import Alarm, AlarmsPage, Severity

NOW_MS = 1_790_000_000_000


def queue(name: str, ready: int, enqueued: float, flags: tuple[str, ...] = ()) -> QueueStatus:
    level = LevelView(1, ready, 1_234_567, 5, 0, 2, NOW_MS - 61_000 if ready else None)
    return QueueStatus(name, NOW_MS, [level], {"enqueued": enqueued, "dequeued": 0.0}, list(flags))


STATUS = ClusterStatus(
    NOW_MS,
    [
        ServerView("AAAAAAAAAA", "17", "10.0.0.1:9010", NOW_MS - 3_600_000, NOW_MS, True, "", ["1"], ["2"]),
        ServerView("BBBBBBBBBB", "18", "10.0.0.2:9010", NOW_MS - 1_000, NOW_MS, False, "clock\x1b off", [], [], 7),
    ],
    [
        ShardView("1", "redis://10.0.1.1:6379/0", "in", True, "", 100, 100, jobs=12_345),
        ShardView("2", "redis://10.0.1.2:6379/0", "out", False, "connection refused", 70, 100),
    ],
    [queue("idle", 0, 0.0), queue("large", 900, 0.0), queue("busy", 3, 1234.5, ("paused", "limited to 5/s"))],
)


def test_all_of_it_is_there_and_the_worst_queue_first() -> None:
    lines = frame(STATUS, "10.0.0.1:9010", 240)
    text = "\n".join(lines)
    for word in ("1/2 processes ready", "1/2 shards in", "NOT READY", "OUT", "dequeue only", "12,345", "1,234,567"):
        assert word in text
    assert [line.split()[0] for line in lines[-3:]] == ["large", "busy", "idle"]
    assert "paused, limited to 5/s" in text
    assert "1m1s" in text
    assert "\x1b" not in text


def test_a_pause_says_who_and_why_and_how_long() -> None:
    paused = queue("mq2", 0, 0.0, ("paused", "draining"))
    paused.pause = PauseView("ann@host", "the provider\x1b is down", NOW_MS - 61_000, NOW_MS + 3_600_000)
    lines = frame(ClusterStatus(NOW_MS, [], [], [queue("mq10", 0, 0.0), paused]), "a:1", 240)
    assert [line.split()[0] for line in lines[-2:]] == ["mq2", "mq10"]
    assert lines[-2].endswith(r"paused by ann@host 1m1s ago for another 1h (the provider\x1b is down), draining")


def test_limited_jobs_stand_beside_the_ready_ones_where_there_are_any() -> None:
    assert "LIMITED" not in "\n".join(frame(STATUS, "a:1", 240))
    held = queue("mail", 900, 0.0)
    held.levels.append(LevelView(2, 40, ready_limited=35))
    held.levels[0].ready_limited = 30
    lines = frame(ClusterStatus(NOW_MS, [], [], [held, queue("idle", 0, 0.0)]), "a:1", 240)
    heading, *rows = [line.split() for line in lines[-3:]]
    assert heading[:4] == ["QUEUE", "READY", "LIMITED", "SCHEDULED"]
    assert rows[0][:4] == ["mail", "940", "65", "1,234,567"]
    workers, view = WorkersPage(NOW_MS, [], 0, 0, 0, 0), TopView(opened="mail")
    for shown, is_there in ((held, True), (queue("mail", 3, 0.0), False)):
        lines = queue_frame(shown, workers, [], NOW_MS, (240, 40), view)
        assert ("LIMITED" in "\n".join(lines)) is is_there


@pytest.mark.parametrize("width", [1, 20, 40, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_what_matters_stays(width: int) -> None:
    lines = frame(STATUS, "10.0.0.1:9010", width)
    assert max(map(len, lines)) <= width
    if width >= 60:
        text = "\n".join(lines)
        for word in ("READY", "RUNNING", "OLDEST", "connection refused", "busy"):
            assert word in text


def test_the_first_line_leaves_out_whole_things() -> None:
    whole = "pinlater 10.0.0.1:9010  2027-01-15T08:00:00Z  1/2 processes ready  1/2 shards in  3 queues"
    shown = {frame(STATUS, "10.0.0.1:9010", width)[0] for width in range(70, 121)}
    assert {len(each) - len(whole) for each in shown} == {0, -11, -21}
    assert {each.rpartition("  ")[2] for each in shown} == {"3 queues", "1/2 shards in"}


def test_nobody_who_has_not_judged_says_that_all_is_well() -> None:
    assert calm_text(AlarmsPage(NOW_MS, [])) == ""
    assert calm_text(AlarmsPage(NOW_MS, [], judged_at_ms=NOW_MS)).startswith("all is well")


def test_what_is_too_much_for_the_height_is_counted() -> None:
    whole = frame(STATUS, "a:1", 120)
    assert frame(STATUS, "a:1", 120, len(whole)) == whole
    short = frame(STATUS, "a:1", 120, len(whole) - 1)
    assert len(short) == len(whole) - 1
    assert short[-3:] == whole[-3:]  # of the servers and shards there is less
    assert frame(STATUS, "a:1", 120, 8)[-1] == "... 2 more queues"
    assert frame(STATUS, "a:1", 120, 3)[-1].endswith("more lines")


def test_a_cluster_of_which_nothing_is_known_is_drawn_too() -> None:
    assert "0/0 shards in" in frame(ClusterStatus(NOW_MS, [], [], []), "a:1", 80)[0]


def test_failures_come_before_waits_and_dead_letters_last_and_apart() -> None:
    failing, letters = queue("failing", 0, 0.0), queue("letters", 700, 9.0, (DEAD_LETTERS,))
    failing.rates["failed"] = 2.0
    status = ClusterStatus(NOW_MS, [], [], [queue("calm", 3, 9.0), letters, failing])
    lines = frame(status, "a:1", 120)
    assert [line.split()[0] for line in lines[-3:]] == ["failing", "calm", "letters"]
    assert lines[1] == "3 ready  10 running  2,469,134 scheduled  4 failed  oldest 1m1s  1,235,274 dead letters"


def test_queues_with_alarms_come_first_and_the_alarms_stand_at_the_top() -> None:
    calm = Alarm("no_worker", "busy", Severity.WARNING, "busy: no worker takes its 3 ready jobs", NOW_MS, "busy")
    muted = replace(calm, subject="idle", queue="idle", title="idle: known", muted_until_ms=NOW_MS + 1)
    lines = frame(STATUS, "a:1", 120, alarms=AlarmsPage(NOW_MS, [calm, muted]))
    assert [line.split()[0] for line in lines[-3:]] == ["busy", "large", "idle"]
    assert lines[2] == "1 alarm: busy: no worker takes its 3 ready jobs"


@pytest.mark.parametrize(("order", "first"), [("name", "busy"), ("ready", "large"), ("running", "busy")])
def test_queues_are_sorted_by_other_things_too(order: str, first: str) -> None:
    assert frame(STATUS, "a:1", 120, order=order)[-3].split()[0] == first


def test_the_marked_queue_stays_in_the_picture_of_a_usual_terminal() -> None:
    names = [f"q{each}" for each in range(99)]
    queues = [queue(name, 0, 0.0) for name in names]
    many = ClusterStatus(NOW_MS, STATUS.servers * 9, STATUS.shards * 9, queues)
    view = TopView()
    for by in (0, 40, 10**6, -30):
        view.move(names, by)
        lines = frame(many, "a:1", 80, 24, view=view)
        assert len(lines) == 24
        assert max(map(len, lines)) <= 80
        (marked,) = [line for line in lines if line.startswith("> ")]
        assert marked.split()[1] == view.marked
        assert lines[-1].startswith("q quit")
        assert "NOT READY" in "\n".join(lines)  # what has a problem is first among many servers
        assert any(line.endswith("more queues") for line in lines)


def test_one_queue_shows_its_levels_workers_and_failures() -> None:
    view = TopView(opened="mail", asks="Pause queue mail? [y/N]")
    workers = WorkersPage(NOW_MS, [], 2, 8, 5, 0)
    failed = [JobInfo("mail:s1:p1:1790000000000000", JobState.FAILED, 1, 2, 0, "no\x1b answer", NOW_MS, NOW_MS, NOW_MS)]
    lines = queue_frame(queue("mail", 5, 1.0, ("limited to 5/s",)), workers, failed, NOW_MS, (80, 24), view)
    text = "\n".join(lines)
    for word in ("queue mail", "limited to 5/s", "enqueued 1.0/s", "2 workers, 5 of 8 slots busy", r"no\x1b answer"):
        assert word in text
    assert lines[-1] == "Pause queue mail? [y/N]"
    assert "does not exist" in "\n".join(queue_frame(None, workers, [], NOW_MS, (80, 24), view))

"""The picture that `pinlater top` draws, in all widths."""

from __future__ import annotations

import pytest

from pinlater.cli.top import frame
from pinlater.model import ClusterStatus, LevelView, PauseView, QueueStatus, ServerView, ShardView

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


def test_all_of_it_is_there_and_the_busiest_queue_first() -> None:
    lines = frame(STATUS, "10.0.0.1:9010", 240)
    text = "\n".join(lines)
    for word in ("1/2 processes ready", "1/2 shards in", "NOT READY", "OUT", "dequeue only", "12,345", "1,234,567"):
        assert word in text
    assert [line.split()[0] for line in lines[-3:]] == ["busy", "large", "idle"]
    assert "paused, limited to 5/s" in text
    assert "1m1s" in text
    assert "\x1b" not in text


def test_a_pause_says_who_and_why_and_how_long() -> None:
    paused = queue("mq2", 0, 0.0, ("paused", "draining"))
    paused.pause = PauseView("ann@host", "the provider\x1b is down", NOW_MS - 61_000, NOW_MS + 3_600_000)
    lines = frame(ClusterStatus(NOW_MS, [], [], [queue("mq10", 0, 0.0), paused]), "a:1", 240)
    assert [line.split()[0] for line in lines[-2:]] == ["mq2", "mq10"]
    assert lines[-2].endswith(r"paused by ann@host 1m1s ago for another 1h (the provider\x1b is down), draining")


@pytest.mark.parametrize("width", [1, 20, 40, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_what_matters_stays(width: int) -> None:
    lines = frame(STATUS, "10.0.0.1:9010", width)
    assert max(map(len, lines)) <= width
    if width >= 60:
        text = "\n".join(lines)
        for word in ("READY", "RUNNING", "OLDEST", "connection refused", "busy"):
            assert word in text


def test_what_is_too_much_for_the_height_is_counted() -> None:
    whole = frame(STATUS, "a:1", 120)
    assert frame(STATUS, "a:1", 120, len(whole)) == whole
    short = frame(STATUS, "a:1", 120, len(whole) - 1)
    assert len(short) == len(whole) - 1
    assert short[-1] == "... 2 more queues"
    assert frame(STATUS, "a:1", 120, 3)[-1].endswith("more lines")


def test_a_cluster_of_which_nothing_is_known_is_drawn_too() -> None:
    assert "0/0 shards in" in frame(ClusterStatus(NOW_MS, [], [], []), "a:1", 80)[0]

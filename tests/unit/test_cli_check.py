"""Thresholds as they are written, and the verdict of `pinlater check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinlater.cli.check import CheckPlan, Level, Limits, judge, parse_limits, plan_of
from pinlater.client.addresses import cluster_check, cluster_servers
from pinlater.model import ClusterStatus, LevelView, QueueStatus, ServerView, ShardView

NOW_MS = 1_790_000_000_000
CONF = Path(__file__).parents[2] / "conf" / "clusters.toml"


def status(
    *queues: QueueStatus, out: int = 0, ready: tuple[bool, ...] = (True, True), out_at: tuple[str, ...] = ()
) -> ClusterStatus:
    servers = [
        ServerView(f"S{number}", "1", "a:1", 0, NOW_MS, is_ready, "" if is_ready else "clock | off", [], list(out_at))
        for number, is_ready in enumerate(ready)
    ]
    shards = [ShardView(str(n), "redis://a", "out" if n <= out else "in", False, "refused") for n in (1, 2)]
    return ClusterStatus(NOW_MS, servers, shards, list(queues))


def queue(name: str, *, counted_ms: int = NOW_MS, oldest_ms: int | None = None, **counts: int) -> QueueStatus:
    return QueueStatus(name, counted_ms, [LevelView(1, **counts, oldest_ready_ms=oldest_ms), LevelView(2, ready=1)])


def verdict(found: ClusterStatus, warn: str = "", crit: str = "", *queues: str) -> tuple[Level, str]:
    return judge(found, CheckPlan(given=Limits(parse_limits([warn]), parse_limits([crit])), queues=queues))


# -- thresholds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ready", "KEY=THRESHOLD"),
        ("mood=1", "allowed: ready"),
        ("ready=-1", "whole number"),
        ("ready=1.5", "whole number"),
        ("oldest=soon", "duration"),
        ("=1", "allowed"),
    ],
)
def test_a_wrong_threshold_is_explained(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_limits([text])


def test_the_command_line_counts_before_a_queues_table_and_that_before_the_clusters() -> None:
    table = {
        "warn": {"ready": 10, "oldest": "1m", "servers": 3},
        "queues": {"letters": {"warn": {"ready": 20, "oldest": "none"}}},
    }
    plan = plan_of(table, Limits({"failed": 5}, {}), ())
    assert plan.limits("letters").warn == {"ready": 20, "oldest": None, "servers": 3, "failed": 5}
    assert plan.limits("other").warn["oldest"] == 60_000
    assert plan.cluster() == Limits(
        {"shards_out": 0, "shards_full": 0, "unready": 0, **plan.limits("other").warn}, {"servers": 1}
    )
    assert plan_of(table, Limits({"ready": 1}, {}), ()).limits("letters").warn["ready"] == 1


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (7, "check is 7"),
        ({"warm": {}}, "warn, crit, queues"),
        ({"warn": 7}, "check: 7 is no table"),
        ({"queues": 7}, "check.queues"),
        ({"queues": {"a": {"warn": {"servers": 1}}}}, "check.queues.a: 'servers'"),
        ({"crit": {"ready": True}}, "whole number"),
    ],
)
def test_a_wrong_table_is_explained_with_its_place(table: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        plan_of(table, Limits(), ())


def test_both_forms_of_a_cluster_are_read(tmp_path: Path) -> None:
    file = tmp_path / "clusters.toml"
    file.write_text(
        '[clusters]\nplain = ["a:1"]\n[clusters.mail]\nservers = ["b:2"]\ncheck.warn = { ready = 1 }\n'
        "[clusters.bare]\n[clusters.odd]\nserver = 1\n"
    )
    assert [str(each) for each in cluster_servers("plain", file)] == ["a:1"]
    assert [str(each) for each in cluster_servers("mail", file)] == ["b:2"]
    assert cluster_check("plain", file) == {}
    assert cluster_check("mail", file) == {"warn": {"ready": 1}}
    with pytest.raises(ValueError, match="HOST:PORT"):
        cluster_servers("bare", file)
    with pytest.raises(ValueError, match="'server'; allowed: servers, check"):
        cluster_check("odd", file)


def test_the_example_shows_two_teams_with_thresholds_of_their_own() -> None:
    mail, reports = (plan_of(cluster_check(name, CONF), Limits(), ()) for name in ("mail", "reports"))
    assert cluster_servers("mail", CONF) != cluster_servers("reports", CONF)
    assert mail.limits("letters").crit["oldest"] == 30_000
    assert mail.limits("newsletters").crit["oldest"] is None
    assert reports.limits("letters").crit["oldest"] == 12 * 3_600_000


# -- the verdict -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ready", "level"), [(9, Level.OK), (10, Level.WARNING), (19, Level.WARNING), (20, Level.CRITICAL)]
)
def test_beyond_a_threshold_and_not_at_it(ready: int, level: Level) -> None:
    found = verdict(status(queue("mail", ready=ready)), "ready=10", "ready=20")
    assert found[0] is level
    assert f"mail_ready={ready + 1};10;20" in found[1]


def test_the_age_of_the_oldest_job_is_in_seconds() -> None:
    level, line = verdict(status(queue("mail", oldest_ms=NOW_MS - 61_500)), "oldest=1m", "oldest=5m")
    assert level is Level.WARNING
    assert line.startswith("PINLATER WARNING - mail: the oldest ready job waits for 1m1s (more than 1m) | ")
    assert line.endswith("mail_oldest=61.5s;60;300")
    assert verdict(status(queue("mail")), "oldest=1m")[0] is Level.OK


def test_servers_and_shards_are_judged_without_any_threshold() -> None:
    assert verdict(status()) == (
        Level.OK,
        "PINLATER OK - 2 of 2 processes ready, 2 shards in, 0 queues | shards_out=0;0; shards_full=0;0; "
        "unready=0;0; servers=2;;1:",
    )
    level, line = verdict(status(out=1))
    assert (level, line.split(" | ")[0]) == (Level.WARNING, "PINLATER WARNING - shard 1 out: refused")
    both = status(out=2)
    for shard in both.shards:
        shard.trouble = f"shard {shard.id}: no answer"
    said = "PINLATER CRITICAL - no shard is in; shard 1 out: no answer, shard 2 out: no answer"
    assert verdict(both)[1].split(" | ")[0] == said
    assert "shard 2 out: no answer (more than 1) | " in verdict(both, "shards-out=1")[1]
    assert "shard 1 out at S0/1, S1/1" in verdict(status(out_at=("1",)))[1]
    assert verdict(status(out=2))[0] is Level.CRITICAL
    assert verdict(status(ready=(True, False)))[0] is Level.WARNING
    assert verdict(status(ready=(False, False)))[0] is Level.CRITICAL
    assert verdict(status(out=1), "shards-out=none")[0] is Level.OK
    assert verdict(status(), "servers=3")[0] is Level.WARNING


def test_a_full_shard_is_a_warning_and_none_with_room_is_critical() -> None:
    one = status()
    one.shards[0].is_full, one.shards[0].trouble = True, "its disk is full: free some space"
    level, line = verdict(one)
    assert (level, line.split(" | ")[0]) == (
        Level.WARNING,
        "PINLATER WARNING - shard 1 full: its disk is full: free some space",
    )
    assert "shards_full=1;0;" in line
    assert verdict(one, "shards-full=none")[0] is Level.OK
    assert verdict(one, "", "shards-full=0")[0] is Level.CRITICAL
    one.shards[1].dequeue_only = True
    level, line = verdict(one)
    assert level is Level.CRITICAL
    assert line.startswith("PINLATER CRITICAL - no shard has room for new jobs; shard 1 full: ")
    one.shards[0].state, one.shards[0].is_full = "out", False
    assert "full" not in verdict(one)[1].split(" | ")[0].replace("its disk is full", "")


def test_a_text_cannot_end_the_line_or_begin_the_figures() -> None:
    _, line = verdict(status(ready=(True, False)))
    assert line.count("|") == 1
    assert "clock / off" in line


def test_only_the_queues_named_are_looked_at() -> None:
    found = status(queue("mail", failed=5), queue("other", failed=50))
    assert verdict(found, "failed=10")[0] is Level.WARNING
    level, line = verdict(found, "failed=10", "", "mail")
    assert level is Level.OK
    assert "other" not in line
    assert verdict(found, "", "", "nowhere")[0] is Level.UNKNOWN
    assert verdict(found, "failed=1", "", "nowhere", "mail")[0] is Level.WARNING


def test_counts_that_are_old_or_missing_are_said_to_be_so() -> None:
    _, line = verdict(status(queue("mail", failed=5, counted_ms=NOW_MS - 300_000)), "failed=1")
    assert "mail: 5 failed, as counted 5m ago (more than 1)" in line
    assert verdict(status(queue("mail", counted_ms=0)), "failed=1")[0] is Level.UNKNOWN
    found = queue("mail", failed=5, ready=5)
    found.ended_counted_at_ms = NOW_MS - 300_000
    _, line = verdict(status(found), "failed=1,ready=1")
    assert "mail: 5 failed, as counted 5m ago (more than 1)" in line
    assert "mail: 6 ready (more than 1)" in line


def test_a_process_that_is_ready_with_a_wrong_clock_is_a_warning() -> None:
    found = status()
    found.servers[0].trouble = "this server's clock is outvoted"
    level, line = verdict(found)
    assert level is Level.WARNING
    assert "S0/1: this server's clock is outvoted" in line

"""Every command against a cluster of which one shard is dead; in the end it comes back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from pinlater import Ack, Client, DequeueRequest, Job
from pinlater.cli import COMMANDS
from pinlater.model import parse_descriptor
from tests.cluster.conftest import Command, TwoServers, eventually

pytestmark = pytest.mark.store("redis")
MISSED = "pinlater: shard 2 was not reached; it gets the change before it serves again\n"
NOT_ALL = "missing shards: 2"
BATCH = 20


def shard_of(descriptor: str) -> str:
    ref = parse_descriptor(descriptor)
    assert ref is not None
    return ref.shard


def spread(client: Client, queue: str) -> dict[str, list[str]]:
    """Jobs in batches until each shard has one: the descriptors by shard."""
    found: dict[str, list[str]] = {}

    def have_both() -> bool:
        batch = client.enqueue(queue, [Job(b"letter %d" % number, number % 3 + 1) for number in range(BATCH)])
        found.setdefault(shard_of(batch[0]), []).extend(batch)
        return len(found) == 2

    eventually(have_both)
    return found


def fail(client: Client, queue: str, jobs: int) -> None:
    """So many jobs fail for good."""
    left = jobs

    def is_done() -> bool:
        nonlocal left
        taken = client.dequeue(DequeueRequest(queue, left))
        client.ack(queue, failed=[Ack(job.descriptor, "no such address", permanent=True) for job in taken])
        left -= len(taken)
        return left == 0

    eventually(is_done)


def has_dead_letters(client: Client, command: Command) -> bool:
    """Letters fail on both shards; those that failed before every process knew of the dead-letter queue stay as they
    are."""
    fail(client, "letters", sum(map(len, spread(client, "letters").values())))
    dry = json.loads(command("queue", "replay", "letters_dead", "--dry-run", "--all", "-o", "json").stdout)
    return int(dry["changed"]) > 10 * BATCH


@pytest.fixture(scope="module")
def jobs(cluster: TwoServers, command: Command) -> dict[str, list[str]]:
    """Queues with jobs on both shards, and then the second one dies: the descriptors in `mail` by shard."""
    with cluster.client() as client:
        command("queue", "create", "mail", "old", "plain", "failing", "letters", "letters_dead")
        command("queue", "set", "letters", "dead_letter_queue=letters_dead")
        found = spread(client, "mail")
        fail(client, "failing", sum(map(len, spread(client, "failing").values())))
        eventually(lambda: has_dead_letters(client, command))
    cluster.kill_shard_2()
    return found


@pytest.fixture(scope="module")
def client(cluster: TwoServers, jobs: dict[str, list[str]]) -> Iterator[Client]:
    with cluster.client() as made:
        yield made


@pytest.fixture(autouse=True)
def _dead(jobs: dict[str, list[str]]) -> None:
    """For every test here."""


def settings(command: Command, queue: str) -> dict[str, tuple[str, str]]:
    (view,) = json.loads(command("queue", "show", queue, "-o", "json").stdout)
    return {name: (each["value"], each["source"]) for name, each in view["settings"].items()}


# -- queues ------------------------------------------------------------------------------------------------------------


def test_queues_are_created_listed_and_deleted(command: Command) -> None:
    assert command("queue", "create", "made", "made_too").stderr == MISSED
    assert {"made", "made_too", "mail"} <= set(command("queue", "list").stdout.split())
    holds, missed = command("queue", "delete", "made_too", "--yes").stderr.splitlines(keepends=True)
    assert holds.endswith("0 failed, cancelled or replayed, and what is on shard 2, which cannot be counted\n")
    assert missed == MISSED
    eventually(lambda: "made_too" not in command("queue", "list").stdout.split())


def test_stats_count_what_can_be_counted(command: Command, jobs: dict[str, list[str]]) -> None:
    result = command("queue", "stats", "mail", "-o", "jsonl", code=5)
    counted = sum(json.loads(line)["ready"] for line in result.stdout.splitlines())
    assert counted == len(jobs["1"])
    assert NOT_ALL in result.stderr


def test_settings_are_changed_and_taken_back(command: Command) -> None:
    changed = command("queue", "set", "mail", "max_attempts=20", "claim_timeout=30s")
    assert changed.stderr == MISSED
    assert [line.split() for line in changed.stdout.splitlines()[1:]] == [
        ["mail", "claim_timeout", "30s", "queue"],
        ["mail", "max_attempts", "20", "queue"],
    ]
    back = command("queue", "unset", "mail", "claim_timeout", "-o", "json")
    assert json.loads(back.stdout)[0]["settings"] == {"claim_timeout": {"value": "5m", "source": "server"}}
    assert command("queue", "set", "--defaults", "succeeded_ttl=6h").stderr == MISSED
    assert settings(command, "mail")["succeeded_ttl"] == ("6h", "default")
    assert "6h" in command("queue", "show", "--defaults").stdout
    shown = command("queue", "show").stdout
    assert "20" in shown
    assert "claim_timeout" not in shown
    command("queue", "unset", "--defaults", "succeeded_ttl")


def test_a_rate_is_set_and_taken_away(command: Command) -> None:
    result = command("queue", "set-rate", "mail", "30/m")
    assert result.stderr == MISSED
    assert settings(command, "mail")["max_jobs_per_second"] == ("30/m", "queue")
    command("queue", "set-rate", "mail", "none")
    assert settings(command, "mail")["max_jobs_per_second"][0] == "none"
    assert "max_jobs_per_second" in command("queue", "set-rate", "mail", "fast", code=2).stderr


def test_a_queue_is_paused_and_resumed_in_the_middle_of_an_incident(command: Command, client: Client) -> None:
    result = command("queue", "pause", "mail", "--why", "it burns", "--for", "2h", "-o", "json")
    assert result.stderr == MISSED
    told = {name: each["value"] for name, each in json.loads(result.stdout)[0]["settings"].items()}
    assert (told["paused"], told["paused_why"]) == ("true", "it burns")
    assert "@" in told["paused_by"]
    assert int(told["paused_until"]) - int(told["paused_at"]) == pytest.approx(7_200_000, abs=10_000)
    assert re.search(r"paused_until=20\d\d-\S+Z", command("audit", "--limit", "1").stdout)
    resumed = command("queue", "resume", "mail")
    assert (resumed.stderr, resumed.stdout.split()[-2:]) == (MISSED, ["false", "server"])
    command("queue", "pause", "--defaults")
    assert command("queue", "resume", "mail").stdout.split()[-2:] == ["false", "queue"]
    command("queue", "resume", "--defaults")
    command("queue", "unset", "mail", "paused")


def test_a_queue_drains_but_for_the_dead_shard(command: Command) -> None:
    result = command("queue", "drain", "old", "--partial", code=5)
    assert result.stderr.startswith(MISSED)
    assert result.stderr.endswith("pinlater: queue old is empty, but for shards that are out: 2\n")
    refused = command("job", "enqueue", "old", "x", "--timeout", "5s", code=1)
    assert "drain" in refused.stderr
    assert "takes new jobs again" in command("queue", "drain", "old", "--undo").stderr
    assert settings(command, "old")["draining"] == ("false", "server")
    command("queue", "drain", "old", "--no-wait")
    command("queue", "drain", "old", "--undo")


def test_dead_letters_of_the_live_shard_go_back(command: Command) -> None:
    dry = command("queue", "replay", "letters_dead", "--dry-run", code=5)
    assert NOT_ALL in dry.stderr
    assert "ready  0 of 2" in dry.stdout
    matched = int(dry.stdout.split()[0])
    assert matched >= BATCH
    assert command("queue", "replay", "letters_dead", "--limit", "5", "--rate", "1000/s", code=5).stdout == "5\n"
    assert command("queue", "replay", "letters_dead", "--all", code=5).stdout == f"{matched - 5}\n"


# -- jobs --------------------------------------------------------------------------------------------------------------


def test_jobs_are_enqueued_shown_scanned_and_counted(command: Command, jobs: dict[str, list[str]]) -> None:
    descriptor = command("job", "enqueue", "plain", "x").stdout.strip()
    assert shard_of(descriptor) == "1"
    assert json.loads(command("job", "get", descriptor, "--body", "-o", "jsonl").stdout)["body"] == "x"
    lost = command("job", "get", jobs["2"][0], code=1)
    assert "shard 2" in lost.stderr
    part = command("job", "get", jobs["2"][0], descriptor, "nothing", "-o", "jsonl", code=5)
    assert [json.loads(line)["descriptor"] for line in part.stdout.splitlines()] == [descriptor]
    assert "shard 2 cannot be used now" in part.stderr
    assert f"not read: {jobs['2'][0]}\npinlater: not found: nothing" in part.stderr
    scanned = command("job", "scan", "mail", "--state", "pending", "--all", "-o", "jsonl", code=5)
    assert len(scanned.stdout.splitlines()) == len(jobs["1"])
    assert NOT_ALL in scanned.stderr
    assert command("job", "count", "mail", "--state", "pending", "--partial").stdout == f"{len(jobs['1'])}\n"
    assert "shard 2" in command("job", "count", "mail", "--state", "pending", code=1).stderr


def test_failed_jobs_of_the_live_shard_are_retried(command: Command) -> None:
    dry = command("job", "retry", "failing", "--dry-run", "-o", "json", code=5)
    told: dict[str, Any] = json.loads(dry.stdout)
    assert len(told["samples"]) == 10
    assert {shard_of(sample["descriptor"]) for sample in told["samples"]} == {"1"}
    first = int(command("job", "retry", "failing", "--priority", "1", code=5).stdout)
    rest = int(command("job", "retry", "failing", "--all", code=5).stdout)
    assert first + rest == told["changed"] >= BATCH
    assert first == -(-BATCH // 3) * (told["changed"] // BATCH)


def test_pending_jobs_of_the_live_shard_are_cancelled_and_deleted(command: Command, jobs: dict[str, list[str]]) -> None:
    one, other = jobs["1"][0], jobs["1"][1]
    assert "CANCELLED" in command("job", "cancel", one, other).stdout
    assert "shard 2" in command("job", "cancel", jobs["2"][0], code=1).stderr
    by_pattern = command("job", "cancel", "--queue", "mail", "--match", "^letter 2$", code=5)
    assert int(by_pattern.stdout) == len(jobs["1"]) // BATCH
    assert NOT_ALL in by_pattern.stderr
    assert command("job", "cancel", "--queue", "mail", "--older-than", "1d", code=5).stdout == "0\n"
    deleted = command("job", "delete", "mail", "--state", "pending", "--newer-than", "1d", "--limit", "3", code=5)
    assert (deleted.stdout, NOT_ALL in deleted.stderr) == ("3\n", True)


# -- the cluster -------------------------------------------------------------------------------------------------------


def test_shards_are_listed_with_what_ails_them(command: Command) -> None:
    rows = json.loads(command("shard", "list", "-o", "json").stdout)
    assert [(row["id"], row["state"] == "in") for row in rows] == [("1", True), ("2", False)]
    assert "refused" in rows[1]["trouble"]
    sick = command("shard", "health", "-o", "json", code=1)
    assert sick.stderr == "pinlater: out: 2\n"
    assert json.loads(sick.stdout)[1]["state"] != "in"
    old = command("shard", "health", "-o", "json", "--json-keys", "old", code=1)
    assert len(json.loads(old.stdout)[1]["out_at"]) == 4


def test_a_shard_is_told_to_drain_and_takes_jobs_again(command: Command) -> None:
    ordered = command("shard", "drain", "2", "--no-wait")
    assert ordered.stderr == MISSED + "pinlater: shard 2 takes no new jobs\n"
    eventually(lambda: json.loads(command("shard", "list", "-o", "json").stdout)[1]["dequeue_only"])
    assert "takes new jobs again" in command("shard", "drain", "2", "--undo").stderr
    assert "no shard '9'" in command("shard", "drain", "9", "--no-wait", code=1).stderr


def test_the_status_has_servers_shards_and_queues(command: Command) -> None:
    whole = json.loads(command("cluster", "status", "-o", "json").stdout)
    assert [server["is_ready"] for server in whole["servers"]] == [True] * 4
    assert {server["shards_out"][0] for server in whole["servers"]} == {"2"}
    assert "mail" in [queue["name"] for queue in whole["queues"]]
    lines = [json.loads(line) for line in command("cluster", "status", "-o", "jsonl").stdout.splitlines()]
    assert {line["kind"] for line in lines} == {"server", "shard", "queue"}
    assert "127.0.0.1" in command("cluster", "status").stdout


def test_changes_are_recorded_with_what_they_missed(command: Command) -> None:
    command("queue", "set", "mail", "max_attempts=21")
    (latest,) = json.loads(command("audit", "--limit", "1", "-o", "json").stdout)
    assert (latest["action"], latest["target"]) == ("update_queue", "mail")
    assert latest["detail"] == "max_attempts=21; missed by shard 2"
    assert "@" in latest["who"]
    assert command("audit", "--before", "2020-01-01T00:00:00Z").stdout == ""


def test_a_check_warns_and_thresholds_decide(command: Command) -> None:
    assert command("check", "--no-alarms", code=1).stdout.startswith("PINLATER WARNING - shard 2 out")
    assert "shards_out=1;0;0" in command("check", "--no-alarms", "--crit", "shards-out=0", code=2).stdout
    fine = command("check", "--no-alarms", "--warn", "shards-out=1,ready=1000000", "--queue", "mail")
    assert fine.stdout.startswith("PINLATER OK - 4 of 4 processes ready")
    assert "mail_ready=" in fine.stdout
    assert "CRITICAL" in command("check", "--no-alarms", "--crit", "servers=3", code=2).stdout
    assert (
        "queue nowhere does not exist"
        in command("check", "--no-alarms", "--queue", "nowhere", "--warn", "shards-out=1", code=3).stdout
    )


def test_top_shows_the_dead_shard(command: Command) -> None:
    shown = command("top", "--once").stdout
    assert "1/2 shards in" in shown
    assert "OUT" in shown
    assert "mail" in shown
    eventually(lambda: "Shard 2 is out" in command("alarms", code=0).stdout)  # judged every 5 s
    assert len(COMMANDS) == 25  # mcp makes the calls of the others, history reads files


# -- and it comes back -------------------------------------------------------------------------------------------------


def test_the_shard_that_comes_back_has_heard_of_all_of_it(cluster: TwoServers, command: Command) -> None:
    cluster.revive_shard_2()
    eventually(lambda: command("shard", "health", code=None).exit_code == 0)
    assert settings(command, "mail")["max_attempts"] == ("21", "queue")
    stats = command("queue", "stats", "mail", "made").stdout
    assert "made" in stats
    eventually(lambda: command("check", "--no-alarms", code=None).stdout.startswith("PINLATER OK"))
    assert command("queue", "set", "mail", "max_attempts=22").stderr == ""
    assert command("queue", "drain", "made").stderr.endswith("pinlater: queue made is drained\n")

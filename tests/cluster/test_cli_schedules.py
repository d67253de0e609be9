"""`pinlater schedule` against a cluster."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cluster.conftest import Command, TwoServers


def test_a_schedule_is_checked_saved_shown_paused_run_and_deleted(command: Command, tmp_path: Path) -> None:
    command("queue", "create", "reports")
    body = tmp_path / "body.json"
    body.write_text('{"all": true}')
    when = ("--queue", "reports", "--cron", "30 2 29 3 *", "--timezone", "Europe/Berlin", "--file", str(body))

    tried = command("schedule", "set", "nightly", *when, "--dry-run")
    assert "fires at 30 2 29 3 * Europe/Berlin; next:" in tried.stderr
    assert tried.stderr.count("Z)") == 5
    assert "nothing was changed" in tried.stderr
    assert "does not exist" in command("schedule", "show", "nightly", code=1).stderr

    made = json.loads(command("schedule", "set", "nightly", *when, "-o", "jsonl").stdout)
    assert (made["name"], made["body"], len(made["next_ms"])) == ("nightly", '{"all": true}', 5)
    again = json.loads(command("schedule", "set", "nightly", *when, "-o", "jsonl").stdout)
    assert again["version"] == made["version"]

    (listed,) = json.loads(command("schedule", "list", "--queue", "reports", "-o", "json").stdout)
    assert (listed["name"], listed["trouble"], listed["next_ms"]) == ("nightly", "", made["next_ms"][:1])
    assert "30 2 29 3 * Europe/Berlin" in command("schedule", "show", "nightly").stdout
    assert len(command("schedule", "next", "nightly", "--limit", "3").stdout.splitlines()) == 3

    assert "nightly is paused" in command("schedule", "pause", "nightly").stderr
    assert "already" in command("schedule", "pause", "nightly").stderr
    descriptor = command("schedule", "run", "nightly").stdout.strip()
    assert '{"all": true}' in command("job", "get", descriptor, "--body").stdout
    assert "fires again" in command("schedule", "resume", "nightly").stderr

    command("schedule", "delete", "nightly", "--yes")
    assert "does not exist" in command("schedule", "delete", "nightly", "--yes").stderr
    audit = [json.loads(line) for line in command("audit", "-o", "jsonl").stdout.splitlines()]
    changes = [each["action"] for each in audit if each["target"] == "nightly"]
    assert changes == ["delete_schedule", "update_schedule", "update_schedule", "update_schedule"]


def test_what_is_wrong_with_a_schedule_is_said_and_nothing_is_saved(command: Command) -> None:
    command("queue", "create", "wrong")
    plain = ("schedule", "set", "wrong", "--queue", "wrong")
    for more, says in (
        (("--cron", "61 * * * *"), "Bad minute"),
        (("--cron", "* * * *"), "five fields"),
        (("--cron", "0 0 30 2 *"), "cron"),
        (("--cron", "0 3 * * *", "--timezone", "Europe/Berln"), "the name of a time zone"),
        (("--every", "10ms"), "1000 or more"),
        ((), "cron"),
        (("--every", "1m", "--end", "2001-01-01"), "a time after the first firing"),
    ):
        refused = command(*plain, *more, code=2)
        assert says in refused.stderr, refused.stderr
    warned = command(*plain, "--cron", "*/90 * * * *", "--dry-run").stderr
    assert "warning: */90 in the field minute is the same as 0" in warned
    assert "does not exist" in command("schedule", "set", "wrong", "--queue", "nope", "--every", "1m", code=1).stderr
    refused = command(*plain, "--every", "1m", "--only-if-version", "1", code=2)
    assert "since there is no such schedule" in refused.stderr
    assert command("schedule", "list", "--queue", "wrong", "-o", "json").stdout.strip() == "[]"


def test_a_schedule_of_one_server_counts_at_the_other(command: Command, cluster: TwoServers) -> None:
    command("queue", "create", "shared")
    command("schedule", "set", "shared", "--queue", "shared", "--every", "1h", PINLATER_SERVER=cluster.addresses[0])
    found = command("schedule", "list", "-o", "jsonl", PINLATER_SERVER=cluster.addresses[1]).stdout
    assert "shared" in found
    command("schedule", "delete", "shared", "--yes")

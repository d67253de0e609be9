"""`pinlater queue`, and the words and numbers of states on every command."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from pinlater import (
    Ack,
    AckOutcome,
    CancelOutcome,
    Checkpoint,
    Client,
    DequeueRequest,
    ExtendedJob,
    Job,
    JobFilter,
    JobState,
)
from pinlater.cli import job_states
from pinlater.model import queue_order
from tests.server.cli_jobs.rows import PASSWORD, UNKNOWN, finish, rows
from tests.server.commands import Shell
from tests.server.terminal import Terminal


def test_queues_are_created_listed_and_deleted(shell: Shell) -> None:
    assert shell("queue", "create", "one_queue", "two_queue").out == ""
    shell("queue", "create", "one_queue")
    assert {"one_queue", "two_queue"} <= set(shell("queue", "list").out.split())
    assert {"name": "one_queue"} in json.loads(shell("queue", "list", "-o", "json").out)
    assert '{"name": "two_queue"}' in shell("queue", "list", "-o", "jsonl").out.splitlines()
    shell("queue", "delete", "one_queue", "--yes", stdin=PASSWORD + "\n")
    shell("queue", "delete", "two_queue", "--yes", PINLATER_ADMIN_PASSWORD=PASSWORD)
    assert not {"one_queue", "two_queue"} & set(shell("queue", "list").out.split())


def test_a_queue_is_deleted_only_with_the_password_and_on_purpose(shell: Shell, queue: str) -> None:
    refused = shell("queue", "delete", queue, "--yes", stdin="wrong\n", code=1)
    assert "password" in refused.err.lower()
    assert "--yes" in shell("queue", "delete", queue, stdin=PASSWORD, code=2).err
    assert "no admin password" in shell("queue", "delete", queue, "--yes", code=2).err
    assert queue in shell("queue", "list").out.split()


def test_a_value_that_is_not_allowed_is_refused_with_a_reason(shell: Shell, queue: str) -> None:
    assert "letters, digits" in shell("queue", "create", "no.dots", code=2).err
    assert "letters, digits" in shell("queue", "create", "--", "-front", code=2).err
    assert "1 to 64" in shell("queue", "create", "x" * 65, code=2).err
    assert "1 (highest) to 3" in shell("job", "enqueue", queue, "x", "--priority", "9", code=2).err
    assert shell("job", "scan", queue, "--state", "failed", "--match", "(", code=2).err.startswith(
        "pinlater: --match is"
    )


def _fill(client: Client, queue: str) -> None:
    later_ms = 2**52
    client.enqueue(queue, [Job(b"", 1)] * 4 + [Job(b"", 2), Job(b"", 2), Job(b"", 3, later_ms)])
    finish(client, queue, fail=1, succeed=2)
    (held,) = client.dequeue(DequeueRequest(queue, 1))
    client.checkpoint(queue, [Checkpoint(held.descriptor, run_after_ms=later_ms)])


WORDS = ["scheduled", "ready", "waiting", "running", "succeeded", "failed", "cancelled", "replayed"]
KEYS = ["scheduled", "ready", "waiting", "in_progress", "succeeded", "failed", "cancelled", "replayed"]
OLD_KEYS = ["pending", "scheduled", "in_progress", "succeeded", "failed"]
TOTALS = ["all", "1", "2", "0", "1", "2", "1", "0", "0"]
LEVELS = [
    ["1", "0", "0", "0", "1", "2", "1", "0", "0"],
    ["2", "0", "2", "0", "0", "0", "0", "0", "0"],
    ["3", "1", "0", "0", "0", "0", "0", "0", "0"],
]


@pytest.mark.parametrize(
    ("format", "option", "expected"),
    [
        ("table", "--by-priority", LEVELS),
        ("json", "", LEVELS),
        ("jsonl", "", LEVELS),
        ("table", "", [TOTALS, *LEVELS]),
        ("table", "--totals", [TOTALS]),
        ("json", "--totals", [TOTALS]),
    ],
)
def test_stats_count_by_what_jobs_wait_for(
    shell: Shell, queue: str, client: Client, format: str, option: str, expected: list[list[str]]
) -> None:
    _fill(client, queue)
    found = rows(format, shell("queue", "stats", queue, "-o", format, *([option] if option else [])).out)
    names = ["queue", "priority", *WORDS] if format == "table" else ["name", "priority", *KEYS]
    assert [list(row) for row in found] == [names] * len(expected)
    assert [[str(value) for value in row.values()][1:] for row in found] == expected


def _one_in_every_state(client: Client, queue: str) -> dict[str, str]:
    """The job of each state, by the state's word: two of them wait, one of these for later."""
    later_ms = 2**52
    running, succeeds, fails, stops = client.enqueue(queue, [Job(b"")] * 4)
    jobs = {job.descriptor: job for job in client.dequeue(DequeueRequest(queue, 4))}
    client.cancel(queue, [stops], running=True)
    ends = [Ack(each, permanent=True, claim_descriptor=jobs[each].claim_descriptor) for each in (fails, stops)]
    client.ack(queue, succeeded=[Ack(succeeds)], failed=ends)
    names = {"running": running, "succeeded": succeeds, "failed": fails, "cancelled": stops}
    chain = [ExtendedJob(b"", run_after_ms=ms, serialize_key=queue) for ms in (None, None, later_ms)]
    names["ready"], names["waiting"], _ = client.enqueue(queue, chain)
    return {**names, "scheduled": client.enqueue(queue, Job(b"", run_after_ms=later_ms))}


def test_states_have_one_word_on_every_command(shell: Shell, queue: str, client: Client) -> None:
    named = _one_in_every_state(client, queue)
    counts = {word: {"waiting": 2, "replayed": 0}.get(word, 1) for word in WORDS}
    (totals,) = rows("table", shell("queue", "stats", queue).out)
    assert {word: int(totals[word]) for word in WORDS} == counts
    stats = ("queue", "stats", queue, "--totals", "-o", "json")
    assert json.loads(shell(*stats).out) == [
        {"name": queue, "priority": "all", **dict(zip(KEYS, counts.values(), strict=True))}
    ]
    of_before = dict(zip(OLD_KEYS, (2, 2, 1, 1, 2), strict=True))
    assert json.loads(shell(*stats, "--json-keys", "old").out) == [{"queue": queue, "priority": "all", **of_before}]
    for word, descriptor in named.items():
        assert int(shell("job", "count", queue, "--state", word).out) == counts[word], word
        scanned = rows("table", shell("job", "scan", queue, "--state", word).out)
        assert [row["state"] for row in scanned] == [word] * counts[word]
        assert descriptor in [row["descriptor"] for row in scanned]
        assert re.search(rf"^state +{word}$", shell("job", "get", descriptor).out, re.MULTILINE)
        (listed,) = rows("table", shell("job", "get", descriptor, UNKNOWN, "-o", "table", code=5).out)
        assert listed["state"] == word


def _dead_letters(client: Client, queue: str, amount: int) -> list[str]:
    """Jobs of the queue that failed for good, and have letters in QUEUE-dead."""
    client.create_queue(f"{queue}-dead")
    client.update_queue(queue, PASSWORD, set={"dead_letter_queue": f"{queue}-dead"})
    failed = client.enqueue(queue, [Job(b"")] * amount)
    finish(client, queue, fail=amount, succeed=0)
    give_up_at = time.monotonic() + 60
    while any(info.moved_to is None for info in client.lookup(failed).values()):
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
    return failed


def test_a_failure_that_was_replayed_is_told_from_one_that_was_not(shell: Shell, client: Client) -> None:
    name = "letters_of_one"
    client.create_queue(name)
    first, second = _dead_letters(client, name, 2)
    letter = client.lookup([first])[first].moved_to
    done = shell("queue", "replay", name, "--limit", "1")
    assert done.out == "1\n"
    assert f"dead letters of {name} lie in {name}-dead: those that came from {name} go back" in done.err
    replayed, other = (first, second) if client.lookup([first])[first].replayed_to else (second, first)
    new = client.lookup([replayed])[replayed].replayed_to
    assert client.lookup([new])[new].origin is not None
    (totals,) = rows("table", shell("queue", "stats", name).out)
    assert [totals[word] for word in ("failed", "replayed", "ready")] == ["1", "1", "1"]
    assert shell("job", "count", name, "--state", "replayed").out == "1\n"
    assert shell("job", "count", name, "--state", "failed").out == "1\n"
    (scanned,) = rows("table", shell("job", "scan", name, "--state", "replayed").out)
    assert (scanned["descriptor"], scanned["state"]) == (replayed, "replayed")
    page = shell("job", "get", replayed).out
    assert re.search(r"^state +replayed$", page, re.MULTILINE)
    assert re.search(rf"^replayed as +{new}$", page, re.MULTILINE)
    assert json.loads(shell("job", "get", replayed, "-o", "json").out)[0]["replayed_to"] == new
    assert f"left alone: {replayed}: it is replayed" in shell("job", "retry", replayed, code=5).err
    assert shell("job", "retry", name, "--all").out == "1\n"
    assert client.lookup([other])[other].state is JobState.PENDING
    assert letter is not None
    assert client.count(JobFilter(f"{name}-dead", JobState.PENDING)) == 0
    assert shell("queue", "replay", f"{name}-dead").out == "0\n"


def test_only_the_letters_of_one_queue_go_back(shell: Shell, client: Client) -> None:
    for name in ("letters_a", "letters_b"):
        client.create_queue(name)
    _dead_letters(client, "letters_a", 2)
    client.update_queue("letters_b", PASSWORD, set={"dead_letter_queue": "letters_a-dead"})
    client.enqueue("letters_b", Job(b""))
    finish(client, "letters_b", fail=1, succeed=0)
    give_up_at = time.monotonic() + 60
    while client.count(JobFilter("letters_a-dead", JobState.PENDING)) < 3:
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
    assert shell("queue", "replay", "letters_a-dead", "--from", "letters_b", "--dry-run").out.startswith("1\n")
    assert shell("queue", "replay", "letters_a", "--state", "pending").out == "2\n"
    assert client.count(JobFilter("letters_a-dead", JobState.PENDING)) == 1


def test_a_job_whose_letter_runs_is_left_alone_by_a_retry(shell: Shell, client: Client) -> None:
    name = "letters_that_run"
    client.create_queue(name)
    (failed,) = _dead_letters(client, name, 1)
    (letter,) = client.dequeue(DequeueRequest(f"{name}-dead", 1))
    for words in ([failed], [name, "--all"]):
        refused = shell("job", "retry", *words, code=5 if words == [failed] else 0)
        assert f"left alone: {failed}: its dead letter runs now, {letter.descriptor}" in refused.err
        assert refused.out == "0\n"


def test_many_jobs_are_counted_as_the_servers_last_did(
    shell: Shell, queue: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    _one_in_every_state(client, queue)
    monkeypatch.setattr(job_states, "MOST_LOOKED_AT", 0)

    def are_counted() -> bool:
        (totals,) = rows("table", shell("queue", "stats", queue).out)
        return [totals[word] for word in ("waiting", "failed", "cancelled")] == ["2", "1", "1"]

    give_up_at = time.monotonic() + 60
    while not are_counted():
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
    assert int(shell("job", "count", queue, "--state", "cancelled").out) == 1
    assert int(shell("job", "count", queue, "--state", "failed").out) == 1


def test_the_words_of_the_wire_go_on_working(shell: Shell, queue: str, client: Client) -> None:
    named = _one_in_every_state(client, queue)

    def count(*arguments: str) -> int:
        return int(shell("job", "count", queue, "--state", *arguments).out)

    assert [count("pending"), count("pending", "--future")] == [2, 2]
    assert [count("IN_PROGRESS"), count("in-progress"), count("Succeeded")] == [1, 1, 1]
    found = rows("jsonl", shell("job", "scan", queue, "--state", "pending", "-o", "jsonl").out)
    assert {row["descriptor"]: row["state"] for row in found} == dict.fromkeys(
        (named["ready"], named["waiting"]), "pending"
    )
    (stopped,) = rows("json", shell("job", "scan", queue, "--state", "cancelled", "-o", "json").out)
    assert (stopped["state"], stopped["cancelled"]) == ("failed", True)
    assert (
        "allowed: scheduled, ready, waiting, running, succeeded"
        in shell("job", "count", queue, "--state", "done", code=2).err
    )


def test_stats_of_a_queue_with_jobs_of_one_priority_are_one_row(shell: Shell, queue: str, client: Client) -> None:
    assert [row["priority"] for row in rows("table", shell("queue", "stats", queue).out)] == ["all"]
    client.enqueue(queue, [Job(b"", 2)] * 3)
    (row,) = rows("table", shell("queue", "stats", queue).out)
    assert (row["priority"], row["ready"]) == ("all", "3")


def test_stats_of_many_queues_line_up(shell: Shell, queue: str, client: Client) -> None:
    shell("queue", "create", "short", "mail_" + "x" * 40)
    client.enqueue(queue, [Job(b"", 1, 2**52)] * 12)
    heading, *lines = shell("queue", "stats", "short", queue, "mail_" + "x" * 40).out.splitlines()
    ends = [match.end() for match in re.finditer(r"\S+", heading)][2:]
    assert len(lines) == 3
    for line in lines:
        assert [match.end() for match in re.finditer(r"\S+", line)][2:] == ends
    for name in ("short", "mail_" + "x" * 40):
        shell("queue", "delete", name, "--yes", stdin=PASSWORD)


def test_stats_before_an_unknown_queue_are_shown(shell: Shell, queue: str) -> None:
    result = shell("queue", "stats", queue, "nowhere", code=1)
    assert [row["queue"] for row in rows("table", result.out)] == [queue]
    assert "nowhere" in result.err


def test_a_table_on_a_terminal_fits_its_width(address: str, client: Client, tmp_path: Path) -> None:
    client.create_queue("fits")
    (made,) = client.enqueue("fits", [Job(b"x" * 500, 1, 2**52, custom_status="why " * 100)])
    for width in (80, 120, 160):
        terminal = Terminal(
            tmp_path, address, "job", "scan", "fits", "--state", "scheduled", "--color", "never", columns=width
        )
        assert terminal.ended() == 0
        lines = terminal.shown.splitlines()
        assert max(map(len, lines)) <= width, lines
        assert made in lines[1]
        assert "why why" in lines[1]
    client.delete_queue("fits", PASSWORD)


def test_stats_and_settings_fit_a_terminal(address: str, client: Client, shell: Shell, tmp_path: Path) -> None:
    name = "fits_" + "x" * 30
    client.create_queue(name)
    terminal = Terminal(tmp_path, address, "queue", "stats", name, "--color", "never", columns=90)
    assert terminal.ended() == 0
    heading, line = terminal.shown.splitlines()
    assert max(len(heading), len(line)) <= 90
    assert line.startswith(name)
    assert {"READY", "RUNNING", "FAILED"} <= set(heading.split())
    terminal = Terminal(tmp_path, address, "queue", "stats", name, "--color", "never", columns=112)
    assert terminal.ended() == 0
    # These stand in place of PRIORITY, which is "all".
    assert {"CANCELLED", "REPLAYED"} < set(terminal.shown.split("\n")[0].split())
    why = "the provider is down " * 10
    shell("queue", "pause", name, "--why", why, PINLATER_ADMIN_PASSWORD=PASSWORD)
    terminal = Terminal(tmp_path, address, "queue", "show", name, columns=90)
    assert terminal.ended() == 0
    for word in (why.strip(), "max_jobs_per_second", "dead_letter_queue"):
        assert word in terminal.shown
    client.delete_queue(name, PASSWORD)


def test_stats_of_many_queues_are_in_order(shell: Shell, queue: str) -> None:
    shell("queue", "create", "a_queue")
    found = rows("jsonl", shell("queue", "stats", queue, "a_queue", "-o", "jsonl").out)
    assert [(row["name"], row["priority"]) for row in found] == [(q, p) for q in (queue, "a_queue") for p in (1, 2, 3)]
    shell("queue", "create", "mq2", "mq10")
    listed = [row["name"] for row in rows("jsonl", shell("queue", "stats", "-o", "jsonl").out)]
    assert listed == sorted(listed, key=queue_order)
    assert listed.index("mq2") < listed.index("mq10")
    assert [name for name in shell("queue", "list").out.split() if name.startswith("mq")] == ["mq2", "mq10"]
    for name in ("a_queue", "mq2", "mq10"):
        shell("queue", "delete", name, "--yes", stdin=PASSWORD)


def test_a_queue_may_have_dashes_in_its_name(shell: Shell, client: Client) -> None:
    shell("queue", "create", "mail-2", "mail-2-dead")
    shell("queue", "set", "mail-2", "dead_letter_queue=mail-2-dead", PINLATER_ADMIN_PASSWORD=PASSWORD)
    one, two = client.enqueue("mail-2", [Job(b"1"), Job(b"2")])
    assert one.startswith("mail-2:s")
    jobs = client.dequeue(DequeueRequest("mail-2", 1, wait_ms=1))
    assert client.ack("mail-2", failed=[Ack(jobs[0].descriptor, permanent=True)]) == [AckOutcome.FAILED]
    assert [row["descriptor"] for row in rows("json", shell("job", "get", one, two, "-o", "json").out)] == [one, two]
    assert client.cancel([two]) == {two: CancelOutcome.CANCELLED}
    (row,) = rows("table", shell("queue", "stats", "mail-2").out)
    assert (row["queue"], row["failed"]) == ("mail-2", "1")
    for name in ("mail-2", "mail-2-dead"):
        shell("queue", "delete", name, "--yes", PINLATER_ADMIN_PASSWORD=PASSWORD)

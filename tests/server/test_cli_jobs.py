"""`pinlater queue` and `pinlater job`, each command in each format, as a shell sees them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from pinlater.data_folder.password import hash_password
from pinlater.model import queue_order
from pinlater.redaction import MASK
from tests.server.commands import Shell
from tests.server.running import running
from tests.server.terminal import Terminal

PASSWORD = "correct horse"
UNKNOWN = "mail:s1:p1:1790000000000000"
FORMATS = ["table", "json", "jsonl"]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("served")
    with running(folder, "--admin-password-hash", hash_password(PASSWORD)) as server:
        yield f"127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Client]:
    with Client(address) as made:
        yield made


@pytest.fixture
def queue(client: Client, request: pytest.FixtureRequest) -> str:
    """A queue of the test's own."""
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)[-64:]
    client.create_queue(name)
    return name


@pytest.fixture
def shell(address: str, tmp_path: Path) -> Shell:
    return Shell(tmp_path, address)


def rows(format: str, text: str) -> list[dict[str, Any]]:
    """The rows of any format; a table's are texts."""
    if format == "json":
        return list(json.loads(text))
    if format == "jsonl":
        return [json.loads(line) for line in text.splitlines()]
    lines = text.splitlines()
    names = lines[0].lower().split() if lines else []
    return [dict(zip(names, line.split(), strict=False)) for line in lines[1:]]


def _finish(client: Client, queue: str, *, fail: int, succeed: int) -> None:
    jobs = client.dequeue(DequeueRequest(queue, fail + succeed))
    acks = [Ack(job.descriptor, "said so", permanent=True) for job in jobs]
    client.ack(queue, succeeded=acks[fail:], failed=acks[:fail])


# -- queues --------------------------------------------------------------------------------------------------------


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
    _finish(client, queue, fail=1, succeed=2)
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
    _finish(client, queue, fail=amount, succeed=0)
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
    _finish(client, "letters_b", fail=1, succeed=0)
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


# -- enqueue -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_enqueue_prints_descriptors(shell: Shell, queue: str, client: Client, format: str) -> None:
    out = shell("job", "enqueue", queue, "hello", "-o", format).out
    descriptor = out.strip() if format == "table" else rows(format, out)[0]["descriptor"]
    assert client.lookup([descriptor], include_body=True)[descriptor].body == b"hello"


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (["--file", "body.bin"], None),
        (["--file", "-"], b"\x00\xff\r\n"),
        (["-"], b"\x00\xff\r\n"),
        (["--body", "-"], b"\x00\xff\r\n"),
        ([], b"\x00\xff\r\n"),
    ],
)
def test_a_body_may_come_from_a_file_or_standard_input(
    shell: Shell, queue: str, client: Client, arguments: list[str], stdin: bytes | None
) -> None:
    (shell.folder / "body.bin").write_bytes(b"\x00\xff\r\n")
    descriptor = shell("job", "enqueue", queue, *arguments, stdin=stdin).out.strip()
    assert client.lookup([descriptor], include_body=True)[descriptor].body == b"\x00\xff\r\n"


@pytest.mark.parametrize("arguments", [[], ["-"], ["--file", "-"], ["--body", "-"]])
def test_empty_standard_input_is_no_body(shell: Shell, queue: str, client: Client, arguments: list[str]) -> None:
    assert "standard input is empty" in shell("job", "enqueue", queue, *arguments, stdin=b"", code=2).err
    assert client.count(JobFilter(queue, JobState.PENDING)) == 0
    shell("job", "enqueue", queue, "--body", "", stdin=b"")
    (shell.folder / "empty").touch()
    shell("job", "enqueue", queue, "--file", "empty", stdin=b"")
    assert client.count(JobFilter(queue, JobState.PENDING)) == 2


def test_a_job_is_enqueued_as_asked(shell: Shell, queue: str, client: Client) -> None:
    at = ["--run-after", "2030-01-02T03:04:05Z"]
    arguments = ["--priority", "2", "--attempts", "7", "--status", "new", *at]
    descriptor = shell("job", "enqueue", queue, "--body=-x", *arguments).out.strip()
    info = client.lookup([descriptor], include_body=True)[descriptor]
    assert (info.body, info.priority, info.attempts_allowed, info.custom_status) == (b"-x", 2, 7, "new")
    assert info.run_after_ms == 1_893_553_445_000
    later = shell("job", "enqueue", queue, "x", "--run-after", "+1h").out.strip()
    info = client.lookup([later])[later]
    assert 3_590_000 < info.run_after_ms - info.created_at_ms <= 3_600_000


def test_lines_are_jobs_in_order(shell: Shell, queue: str, client: Client) -> None:
    lines = b"\n".join(b"line %d" % number for number in range(2_500))
    out = shell("job", "enqueue", queue, "--lines", stdin=b"\n" + lines + b"\r\n\n").out
    descriptors = out.split()
    assert len(descriptors) == len(set(descriptors)) == 2_500
    picked = [descriptors[number] for number in (0, 999, 1_000, 2_499)]
    found = client.lookup(picked, include_body=True)
    assert [found[each].body for each in picked] == [b"line 0", b"line 999", b"line 1000", b"line 2499"]


def test_lines_that_were_stored_before_an_error_are_counted(shell: Shell, queue: str, client: Client) -> None:
    stdin = b"short\n" * 1_000 + b"x" * 1_500_000 + b"\n"
    failed = shell("job", "enqueue", queue, "--lines", stdin=stdin, code=2)
    assert "BODY_TOO_LARGE" in failed.err
    assert "1,000 jobs enqueued before that" in failed.err
    assert len(failed.out.split()) == 1_000 == client.count(JobFilter(queue, JobState.PENDING))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["a", "--file", "b"], "one of"),
        (["a", "--lines"], "--lines"),
        (["--file", "missing.txt"], "missing.txt"),
        (["a", "--run-after", "tomorrow"], "ISO time"),
        (["a", "--run-after", "1790000005"], "'1790000005' is a bare number; allowed: an ISO time"),
        (["a", "--run-after", "1790000005000"], "'1790000005000' is a bare number; allowed: an ISO time"),
        (["a", "--timeout", "soon"], "duration"),
        (["a", "--attempts", "99999999999"], "2147483647"),
        (["a", "--server", "host:port"], "HOST:PORT"),
        (["a", "--cluster", "nowhere"], "clusters.toml"),
    ],
)
def test_a_wrong_command_line_is_explained(shell: Shell, queue: str, arguments: list[str], says: str) -> None:
    assert says in shell("job", "enqueue", queue, *arguments, code=2, PINLATER_SERVER=None).err


# -- looking -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_get_shows_jobs_and_names_what_is_missing(shell: Shell, queue: str, client: Client, format: str) -> None:
    one, two = client.enqueue(queue, [Job(b"1", custom_status="two words"), Job(b"2", attempts_allowed=5)])
    result = shell("job", "get", "-", two, UNKNOWN, "-o", format, stdin=f"{one}\n\n", code=5)
    assert [row["descriptor"] for row in rows(format, result.out)] == [one, two]
    assert [row["state"] for row in rows(format, result.out)] == ["ready" if format == "table" else "pending"] * 2
    assert "two words" in result.out
    assert ("0 of 5" if format == "table" else '"attempts_allowed": 5, "attempts_remaining": 5') in result.out
    assert f"not found: {UNKNOWN}" in result.err


ENVELOPE = (
    b"PINLATER/1 application/json\n"
    + json.dumps(
        {
            "job": "resize",
            "args": ["a.jpg", "hunter2"],
            "kwargs": {"size": 200},
            "headers": {"pinlater-secret": "1"},
        }
    ).encode()
)


def test_one_job_is_shown_with_all_that_is_known_of_it(shell: Shell, queue: str, client: Client) -> None:
    one = client.enqueue(queue, Job(ENVELOPE, attempts_allowed=3, custom_status="new"))
    (job,) = client.dequeue(DequeueRequest(queue, 1))
    client.ack(queue, failed=[Ack(one, "\nTraceback:\n  boom \x1b[2J", retry_delay_ms=3_600_000)])
    lines = shell("job", "get", one).out.splitlines()
    shown = {line[:15].strip(): line[15:] for line in lines if line[0] != " "}
    assert (shown["descriptor"], shown["queue"], shown["state"]) == (one, queue, "scheduled")
    assert (shown["attempts"], shown["type"]) == ("1 of 3", "resize")
    assert re.fullmatch(r"20\S+Z  \(in 59m\d+s\)|20\S+Z  \(in 1h\)", shown["run after"])
    assert re.fullmatch(r"20\S+Z  \(\S+( ago)?\)", shown["created"])
    assert "claimed" not in shown
    status = lines.index("status")
    assert lines[status + 1 : status + 4] == ["  new", "  Traceback:", r"    boom \x1b[2J"]
    arguments = lines.index("arguments")
    assert lines[arguments + 1 :] == ['  0 = "a.jpg"', f'  1 = "{MASK}"', "  size = 200"]
    assert job.claim_descriptor not in "".join(lines)


def test_a_body_that_is_not_the_frameworks_is_shown_as_its_text(shell: Shell, queue: str, client: Client) -> None:
    text, long, binary = client.enqueue(queue, [Job(b"a\nb"), Job(b"x\n" * 1_000), Job(b"\xff")])
    assert shell("job", "get", text).out.splitlines()[-3:] == [f"{'body':15}3 bytes", "  a", "  b"]
    assert f"{'body':15}2,000 bytes; --body writes all of it" in shell("job", "get", long).out
    assert shell("job", "get", binary).out.splitlines()[-1] == f"{'body':15}1 byte, no text; --body writes them"


def test_json_has_all_that_is_known_of_a_job(shell: Shell, queue: str, client: Client) -> None:
    client.enqueue(queue, Job(ENVELOPE, attempts_allowed=11))
    (job,) = client.dequeue(DequeueRequest(queue, 1))
    client.ack(queue, succeeded=[Ack(job.descriptor)])
    (row,) = rows("json", shell("job", "get", job.descriptor, "--body", "-o", "json").out)
    info = client.lookup([job.descriptor])[job.descriptor]
    assert (row["attempts_remaining"], row["attempts_allowed"], row["crashes"]) == (11, 11, 0)
    assert (row["claimed_at_ms"], row["finished_at_ms"]) == (info.claimed_at_ms, info.finished_at_ms)
    assert row.keys().isdisjoint(("claim_expires_at_ms", "origin", "moved_to"))
    assert (row["type"], row["args"], row["kwargs"]) == ("resize", ["a.jpg", MASK], {"size": 200})


def test_a_scan_shows_what_jobs_do(shell: Shell, queue: str, client: Client) -> None:
    plain = b'{"to": "' + b"x" * 80 + b'"}'
    later, first = client.enqueue(queue, [Job(plain, run_after_ms=2_000), Job(ENVELOPE, run_after_ms=1_000)])
    table = shell("job", "scan", queue, "--state", "pending").out
    assert f"resize('a.jpg', {MASK}, size=200)" in table
    assert f"{plain.decode()[:57]}...  " in table.replace("\n", "  ")
    assert plain.decode() in shell("job", "scan", queue, "--state", "pending", "--body").out
    found = rows("jsonl", shell("job", "scan", queue, "--state", "pending", "--body", "-o", "jsonl").out)
    assert [(row["descriptor"], row["body"].encode()) for row in found] == [(later, plain), (first, ENVELOPE)]
    assert found[1]["type"] == "resize"
    assert "body" not in rows("json", shell("job", "scan", queue, "--state", "pending", "-o", "json").out)[0]


def test_of_a_long_status_a_table_shows_the_last_line(shell: Shell, queue: str, client: Client) -> None:
    client.enqueue(queue, Job(b"x", custom_status="Traceback\n  File 'a.py'\nValueError: boom\n"))
    (line,) = shell("job", "scan", queue, "--state", "pending").out.splitlines()[1:]
    assert line.endswith("  ... ValueError: boom")


def test_a_body_is_shown_as_text_or_base64_and_written_as_it_is(shell: Shell, queue: str, client: Client) -> None:
    text, binary, empty = client.enqueue(queue, [Job("grüße".encode()), Job(b"\xff\x00\n"), Job(b"")])
    found = rows("jsonl", shell("job", "get", text, binary, empty, "--body", "-o", "jsonl").out)
    assert [(row["body"], row["body_encoding"]) for row in found] == [
        ("grüße", "text"),
        ("/wAK", "base64"),
        ("", "text"),
    ]
    assert shell("job", "get", binary, "--body").raw == b"\xff\x00\n"
    assert "-o json" in shell("job", "get", text, binary, "--body", code=2).err
    assert "body" not in rows("json", shell("job", "get", text, "-o", "json").out)[0]


def test_bodies_beyond_one_answer_are_asked_for_again(shell: Shell, queue: str, client: Client) -> None:
    size = 1_000_000
    descriptors = [client.enqueue(queue, Job(b"%d" % (number % 10) * size)) for number in range(20)]
    out = shell("job", "get", "-", "--body", "-o", "jsonl", stdin="\n".join(descriptors)).out
    assert [row["body"] for row in rows("jsonl", out)] == [str(number % 10) * size for number in range(20)]


@pytest.mark.parametrize("format", FORMATS)
def test_scan_lists_jobs_over_pages(shell: Shell, queue: str, client: Client, format: str) -> None:
    jobs = [Job(b"%d" % number, run_after_ms=1_000 + number) for number in range(1_500)]
    descriptors = client.enqueue(queue, jobs)
    newest_first = descriptors[::-1]

    def listed(*arguments: str) -> list[str]:
        out = shell("job", "scan", queue, "--state", "pending", "-o", format, *arguments).out
        return [row["descriptor"] for row in rows(format, out)]

    assert listed("--all") == newest_first
    assert listed() == newest_first[:100]
    assert listed("--limit", "1200") == newest_first[:1_200]
    assert listed("--match", "^1[0-9]$") == newest_first[1_480:1_490]
    assert listed("--future") == []
    client.enqueue(queue, Job(b"later", run_after_ms=2**52))
    out = shell("job", "scan", queue, "--state", "scheduled", "-o", format).out
    assert [row["descriptor"] for row in rows(format, out)] == listed("--future")
    assert len(listed("--future")) == 1


@pytest.mark.parametrize("format", FORMATS)
def test_nothing_found_is_an_empty_answer(shell: Shell, queue: str, format: str) -> None:
    out = shell("job", "scan", queue, "--state", "failed", "-o", format).out
    assert out == {"table": "", "json": "[]\n", "jsonl": ""}[format]


@pytest.mark.parametrize(
    ("format", "expected"), [("table", "3\n"), ("json", '{"count": 3}\n'), ("jsonl", '{"count": 3}\n')]
)
def test_count(shell: Shell, queue: str, client: Client, format: str, expected: str) -> None:
    client.enqueue(queue, [Job(b"a1"), Job(b"a2", 2), Job(b"a3", 3), Job(b"b", 1), Job(b"a4", 1, 2**52)])
    assert shell("job", "count", queue, "--state", "pending", "--match", "^a", "-o", format).out == expected
    assert shell("job", "count", queue, "--state", "pending", "--future").out == "1\n"
    assert shell("job", "count", queue, "--state", "scheduled").out == "1\n"
    assert (
        "allowed: scheduled, ready, waiting, running, succeeded, failed, cancelled, replayed, pending, in_progress"
        in (shell("job", "count", queue, "--state", "done", code=2).err)
    )
    assert shell("job", "count", queue, "--state", "pending", "--priority", "1", "--partial").out == "2\n"


# -- changing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_retry_puts_failed_jobs_back(shell: Shell, queue: str, client: Client, format: str) -> None:
    client.enqueue(queue, [Job(b"")] * 5)
    _finish(client, queue, fail=5, succeed=0)
    out = shell("job", "retry", queue, "--limit", "2", "--attempts", "4", "--run-after", "+1h", "-o", format).out
    assert out == ("2\n" if format == "table" else '{"changed": 2}\n')
    later = client.scan(JobFilter(queue, JobState.PENDING, future=True)).jobs
    assert [info.attempts_remaining for info in later] == [4, 4]
    assert shell("job", "retry", queue, "--all").out == "3\n"
    assert shell("job", "retry", queue, "--all").out == "0\n"


def test_retry_takes_every_priority_unless_told_otherwise(shell: Shell, queue: str, client: Client) -> None:
    client.enqueue(queue, [Job(b"", 1), Job(b"", 2), Job(b"", 3)])
    _finish(client, queue, fail=3, succeed=0)
    assert shell("job", "retry", queue, "--priority", "2").out == "1\n"
    assert shell("job", "retry", queue).out == "2\n"


@pytest.mark.parametrize("format", FORMATS)
def test_delete_removes_jobs_of_one_state_and_priority(shell: Shell, queue: str, client: Client, format: str) -> None:
    client.enqueue(queue, [Job(b"keep")] * 2 + [Job(b"drop")] * 2_100 + [Job(b"drop", 2)])
    arguments = ["job", "delete", queue, "--state", "pending", "--match", "^drop$", "-o", format]
    expected = "{}\n" if format == "table" else '{{"changed": {}}}\n'
    limited = shell(*arguments, "--limit", "50")
    assert limited.out == expected.format(50)
    assert (
        "1 ready, scheduled or waiting job of other priorities is left alone; --priority all means them too"
        in limited.err
    )
    assert "of other priorities" not in shell(*arguments, "--all", "--priority", "1", "--dry-run").err
    assert shell(*arguments, "--all").out == expected.format(2_050)
    assert client.count(JobFilter(queue, JobState.PENDING)) == 3


@pytest.mark.parametrize("format", FORMATS)
def test_cancel_says_what_became_of_each(shell: Shell, queue: str, client: Client, format: str) -> None:
    client.create_queue("mail")
    first, second, third, fourth = client.enqueue(queue, [Job(b"")] * 4)
    _finish(client, queue, fail=0, succeed=1)
    client.dequeue(DequeueRequest(queue, 1))
    arguments = ["job", "cancel", first, second, UNKNOWN, "-", "-o", format]
    out = shell(*arguments, stdin=f"{third}\n{fourth}\n", code=5).out
    assert [(row["descriptor"], row["outcome"].upper()) for row in rows(format, out)] == [
        (first, "ENDED"),
        (second, "IN_PROGRESS"),
        (UNKNOWN, "NOT_FOUND"),
        (third, "CANCELLED"),
        (fourth, "CANCELLED"),
    ]
    pending = client.enqueue(queue, Job(b""))
    shell("job", "cancel", pending, "-o", format)


def test_what_is_no_descriptor_is_not_found_and_the_others_are_cancelled(
    shell: Shell, queue: str, client: Client
) -> None:
    good = client.enqueue(queue, [Job(b"")] * 2)
    strange = ["x", "", "a b:s1:p1:1", f"{queue}:s1:p1:x"]
    result = shell("job", "cancel", strange[0], good[0], *strange[1:], good[1], "-o", "jsonl", code=5)
    assert result.err.count("which is no descriptor") == len(strange)
    out = result.out
    assert [(row["descriptor"], row["outcome"]) for row in rows("jsonl", out)] == [
        (strange[0], "not_found"),
        (good[0], "cancelled"),
        *((text, "not_found") for text in strange[1:]),
        (good[1], "cancelled"),
    ]


def test_an_unknown_queue_is_named_with_what_helps(shell: Shell) -> None:
    assert "pinlater queue create nowhere" in shell("job", "enqueue", "nowhere", "x", code=1).err


def test_what_is_not_there_is_one_exit_code_whatever_it_is(shell: Shell) -> None:
    for command in (
        ("queue", "show", "nowhere"),
        ("queue", "stats", "nowhere"),
        ("job", "count", "nowhere", "--state", "pending"),
        ("job", "scan", "nowhere", "--state", "pending"),
        ("shard", "drain", "nowhere", "--no-wait"),
        ("shard", "drain", "nowhere", "--undo"),
        ("shard", "give-up", "nowhere", "--yes"),
        ("flow", "status", "nowhere"),
        ("schedule", "show", "nowhere"),
    ):
        assert "nowhere" in shell(*command, code=1, PINLATER_ADMIN_PASSWORD=PASSWORD).err, command


# -- by the status ---------------------------------------------------------------------------------------------------


def _fail_with(client: Client, queue: str, *statuses: str) -> None:
    client.enqueue(queue, [Job(status.encode()) for status in statuses])
    jobs = client.dequeue(DequeueRequest(queue, len(statuses)))
    client.ack(queue, failed=[Ack(job.descriptor, job.body.decode(), permanent=True) for job in jobs])


@pytest.mark.parametrize("format", FORMATS)
def test_jobs_are_listed_by_what_their_status_says(shell: Shell, client: Client, queue: str, format: str) -> None:
    _fail_with(client, queue, "TimeoutError: slow", "ValueError: no", "TimeoutError: far")
    options = ["--state", "failed", "--status-match", "^Timeout", "-o", format]
    found = rows(format, shell("job", "scan", queue, *options).out)
    assert len(found) == 2
    assert len(rows(format, shell("job", "scan", queue, *options, "--match", "slow").out)) == 1
    assert len(rows(format, shell("job", "scan", queue, *options, "--limit", "1").out)) == 1
    later = ["--state", "scheduled", "--status-match", "^", "-o", "jsonl"]
    assert rows("jsonl", shell("job", "scan", queue, *later).out) == []


def test_jobs_are_changed_by_what_their_status_says(shell: Shell, client: Client, queue: str) -> None:
    _fail_with(client, queue, *["TimeoutError"] * 5, *["ValueError"] * 3)
    by_status = ["--status-match", "^Timeout"]
    assert json.loads(shell("job", "retry", queue, *by_status, "--dry-run", "-o", "json").out)["changed"] == 5
    assert shell("job", "retry", queue, *by_status, "--limit", "2").out == "2\n"
    assert shell("job", "delete", queue, "--state", "failed", *by_status, "--yes").out == "3\n"
    assert shell("job", "delete", queue, "--state", "failed", "--status-match", "nothing", "--yes").out == "0\n"
    deleted = [each for each in client.audit(limit=100) if each.target == queue and each.action == "delete_jobs"]
    assert [each.detail for each in deleted] == [
        "3 jobs, FAILED or CANCELLED or REPLAYED, priority 1, status matches ^Timeout"
    ]
    assert shell("job", "cancel", "--queue", queue, "--status-match", "^Timeout", "--older-than", "1ms").out == "2\n"
    assert client.count(JobFilter(queue, JobState.FAILED)) == 3


@pytest.mark.parametrize("option", ["--match", "--status-match"])
@pytest.mark.parametrize("command", ["cancel --queue", "retry", "delete --state pending", "scan --state pending"])
def test_an_empty_pattern_does_not_mean_all_jobs(
    shell: Shell, client: Client, queue: str, command: str, option: str
) -> None:
    client.enqueue(queue, [Job(b"x")])
    done = shell("job", *command.split(), queue, option, "", code=2)
    assert f"to mean all, leave {option} out" in done.err
    assert client.count(JobFilter(queue, JobState.PENDING)) == 1


def test_no_descriptors_on_standard_input_cancel_nothing(shell: Shell, client: Client, queue: str) -> None:
    client.enqueue(queue, [Job(b"x")])
    assert shell("job", "cancel", "-", stdin="").out == ""
    assert client.count(JobFilter(queue, JobState.PENDING)) == 1


def test_a_pattern_of_a_status_that_is_none_is_named(shell: Shell, queue: str) -> None:
    failed = shell("job", "retry", queue, "--status-match", "(", code=2)
    assert failed.err.startswith("pinlater: --status-match is")


# -- jobs by descriptor --------------------------------------------------------------------------------------------


def _one_of_each(client: Client, queue: str) -> tuple[str, str, str]:
    """A failed job, a ready one, and one that is not there."""
    failed, ready = client.enqueue(queue, [Job(b"fails", 1, None, 1), Job(b"waits", 2)])
    client.dequeue(DequeueRequest(queue, 1))
    assert client.ack(queue, failed=[Ack(failed)]) == [AckOutcome.FAILED]
    return failed, ready, f"{queue}:s1:p1:1790000000000000"


def test_retry_of_a_named_job_is_of_that_job_alone(shell: Shell, queue: str, client: Client) -> None:
    one, two = client.enqueue(queue, [Job(b"", 1, None, 1)] * 2)
    for job in client.dequeue(DequeueRequest(queue, 2)):
        client.ack(queue, failed=[Ack(job.descriptor)])
    result = shell("job", "retry", one, "--attempts", "3")
    assert (result.out, result.err) == ("1\n", "")
    found = client.lookup([one, two])
    assert (found[one].state, found[one].attempts_remaining) == (JobState.PENDING, 3)
    assert found[two].state is JobState.FAILED


@pytest.mark.parametrize("through_stdin", [False, True])
def test_retry_names_what_it_leaves_alone(shell: Shell, queue: str, client: Client, through_stdin: bool) -> None:
    failed, ready, missing = _one_of_each(client, queue)
    named = (failed, ready, missing, "mail:nothing")
    words, stdin = (("-",), "\n".join(named)) if through_stdin else (named, None)
    result = shell("job", "retry", *words, stdin=stdin, code=5)
    assert result.out == "1\n"
    for text in (f"left alone: {ready}: it is ready", f"not found: {missing}", "not found: mail:nothing"):
        assert text in result.err
    assert failed not in result.err


def test_a_dry_run_of_named_jobs_changes_nothing(shell: Shell, queue: str, client: Client) -> None:
    failed, *_ = _one_of_each(client, queue)
    found = json.loads(shell("job", "retry", failed, "--dry-run", "-o", "json").out)
    assert (found["changed"], [each["descriptor"] for each in found["samples"]]) == (1, [failed])
    assert client.lookup([failed])[failed].state is JobState.FAILED


@pytest.mark.parametrize("format", FORMATS)
def test_delete_of_named_jobs_in_any_state(shell: Shell, queue: str, client: Client, format: str) -> None:
    failed, ready, missing = _one_of_each(client, queue)
    assert shell("job", "delete", ready, "--state", "failed", code=5).out == "0\n"
    result = shell("job", "delete", failed, ready, missing, "-o", format, code=5)
    assert result.out == ("2\n" if format == "table" else '{"changed": 2}\n')
    assert client.lookup([failed, ready]) == {}


def test_named_jobs_take_no_filter_and_no_queue_beside_them(shell: Shell, queue: str) -> None:
    for line in (
        ("retry", UNKNOWN, "--newer-than", "2h"),
        ("retry", UNKNOWN, "--limit", "1"),
        ("delete", UNKNOWN, "--priority", "1"),
    ):
        assert "descriptors name each job" in shell("job", *line, code=2).err
    for words in ((queue, UNKNOWN), (queue, queue), (queue, "-")):
        assert "give one QUEUE, or descriptors" in shell("job", "retry", *words, code=2).err
    assert "--state" in shell("job", "delete", queue, code=2).err
    assert "QUEUE" in shell("job", "retry", code=2).err


def test_delete_of_a_named_job_asks_on_a_terminal(address: str, queue: str, client: Client, tmp_path: Path) -> None:
    _, ready, _ = _one_of_each(client, queue)
    for answer, code, left in (("n", 1, 1), ("y", 0, 0)):
        terminal = Terminal(tmp_path, address, "job", "delete", ready)
        terminal.until("Delete 1 job? [y/N]")
        terminal.type(f"{answer}\r")
        assert terminal.ended() == code
        assert len(client.lookup([ready])) == left

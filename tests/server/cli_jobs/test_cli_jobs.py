"""`pinlater job enqueue | get | scan | count`, each in each format, as a shell sees them."""

from __future__ import annotations

import json
import re

import pytest

from pinlater import (
    Ack,
    Client,
    DequeueRequest,
    Job,
    JobFilter,
    JobState,
)
from pinlater.redaction import MASK
from tests.server.cli_jobs.rows import FORMATS, UNKNOWN, rows
from tests.server.commands import Shell

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


def test_a_state_that_is_missing_is_asked_for_with_its_words(shell: Shell, queue: str) -> None:
    for command in ("scan", "count"):
        assert "'--state'. One of scheduled, ready, waiting" in shell("job", command, queue, code=2).err


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

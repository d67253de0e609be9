"""Histories as files: what is read, what is refused by its line, and what is merged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pinlater.history.call_events import CallBegin, CallEnd, CallError, Event, Note
from pinlater.history.history_files import HistoryInvalid, files_in, merged_history, read_history, tolerance_of
from pinlater.history.history_folder import folder_recorder
from pinlater.history.recorder import event_line, header

NAME = "mail:s1:p1:1"
EVENTS: list[Event] = [
    CallBegin(1, "a", 10.25, "enqueueJobs", {"request": {"queueName": "mail", "jobs": [{"body": "sha256:00"}]}}),
    CallEnd(1, 12.5, {"jobDescriptors": [NAME]}),
    CallBegin(2, "a", 13.0, "createQueue", {"name": "mail"}),
    CallEnd(2, 14.0),
    CallBegin(3, "b", 15.0, "dequeueJobs", {"request": {"queueName": "mail", "limit": 1}}),
    CallEnd(3, 16.0, None, CallError("OutcomeUnknown", "OUTCOME_UNKNOWN", "unknown", None, False), resent=True),
    Note("rollback", 17.0, "1", 9.0),
    Note("end", 18.0),
]


def written(path: Path, events: list[Event], tolerance_ms: float = 0) -> Path:
    path.write_bytes(header(tolerance_ms) + b"".join(map(event_line, events)))
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "run.jsonl", EVENTS, 2.5)
    sizes: list[int] = []
    assert list(read_history(path, sizes.append)) == EVENTS
    assert sum(sizes) == path.stat().st_size
    assert tolerance_of([path]) == 2.5


def test_an_answer_of_nothing_is_told_from_an_error_by_its_line() -> None:
    assert event_line(CallEnd(2, 14.0)) == b'{"call":2,"at_ms":14.0,"answer":null}\n'
    assert event_line(EVENTS[5]) == (
        b'{"call":3,"at_ms":16.0,"error":{"name":"OutcomeUnknown","reason":"OUTCOME_UNKNOWN","acksApplied":false},'
        b'"resent":true}\n'
    )


def test_half_a_line_at_the_end_is_what_a_crash_left(tmp_path: Path) -> None:
    path = written(tmp_path / "run.jsonl", EVENTS)
    whole = path.read_bytes()
    for cut in (1, 5, len(event_line(EVENTS[-1])) - 1):
        path.write_bytes(whole[:-cut])
        assert list(read_history(path)) == EVENTS[:-1]


def test_fields_of_newer_recorders_are_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path / "run.jsonl", [])
    path.write_bytes(path.read_bytes() + b'{"note": "end", "at_ms": 1, "why": {"x": []}}\n')
    assert list(read_history(path)) == [Note("end", 1.0)]


@pytest.mark.parametrize(
    ("broken", "number", "why"),
    [
        (b'{"call": 1, "at_ms": 2, "answer": nul}\n', 2, "invalid"),
        (b'{"call": "one", "at_ms": 2, "answer": null}\n', 2, "int"),
        (b'{"at_ms": 2}\n', 2, "neither `call` nor `note`"),
        (b'{"call": 1, "at_ms": 2, "method": "ackJobs"}\n', 2, "args"),
        (b'{"note": "end", "at_ms": 2}\n\n{"note": "end", "at_ms": 2}\n', 3, "truncated"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, broken: bytes, number: int, why: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(header(0) + broken)
    with pytest.raises(HistoryInvalid, match=rf"run.jsonl, line {number}: .*{why}"):
        list(read_history(path))


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b'{"note": "end", "at_ms": 2}\n', "no header"),
        (b'{"pinlater_history": 2}\n', "version 2"),
        (b"jobs\n", "malformed"),
    ],
)
def test_what_is_no_history_is_refused_at_its_first_line(tmp_path: Path, first: bytes, why: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(first)
    with pytest.raises(HistoryInvalid, match=rf"run.jsonl, line 1: .*{why}"):
        list(read_history(path))
    with pytest.raises(HistoryInvalid, match="line 1"):
        tolerance_of([path])


def test_an_empty_file_is_what_a_process_left_that_died_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.touch()
    assert list(read_history(path)) == []
    assert tolerance_of([path, written(tmp_path / "other.jsonl", [], 3)]) == 3


def test_files_are_merged_by_time_and_their_calls_stay_apart(tmp_path: Path) -> None:
    one = written(tmp_path / "one.jsonl", [CallBegin(1, "a", 1, "m", {}), CallEnd(1, 4), Note("end", 9)])
    two = written(tmp_path / "two.jsonl", [CallBegin(1, "b", 2, "m", {}), CallEnd(1, 3)], 7)
    merged = list(merged_history([one, two]))
    assert [each.at_ms for each in merged] == [1, 2, 3, 4, 9]
    numbers = [each.call for each in merged if not isinstance(each, Note)]
    assert numbers[0] == numbers[3] != numbers[1] == numbers[2]
    assert tolerance_of([one, two]) == 7


def test_a_folder_stands_for_its_histories(tmp_path: Path) -> None:
    with pytest.raises(HistoryInvalid, match="no history"):
        files_in([tmp_path])
    files = [written(tmp_path / name, []) for name in ("a.jsonl", "b.jsonl")]
    (tmp_path / "notes.txt").touch()
    assert files_in([tmp_path]) == files
    assert files_in([files[1], files[0]]) == files[::-1]


def test_a_process_and_its_fork_have_a_file_each(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pinlater.history.history_folder import folder_recorder\n"
        "recorder = folder_recorder(sys.argv[1]); recorder.note('parent')\n"
        "child = os.fork(); recorder.note('child' if child == 0 else 'after')\n"
        "if child: os.waitpid(child, 0)\n"
    )
    folder = tmp_path / "runs" / "one"
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, timeout=60)
    files = files_in([folder])
    notes = sorted([each.note for each in read_history(file) if isinstance(each, Note)] for file in files)
    assert notes == [["child"], ["parent", "after"]]
    assert [oct(path.stat().st_mode & 0o777) for path in (folder, *files)] == ["0o700", "0o600", "0o600"]


def test_recorders_of_one_folder_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert folder_recorder("runs") is folder_recorder(tmp_path / "runs")
    assert len(files_in([tmp_path / "runs"])) == 1


def test_a_recorder_that_finds_no_room_says_so_once_and_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = folder_recorder(tmp_path / "runs")
    recorder.note("before")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        recorder.note("lost")
        recorder.note("lost")
    recorder.note("after")
    (file,) = files_in([tmp_path / "runs"])
    assert [each.note for each in read_history(file) if isinstance(each, Note)] == ["before"]
    assert [record.message.count("cannot be judged") for record in caplog.records] == [1]

"""The file of the history: its bound, what goes first, kills, files that are torn or not ours, two processes."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from random import Random

import pytest

from pinlater.dashboard.history_file import (
    HOUR,
    MAX_BYTES,
    MINUTES_KEPT,
    VERSION,
    HistoryFile,
    NotOurs,
    bytes_of,
    files_of,
)
from pinlater.dashboard.history_store import HistoryStore
from pinlater.dashboard.queue_record import QueueRecord, pack
from tests.stores.process import dies_with_us

FIRST_HOUR = 497_000
MIB = 2**20


def various(number: int, events: int = 500, words: int = 0) -> list[bytes]:
    """Packed records that cannot be made much smaller."""
    rng = Random(number)
    found = []
    for _ in range(number):
        record = QueueRecord(*(rng.randrange(events) for _ in range(5)), *(rng.randrange(200) for _ in range(5)))
        record.waits = {rng.randrange(70): rng.randrange(1, 9) for _ in range(12)}
        record.runs = {rng.randrange(70): rng.randrange(1, 9) for _ in range(12)}
        record.reasons = {f"{rng.getrandbits(240):060x}": 1 for _ in range(words)}
        found.append(pack(record))
    return found


def fill(file: HistoryFile, hour: int, queues: int, records: list[bytes]) -> None:
    """An hour in which each queue does something in each minute."""
    names = [f"queue-{number}" for number in range(queues)]
    for minute in range(hour * HOUR, (hour + 1) * HOUR):
        of_minute = {name: records[(at * 31 + minute * 17) % len(records)] for at, name in enumerate(names)}
        file.write_minutes({minute: {"": records[minute % len(records)], **of_minute}}, {"counted_ms": b"1"})
    file.put_away(hour + 1)


@pytest.mark.slow
def test_two_thousand_queues_that_are_all_busy_fit_into_64_mib(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    file = HistoryFile(path, is_writer=True)
    records, most = various(5_000, words=4), 0
    for hour in range(FIRST_HOUR, FIRST_HOUR + 4):
        fill(file, hour, 2_000, records)
        most = max(most, bytes_of(path))
    assert 40 * MIB < most <= MAX_BYTES
    assert len(file.minutes("", FIRST_HOUR, FIRST_HOUR + 3)) == 4 * HOUR  # all of them together stay
    assert len(file.minutes("queue-7", FIRST_HOUR + 3, FIRST_HOUR + 3)) == HOUR
    assert file.kept("queue-7").minute > FIRST_HOUR * HOUR
    file.close()


def test_near_the_bound_older_minutes_and_those_of_less_busy_queues_go_first(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    file = HistoryFile(path, is_writer=True, max_bytes=12 * MIB)
    calm, busy = various(200, events=3), various(200, events=100_000)
    names = [f"queue-{number}" for number in range(400)]
    for hour in range(FIRST_HOUR, FIRST_HOUR + 10):
        for minute in range(hour * HOUR, (hour + 1) * HOUR):
            chosen = {name: (busy if at % 2 else calm)[(at * 31 + minute * 17) % 200] for at, name in enumerate(names)}
            file.write_minutes({minute: {"": busy[0], **chosen}}, {})
        file.put_away(hour + 1)
        assert bytes_of(path) <= 12 * MIB
    kept = [file.kept(name).minute for name in names]
    last = (FIRST_HOUR + 9) * HOUR
    assert all(minute > FIRST_HOUR * HOUR for minute in kept[::2])
    assert sum(kept[::2]) > sum(kept[1::2])
    assert all(len(file.minutes(name, last // HOUR, last // HOUR)) == HOUR for name in names[1::2])
    assert len(file.minutes("", FIRST_HOUR, FIRST_HOUR + 9)) == 10 * HOUR
    file.close()


def test_what_is_older_than_its_time_goes_and_so_do_the_names_of_queues_that_are_gone(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path / "history.sqlite", is_writer=True)
    records = various(3)
    fill(file, FIRST_HOUR, 2, records)
    fill(file, FIRST_HOUR + MINUTES_KEPT // HOUR + 1, 1, records)
    assert file.minutes("queue-0", FIRST_HOUR, FIRST_HOUR) == {}
    assert FIRST_HOUR in file.hours("queue-1", 0, FIRST_HOUR)
    fill(file, FIRST_HOUR + 33 * 24, 1, records)
    assert file.hours("queue-1", 0, 2**31) == {}
    assert list(file.hours("queue-0", 0, 2**31)) == [FIRST_HOUR + 33 * 24]
    file.close()


WRITER = """
    import sys
    from pathlib import Path
    from pinlater.dashboard.history_file import HOUR, HistoryFile
    from pinlater.dashboard.queue_record import QueueRecord, pack
    file = HistoryFile(Path(sys.argv[1]), is_writer=True)
    minute = int(file.facts().get("counted", b"%d"))
    while True:
        minute += 1
        records = {f"q{n}": pack(QueueRecord(enqueued=n)) for n in range(50)}
        records[""] = pack(QueueRecord(enqueued=minute))
        file.write_minutes({minute: records}, {"counted": str(minute).encode()})
        if minute %% HOUR == HOUR - 1:
            file.put_away(minute // HOUR + 1)
        print(minute, flush=True)
"""


def test_a_writer_that_is_killed_at_any_time_leaves_whole_minutes_and_what_belongs_to_them(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    start = FIRST_HOUR * HOUR - 1
    told = start
    for number in range(6):
        process = subprocess.Popen(
            [*dies_with_us(), sys.executable, "-c", textwrap.dedent(WRITER % start), str(path)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        for _ in range(40 + 37 * number):
            told = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        process.stdout.close()
        process.wait(20)
    file = HistoryFile(path, is_writer=True)
    counted = int(file.facts()["counted"])
    assert counted >= told
    file.put_away(counted // HOUR + 2)
    found = file.minutes("", FIRST_HOUR, counted // HOUR + 1)
    assert {minute: record.enqueued for minute, record in found.items()} == {
        minute: minute for minute in range(start + 1, counted + 1)
    }
    assert len(file.minutes("q7", FIRST_HOUR, counted // HOUR + 1)) == len(found)
    file.close()


# -- files that cannot be used -----------------------------------------------------------------------------------------


def torn(path: Path) -> None:
    file = HistoryFile(path, is_writer=True)
    fill(file, FIRST_HOUR, 300, various(50))
    file.close()
    with path.open("r+b") as raw:
        raw.seek(3 * 8192 + 11)
        raw.write(b"\xff" * 40_000)


def text(path: Path) -> None:
    path.write_text("These are my notes, and no history.\n" * 400)


def of_others(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE mine (x)")
    database.commit()
    database.close()


def newer(path: Path) -> None:
    HistoryFile(path, is_writer=True).close()
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {VERSION + 1}")
    database.close()


@pytest.mark.parametrize("make", [torn, text, of_others, newer])
def test_a_file_that_is_torn_or_not_ours_is_set_aside(
    make: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.sqlite"
    make(path)  # type: ignore[operator]
    before = path.read_bytes()
    with pytest.raises(NotOurs):
        HistoryFile(path, is_writer=True)

    async def open_store() -> None:
        store = HistoryStore(path)
        await store.open()
        assert store.is_writer
        assert await store.write({1: {"": b"\x90"}}, {})
        await store.close()

    asyncio.run(open_store())
    assert "history_set_aside" in capsys.readouterr().out
    (aside,) = [each for each in tmp_path.iterdir() if each.name == "history.sqlite.broken-1"]
    assert aside.read_bytes() == before
    HistoryFile(path, is_writer=True).close()


def test_a_file_that_was_never_finished_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    path.touch(0o600)
    file = HistoryFile(path, is_writer=True)
    assert file.facts() == {}
    file.close()


def test_where_there_can_be_no_file_the_history_is_kept_in_memory_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async def keep() -> None:
        store = HistoryStore(tmp_path / "file" / "history.sqlite")
        await store.open()
        assert store.is_writer
        assert "cannot be written" in store.problem
        assert await store.write({1: {"": b"\x90"}}, {"x": b"y"})
        assert await store.facts() == {"x": b"y"}
        await store.close()

    asyncio.run(keep())


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "history.sqlite"
    file = HistoryFile(path, is_writer=True)
    fill(file, FIRST_HOUR, 2, various(2))
    assert {each.stat().st_mode & 0o077 for each in files_of(path) if each.exists()} == {0}
    file.close()


# -- two processes -----------------------------------------------------------------------------------------------------


async def test_one_process_writes_and_the_other_reads_until_its_turn_comes(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    first, second = HistoryStore(path), HistoryStore(path)
    await first.open()
    await second.open()
    assert (first.is_writer, second.is_writer) == (True, False)
    minute = FIRST_HOUR * HOUR
    await first.write({minute: {"": pack(QueueRecord(enqueued=1))}}, {"counted_ms": b"60"})
    await second.follow()
    assert second.recent == first.recent
    assert not await second.claim()
    await first.release()
    assert await second.claim()
    assert not await first.claim()
    assert await second.facts() == {"counted_ms": b"60"}
    assert minute in second.recent
    await first.close()
    await second.close()


async def test_the_hour_before_is_at_hand_also_where_the_new_one_has_no_minute_yet(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    file = HistoryFile(path, is_writer=True)
    fill(file, FIRST_HOUR, 2, various(3))
    file.close()
    store = HistoryStore(path)
    await store.open()
    assert sorted(store.recent) == list(range(FIRST_HOUR * HOUR, (FIRST_HOUR + 1) * HOUR))
    await store.close()

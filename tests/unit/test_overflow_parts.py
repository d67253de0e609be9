"""The server's id, who owns the file, where the owner is found, how large the file may be, and whose jobs are whose."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from types import SimpleNamespace

import pytest

from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.data_folder.identity import SERVER_FILE, RecordBroken, is_overflow_id, overflow_id, server_id
from pinlater.errors import EnqueueRejected, NothingStored
from pinlater.model import Job
from pinlater.overflow import overflow_addresses, ownership
from pinlater.overflow.descriptors import by_overflow, elsewhere, overflow_of
from pinlater.overflow.ownership import OwnerLock
from pinlater.overflow.store import JOB_BYTES, OVERFLOW_FULL, OverflowQuota
from pinlater.service.job_queries import fit_values
from tests.queues import make_queue
from tests.unit.overflow_rows import info

HERE = "mail:soABCDEFGH01:p1:1790000000000000"
THERE = "mail:so0123456789:p1:1790000000000000"
OLD = "mail:sold:p1:1790000000000000"


# -- the server's id ---------------------------------------------------------------------------------------------------


def test_a_server_has_one_id_for_good(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    made = server_id(folder)
    assert is_overflow_id(overflow_id(made))
    assert server_id(folder) == made
    assert json.loads((folder / SERVER_FILE).read_text()) == {"server": made}


def test_of_many_processes_at_once_one_makes_the_id(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(4) as pool:
        assert len(set(pool.map(server_id, [tmp_path] * 8))) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"server": "abc"}', '{"server": 7}'])
def test_a_broken_record_of_the_id_is_not_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / SERVER_FILE).write_text(text)
    with pytest.raises(RecordBroken, match=SERVER_FILE):
        server_id(tmp_path)
    assert (tmp_path / SERVER_FILE).read_text() == text


@pytest.mark.parametrize("shard_id", ["1", "old", "oabcdefghij", "oABCDEFGHIJK", "OABCDEFGHIJ"])
def test_other_ids_of_shards_are_none_of_an_overflow_shard(shard_id: str) -> None:
    assert not is_overflow_id(shard_id)


# -- who owns the file -------------------------------------------------------------------------------------------------


def test_one_has_the_lock_until_it_is_freed(tmp_path: Path) -> None:
    first, second = OwnerLock(tmp_path / "lock"), OwnerLock(tmp_path / "lock")
    assert first.take()
    assert first.take(), "it has it already"
    assert not second.take()
    first.free()
    assert second.take()
    second.free()
    second.free()


def test_the_owner_puts_up_where_it_is(tmp_path: Path) -> None:
    assert ownership.read_address(tmp_path) is None
    ownership.publish_address(tmp_path, "127.0.0.1:4711")
    assert ownership.read_address(tmp_path) == "127.0.0.1:4711"
    ownership.withdraw_address(tmp_path)
    ownership.withdraw_address(tmp_path)
    assert ownership.read_address(tmp_path) is None


@pytest.mark.parametrize("text", ["", "[]", '{"pid": 1}', '{"address": 7}'])
def test_a_broken_notice_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / ownership.ADDRESS_FILE).write_text(text)
    assert ownership.read_address(tmp_path) is None


def test_leases_tell_where_other_owners_are() -> None:
    old = {"overflow_id": "oA", "overflow_address": "a:1", "overflow_since_ms": 1, "overflow_jobs": 3}
    new = {"overflow_id": "oA", "overflow_address": "b:2", "overflow_since_ms": 2}
    described = ({}, old, new, old, {"overflow_id": "oB"}, {"overflow_id": 3})
    assert overflow_addresses(SimpleNamespace(more=each) for each in described) == {"oA": "b:2"}


# -- how large ---------------------------------------------------------------------------------------------------------


async def test_what_does_not_fit_is_refused_with_the_figures(tmp_path: Path) -> None:
    shard = SqliteShard(str(tmp_path / "a.db"), "1")
    await shard.open()
    try:
        await make_queue(shard, "mail", 1)
        room = OverflowQuota(tmp_path / "a.db", 600_000)
        await room.measure()
        empty = room.used
        assert 0 < empty < 260_000
        jobs = [Job(bytes(100_000))]
        await room.reserve(jobs)
        await shard.enqueue("mail", jobs, 1)
        assert room.used == empty + 100_000 + JOB_BYTES
        with pytest.raises(EnqueueRejected, match="allowed: 600000") as refused:
            await room.reserve([Job(bytes(500_000))])
        assert refused.value.reason == OVERFLOW_FULL
        assert empty + 90_000 < room.used != empty + 100_000 + JOB_BYTES, "it was measured anew"
    finally:
        await shard.close()


async def test_a_file_that_is_gone_cannot_be_measured(tmp_path: Path) -> None:
    with pytest.raises(NothingStored, match=r"gone\.db"):
        await OverflowQuota(tmp_path / "gone.db", 1).measure()


# -- whose jobs --------------------------------------------------------------------------------------------------------


def test_only_the_jobs_of_overflow_shards_are_told_apart() -> None:
    descriptors = [HERE, OLD, "nonsense :so", THERE]
    assert [overflow_of(each) for each in descriptors] == ["oABCDEFGH01", None, None, "o0123456789"]
    assert by_overflow(descriptors, str) == {"oABCDEFGH01": [HERE], "o0123456789": [THERE]}
    assert elsewhere(descriptors, str) == [OLD, "nonsense :so"]


def test_bodies_that_do_not_fit_an_answer_are_left_out_but_for_the_first() -> None:
    found = {name: info(name, body=bytes(1000)) for name in "abc"}
    fit_values(found.values(), 100)
    assert [bool(each.body) for each in found.values()] == [True, False, False]
    assert [each.body_left_out for each in found.values()] == [None, True, True]
    found = {name: info(name, body=bytes(1000)) for name in "abc"}
    fit_values(found.values(), 100_000)
    assert all(each.body for each in found.values())

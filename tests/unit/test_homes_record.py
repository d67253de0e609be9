"""The record of homes: which slot is whose, what moves with a change, and the text of it."""

from __future__ import annotations

from collections import Counter

import pytest

from pinlater.model import ExtendedJob
from pinlater.shards.keys.homes_record import (
    SLOTS,
    HomesRecord,
    HomeTable,
    parse_record,
    slot_of,
    slot_of_job,
    slot_of_schedule,
)


def test_a_record_survives_its_text() -> None:
    record = HomesRecord(("1", "3"), (("1", "2", "3"), ("1", "2")), is_opening=True, gone=("9",))
    assert parse_record(record.text()) == record


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"members":[],"before":[],"opening":false,"gone":[]}'])
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"record of homes|Expecting value"):
        parse_record(text)


def test_slots_are_spread_over_the_members() -> None:
    table = HomeTable(HomesRecord(("1", "2", "3", "4")))
    slots = Counter(table.places(slot).home for slot in range(SLOTS))
    assert sorted(slots) == ["1", "2", "3", "4"]
    assert all(900 < amount < 1_150 for amount in slots.values())


def test_only_what_the_new_member_takes_is_moving() -> None:
    before = HomeTable(HomesRecord(("1", "2", "3")))
    table = HomeTable(HomesRecord(("1", "2", "3", "4"), (("1", "2", "3"),), is_opening=True))
    moving = 0
    for slot in range(SLOTS):
        was, places = before.places(slot).home, table.places(slot)
        assert places.is_moving == (places.home != was)
        assert places.home in (was, "4")
        moving += places.is_moving
    assert 900 < moving < 1_150


def test_a_moved_slot_has_its_former_homes_the_newest_first_and_none_that_is_gone() -> None:
    history = (("1", "2"), ("2", "3"), ("1", "2", "3", "4"))
    record = HomesRecord(("5",), history, gone=("3",))
    table = HomeTable(record)
    seen = set()
    for slot in range(SLOTS):
        places = table.places(slot)
        homes = [HomeTable(HomesRecord(members)).places(slot).home for members in history]
        assert places == ("5", tuple(dict.fromkeys(home for home in homes if home != "3")), False)
        seen.add(places.former)
    assert {("1", "2"), ("2",)} <= seen


def test_the_serialize_key_decides_then_the_dedupe_key_then_the_send_id() -> None:
    both = ExtendedJob(b"", dedupe_key="d", serialize_key="s", send_id="i/1")
    assert slot_of_job("mail", both) == slot_of("sms", "", "s")
    assert slot_of_job("mail", ExtendedJob(b"", dedupe_key="d", send_id="i/1")) == slot_of("mail", "d", "")
    assert slot_of("mail", "d", "") != slot_of("sms", "d", "")
    assert slot_of("mail", "", "", "i/1") == slot_of("sms", "", "", "i/2") == slot_of("mail", "", "", "i")


def test_a_firing_lives_where_its_schedule_does() -> None:
    keys = [f"@schedule/nightly/{at_ms}" for at_ms in range(5)]
    assert {slot_of("mail", key, "") for key in keys} == {slot_of_schedule("nightly")}

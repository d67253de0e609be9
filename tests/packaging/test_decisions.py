"""The records of decisions: each is whole, has a number of its own, and stands in the index."""

from __future__ import annotations

from tests.packaging.decisions_index import FOLDER, decisions_index, records


def test_the_index_has_each_record() -> None:
    assert (FOLDER.parent / "decisions.md").read_text(encoding="utf-8") == decisions_index(), (
        "write it anew: python -m tests.packaging.decisions_index > docs/decisions.md"
    )


def test_no_two_records_have_one_number() -> None:
    numbers = [each.number for each in records()]
    assert len(numbers) > 200
    assert len(set(numbers)) == len(numbers)

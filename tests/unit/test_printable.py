"""Texts of strangers on a terminal and in JSON."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from pinlater.printable import json_text, printable, printable_lines

HARMFUL = ["\n", "\r", "\t", "\x00", "\x07", "\x08", "\x1b[2J", "\x7f", "\x85", "\x9b31m", "\u200b", "\u200e", "\u202a",
           "\u202e", "\u2066", "\u2069", "\u2028", "\u2029", "\ufeff", "\ud800", "\U000e0041"]  # fmt: skip
NO_MORE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_no_character_that_does_something_is_left() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    for text in (printable(everything), printable_lines(everything).replace("\n", "").replace("\t", "")):
        assert not NO_MORE & set(map(unicodedata.category, text))
    assert not NO_MORE & set(map(unicodedata.category, json_text(everything)))


def test_what_people_write_stays_as_it_is() -> None:
    text = "Grüße an 東京, עברית und 👍 \\n"
    assert printable(text) == printable_lines(text) == text
    assert json_text(text) == json.dumps(text, ensure_ascii=False)


@pytest.mark.parametrize("harmful", HARMFUL)
def test_json_is_equal_when_it_is_parsed(harmful: str) -> None:
    value = {f"k{harmful}": [harmful, {"é": f"\\{harmful}\\"}], "\\u202e": None}
    for indent in (None, 1):
        text = json_text(value, indent=indent)
        assert json.loads(text) == value
        assert text.replace("\n", "").isprintable()


def test_lines_and_tabs_stay_where_they_are_meant() -> None:
    assert printable_lines("a\r\n\tb\rc\n", "  ") == "  a\n  \tb\\rc\n  "

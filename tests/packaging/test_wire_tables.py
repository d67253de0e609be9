"""The tables of docs/wire.md are those of the interface file."""

from __future__ import annotations

import re

import pytest

from pinlater.wire.interface import SIGNATURES
from tests.packaging.wire_tables import INTERFACE, PAGE, with_tables

FILE = INTERFACE.read_text(encoding="utf-8")


def test_the_page_has_the_tables_of_the_interface_file() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page, FILE) == page, "write them anew: python -m tests.packaging.wire_tables"


def test_no_line_of_the_interface_file_is_lost() -> None:
    """Each field, value and method that Thrift's own parser would see is in a table."""
    page = PAGE.read_text(encoding="utf-8")
    code = re.sub(r"/\*\*.*?\*/", "", FILE, flags=re.DOTALL)
    fields = re.findall(r"(\d+): (required|optional) (.+?),\n", code)
    values = re.findall(r"^  (\w+) = (\d+),$", code, re.MULTILINE)
    assert (len(fields), len(values)) > (500, 80)
    assert [each for each in fields if f"`{each[0]} {each[1][0]} {each[2]}`" not in page] == []
    assert [each for each in values if f"`{each[0]}` {each[1]}" not in page] == []
    assert [name for name in SIGNATURES if not re.search(rf"^\| {name}( \(ours\))? \|", page, re.MULTILINE)] == []


def test_a_field_of_a_classic_struct_gets_a_row_with_its_comment_beside_those_that_are_there() -> None:
    interface = """
/** Said of the struct. */
struct PinLaterJob {
  1: required string a,
  /** Said of b | c, or of x*y and * alone,
   * on two lines. */
  100: optional i32 b = 0,
  101: optional i64 c,
}
"""
    page = (
        "<!-- structs: PinLaterJob -->\n<!-- end -->\n<!-- fields -->\n"
        "| PinLaterJob | `101 o i32 old` · `102 o i32 gone` | as *written* |\n<!-- end -->\n"
    )
    written = with_tables(page, interface)
    assert "| PinLaterJob | Said of the struct.<br>`1 r string a` |\n<!-- end -->" in written
    assert (
        "| PinLaterJob | `101 o i64 c` | as *written* |\n"
        "| PinLaterJob | `100 o i32 b = 0` | Said of b \\| c, or of x*y and * alone, on two lines. |" in written
    )
    with pytest.raises(ValueError, match="each struct is to stand in one mark"):
        with_tables(page.replace("structs: PinLaterJob", "structs: Other"), interface)

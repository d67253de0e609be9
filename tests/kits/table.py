"""The table of docs/languages.md: what each kit does, by the last run of the trial."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.kits.columns import COLUMNS, ROOT, Column
from tests.kits.trial import all_rows

PAGE = ROOT / "docs" / "languages.md"
BEGIN, END = "<!-- the last trial -->", "<!-- end of the last trial -->"
YES, NO, NOT_RUN = "yes", "**no**", "not run"
_CASE = re.compile(r"test_(?:long_)?row\[(\w+)-(.+)\]")

States = Mapping[tuple[str, str], str]
"""By column and row."""


def columns() -> Sequence[Column]:
    """Those whose programs this checkout has."""
    return [each for each in COLUMNS.values() if each.is_there]


def states_of(report: Path) -> States:
    """What came of each row, by the report of pytest."""
    found = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = _CASE.fullmatch(case.get("name", ""))
        if name is not None:
            wrong = [each for each in case if each.tag in {"failure", "error"}]
            skipped = [each for each in case if each.tag == "skipped"]
            found[name[1], name[2]] = NO if wrong else NOT_RUN if skipped else YES
    return found


def table(states: States, day: str) -> str:
    """Each row with its sentence and what came of it in each column."""
    chosen = columns()
    speaks = {"thrift": "Thrift", "http": "HTTP"}
    head = ["row", "what a kit does", *(f"{each.title}, {speaks[each.speaks]}" for each in chosen)]
    rows = [head, ["---"] * len(head)]
    rows += [
        [f"`{row.name}`", row.says, *(states.get((each.name, row.name), NOT_RUN) for each in chosen)]
        for row in all_rows()
    ]
    lines = [f"{day}, {len(all_rows())} rows:", "", *(f"| {' | '.join(each)} |" for each in rows)]
    return "\n".join(lines)


def page_with(page: str, text: str) -> str:
    """The page with this text between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def cells(page: str) -> dict[str, list[str]]:
    """By row, what a page says of each column; "row" has the columns."""
    text = page.partition(BEGIN)[2].partition(END)[0]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {name.strip("`"): states for name, _says, *states in lines if name != "---"}

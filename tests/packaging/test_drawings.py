"""The drawings are those of their descriptions, can be read everywhere, and stand in a page."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.packaging.conftest import ROOT
from tests.packaging.drawings import FOLDER, WIDTH, drawing

SVG = "{http://www.w3.org/2000/svg}"
NAMES = sorted({path.stem for path in FOLDER.iterdir()})


@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_is_that_of_its_description_and_stands_in_a_page(name: str) -> None:
    written = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert written == drawing((FOLDER / f"{name}.txt").read_text(encoding="utf-8")), (
        "draw it anew: python -m tests.packaging.drawings"
    )
    link = re.compile(rf"!\[[^\]]{{40,}}\]\(images/drawings/{name}\.svg\)")  # the text is for who does not see it
    assert [page for page in ROOT.glob("docs/*.md") if link.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("name", NAMES)
def test_no_text_of_a_drawing_leaves_it(name: str) -> None:
    for text in ElementTree.parse(FOLDER / f"{name}.svg").iter(f"{SVG}text"):
        width = len(text.text or "") * 6.5
        before = {"start": 0, "middle": 0.5, "end": 1}[text.attrib["text-anchor"]] * width
        left = float(text.attrib["x"]) - before
        assert 0 < left < left + width < WIDTH, text.text


def test_a_box_has_all_cells_of_its_name_and_arrows_go_from_edge_to_edge() -> None:
    root = ElementTree.fromstring(drawing("T\n\na a\nb c\n\na: One / two\na -> c: x\nb ~> a\nb -> c"))
    assert [each.text for each in root.iter(f"{SVG}text")] == ["x", "One", "two", "b", "c"]
    assert [path.attrib["d"] for path in root.iter(f"{SVG}path") if "marker-end" in path.attrib] == [
        "M377 66L377 126",
        "M103 126L103 66",
        "M190 151L290 151",
    ]


@pytest.mark.parametrize("line", ["a => b", "a -> z: to nowhere", "z: nothing"])
def test_a_sentence_that_cannot_be_drawn_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"neither a box nor an arrow|not in the grid: z"):
        drawing(f"T\n\na b\n\n{line}")

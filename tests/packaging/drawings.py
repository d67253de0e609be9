"""The drawings of the pages: docs/images/drawings/NAME.svg from NAME.txt beside it.

`python -m tests.packaging.drawings` draws them anew; a test compares them. A description has a title, a grid and
sentences. The grid says where boxes stand, as the areas of a grid in CSS do: a word for each cell, `.` for an empty
one, and a box has all cells of its name. `name: text` is what a box says, where that is not its name; `/` begins a new
line, and a mark before the colon its kind: `!` is broken, `~` is at an end or not there. `a -> b: text` is an arrow,
`a ~> b: text` one that does not go now.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[2] / "docs" / "images" / "drawings"
WIDTH, ROW, BOX_HEIGHT, LINE, LETTER, MARGIN = 480, 110, 50, 15, 7, 16
"""As wide as a phone can show with letters that can be read."""

_BOX = re.compile(r"(?P<name>\w[\w-]*)(?: (?P<kind>[!~]))?: (?P<text>.+)")
_ARROW = re.compile(r"(?P<start>[\w-]+) (?P<kind>[-~])> (?P<end>[\w-]+)(?:: (?P<text>.+))?")
_STYLE = """
.ground { fill: #ffffff; stroke: #d4d8e0 } text { fill: #1d2433; font: 13px system-ui, sans-serif }
.box { fill: #e8ecfb; stroke: #4051b5 } .broken { fill: #fdecea; stroke: #c62828 } .gone { fill: none; stroke: #75809a }
.gone, .off { stroke-dasharray: 4 3 } .arrow { stroke: #4b566e; fill: none } .head { fill: #4b566e }
.label { font-size: 12px; fill: #4b566e; stroke: #ffffff; stroke-width: 4px; paint-order: stroke }
@media (prefers-color-scheme: dark) {
.ground { fill: #1e2129; stroke: #3a4050 } text { fill: #e6e9f2 } .box { fill: #2a3157; stroke: #8c9eff }
.broken { fill: #4a2024; stroke: #ff8a80 } .gone { fill: none; stroke: #8b95ab }
.arrow { stroke: #aab3c8 } .head { fill: #aab3c8 } .label { fill: #c3cada; stroke: #1e2129 }
}"""
"""It has a ground of its own: a page can be dark where the reader's system is light."""


class _Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: _Box) -> tuple[tuple[float, float], tuple[float, float]]:
        """Where both are, from left to right and from top to bottom. Where they are not, it ends before it begins."""
        return (
            (max(self.left, other.left), min(self.right, other.right)),
            (max(self.top, other.top), min(self.bottom, other.bottom)),
        )


def drawing(description: str) -> str:
    """As SVG."""
    title, grid, sentences = description.strip().split("\n\n")
    rows = [line.split() for line in grid.splitlines()]
    boxes = {name: _box(name, rows) for row in rows for name in row if name != "."}
    texts = {name: (name, "") for name in boxes}
    arrows = []
    for line in sentences.splitlines():
        if arrow := _ARROW.fullmatch(line):
            arrows.append(arrow)
        elif box := _BOX.fullmatch(line):
            texts[box["name"]] = box["text"], box["kind"] or ""
        else:
            raise ValueError(f"neither a box nor an arrow: {line}")
    if unknown := (texts.keys() | {end for arrow in arrows for end in arrow.group("start", "end")}) - boxes.keys():
        raise ValueError(f"not in the grid: {', '.join(sorted(unknown))}")
    height = (len(rows) - 1) * ROW + BOX_HEIGHT + 2 * MARGIN
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
            f' role="img">\n<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n'
            '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"'
            ' orient="auto"><path class="head" d="M0 0L8 4L0 8z"/></marker></defs>\n'
            f'<rect class="ground" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
            *_arrows(arrows, boxes),
            *(_drawn(boxes[name], *texts[name]) for name in boxes),
            "</svg>\n",
        )
    )


def _box(name: str, rows: list[list[str]]) -> _Box:
    """Its cells, less what is free between two columns: more where there are few, for what arrows say."""
    cells = [(row, column) for row, names in enumerate(rows) for column, each in enumerate(names) if each == name]
    columns = max(map(len, rows))
    gap = {1: 0, 2: 100, 3: 56}.get(columns, 24)
    step = (WIDTH - 2 * MARGIN + gap) / columns
    (first, left), (last, right) = min(cells), max(cells)
    return _Box(
        MARGIN + left * step,
        MARGIN + first * ROW,
        MARGIN + (right + 1) * step - gap,
        MARGIN + last * ROW + BOX_HEIGHT,
    )


def _drawn(box: _Box, text: str, kind: str) -> str:
    style = {"!": "box broken", "~": "gone", "": "box"}[kind]
    return (
        f'<rect class="{style}" x="{box.left:g}" y="{box.top:g}" width="{box.right - box.left:g}"'
        f' height="{box.bottom - box.top:g}" rx="6"/>\n'
        + _text((box.left + box.right) / 2, (box.top + box.bottom) / 2, text, "middle", "")
    )


def _arrows(arrows: list[re.Match[str]], boxes: Mapping[str, _Box]) -> Iterator[str]:
    """Those between two boxes stand side by side, their texts outside."""
    between: dict[frozenset[str], list[re.Match[str]]] = {}
    for arrow in arrows:
        between.setdefault(frozenset(arrow.group("start", "end")), []).append(arrow)
    for group in between.values():
        for place, arrow in enumerate(group, 1):
            part = place / (len(group) + 1)
            start, end = boxes[arrow["start"]], boxes[arrow["end"]]
            (left, right), (top, bottom) = start.overlap(end)
            is_first = place == 1 and len(group) > 1
            if left < right:
                x = left + (right - left) * part
                y = (bottom, top) if start.top < end.top else (top, bottom)
                points = (x, y[0], x, y[1])
                is_left = is_first or x + max(map(len, (arrow["text"] or "").split(" / "))) * LETTER > WIDTH
                label = (x - 7, sum(y) / 2, "end") if is_left else (x + 7, sum(y) / 2, "start")
            elif top < bottom:
                y_of = top + (bottom - top) * part
                points = (right, y_of, left, y_of) if start.left < end.left else (left, y_of, right, y_of)
                above = 10 + (arrow["text"] or "").count(" / ") * LINE / 2
                label = ((left + right) / 2, y_of - above if place == 1 else y_of + above, "middle")
            else:
                is_down = start.top < end.top
                points = (
                    (start.left + start.right) / 2,
                    start.bottom if is_down else start.top,
                    (end.left + end.right) / 2,
                    end.top if is_down else end.bottom,
                )
                label = ((points[0] + points[2]) / 2, (points[1] + points[3]) / 2, "middle")
            style = "arrow off" if arrow["kind"] == "~" else "arrow"
            x1, y1, x2, y2 = (f"{point:.4g}" for point in points)
            yield f'<path class="{style}" marker-end="url(#head)" d="M{x1} {y1}L{x2} {y2}"/>'
            if arrow["text"]:
                yield _text(*label[:2], arrow["text"], label[2], "label")


def _text(x: float, y: float, text: str, anchor: str, style: str) -> str:
    """Its lines, with their middle at `y`."""
    lines = text.split(" / ")
    first = y - (len(lines) - 1) * LINE / 2 + 4
    kind = f' class="{style}"' if style else ""
    return "\n".join(
        f'<text{kind} x="{x:.4g}" y="{first + number * LINE:.4g}" text-anchor="{anchor}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )


if __name__ == "__main__":
    for source in sorted(FOLDER.glob("*.txt")):
        source.with_suffix(".svg").write_text(drawing(source.read_text(encoding="utf-8")), encoding="utf-8")

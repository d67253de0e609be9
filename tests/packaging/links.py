"""Links of the documents into the code, by the names of what they show.

A link [`Class.method`](../path.py#L12) leads to the line where that name is defined, in Python or Lua.
`python -m tests.packaging.links` writes the line numbers anew; a test compares them.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "docs" / "tour.md", ROOT / "docs" / "where.md")
_LINK = re.compile(r"\[`(?P<name>[\w.]+)`\]\((?P<path>\.\./[\w./-]+\.(?:py|lua))(?:#L\d+)?\)")


class NotDefined(Exception):
    """A page names something that its file does not define."""


def with_lines(page: Path) -> str:
    """The text of the page, its links with the lines as they are now. NotDefined."""

    def link(found: re.Match[str]) -> str:
        name, path = found["name"], found["path"]
        return f"[`{name}`]({path}#L{_line_of(name, (page.parent / path).resolve())})"

    return _LINK.sub(link, page.read_text(encoding="utf-8"))


def _line_of(name: str, path: Path) -> int:
    if not path.is_file():
        raise NotDefined(f"there is no {path.relative_to(ROOT)}")
    source = path.read_text(encoding="utf-8")
    line = _line_in_lua(name, source) if path.suffix == ".lua" else _line_in_python(name, source)
    if line is None:
        raise NotDefined(f"{path.relative_to(ROOT)} does not define {name}")
    return line


def _line_in_python(name: str, source: str) -> int | None:
    body: list[ast.stmt] = ast.parse(source).body
    line = None
    for part in name.split("."):
        node = next((node for node in body if part in _names_of(node)), None)
        if node is None:
            return None
        line, body = node.lineno, getattr(node, "body", [])
    return line


def _names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _line_in_lua(name: str, source: str) -> int | None:
    definition = re.compile(rf"^local (?:function )?{re.escape(name)}\b")
    return next((number for number, line in enumerate(source.split("\n"), 1) if definition.match(line)), None)


if __name__ == "__main__":
    for each in PAGES:
        each.write_text(with_lines(each), encoding="utf-8")

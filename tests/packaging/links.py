"""Links of the documents into the code, by the names of what they show.

A link [`Class.method`](../path.py) leads to the file that defines that name, in Python or Lua. It has no line number:
that would be wrong after the next change above it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_LINK = re.compile(r"\[`(?P<name>[\w.]+)`\]\((?P<path>[\w./-]+\.(?:py|lua))\)")
_LINE = re.compile(r"\]\(([^)\s]+\.\w+#L\d+[^)]*)\)")


class CodeLink(NamedTuple):
    """A name, and the file that is to define it."""

    name: str
    path: Path


def code_links(page: Path) -> list[CodeLink]:
    found = _LINK.finditer(page.read_text(encoding="utf-8"))
    return [CodeLink(each["name"], (page.parent / each["path"]).resolve()) for each in found]


def mistakes(page: Path) -> Iterator[str]:
    """Of the links of a page into the code: names that their files do not define, and line numbers."""
    for line in _LINE.findall(page.read_text(encoding="utf-8")):
        yield f"{line} has a line number: name what is there"
    for link in code_links(page):
        if not link.path.is_file():
            yield f"there is no {link.path.name} for {link.name}"
        elif not _defines(link.path, link.name):
            yield f"{link.path.name} does not define {link.name}"


def _defines(path: Path, name: str) -> bool:
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".lua":
        return re.search(rf"^local (?:function )?{re.escape(name)}\b", source, re.MULTILINE) is not None
    body: list[ast.stmt] = ast.parse(source).body
    for part in name.split("."):
        node = next((node for node in body if part in _names_of(node)), None)
        if node is None:
            return False
        body = getattr(node, "body", [])
    return True


def _names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]

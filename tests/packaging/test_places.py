"""How many places one thing is said in: a field of a job, a call, what the parts of a service are given.

A number that grows fails: the new thing wants to follow from what stands. One that shrinks fails too, until it is
written down here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "thrift", ROOT / "pinlater", ROOT / "workers" / "pinlater_workers")
SUFFIXES = {".py", ".sql", ".lua", ".html", ".thrift"}

FILES = {
    "cancel_requested_by": (11, "the interface, the model, three kinds of store, and what people are shown"),
    "finished_at_ms": (27, "the same, where jobs are also found, sorted and charted by it; the checker of histories"),
    "getTokens": (9, "the interface, Api, the service, its row of methods, the client twice, HTTP, the command"),
    "retry_failed or retryFailedJobs": (19, "the same, three kinds of store, and the checker of histories"),
}
"""Files that name a field of a job or a call, in the spelling of Python or of the wire, and which these are."""

ARGUMENTS = 58
"""Of the constructors that `Service` calls for its parts, all together."""


def spellings(name: str) -> re.Pattern[str]:
    """`finished_at_ms` is also finishedAtMs, finishedAtMillis and finishedAt; `getTokens` also get_tokens."""
    snake = re.sub(r"(?<=[a-z])([A-Z])", lambda found: "_" + found[1].lower(), name)
    first, *others = snake.split("_")
    camel = first + "".join(word.title() for word in others)
    forms = {snake, camel, re.sub("Ms$", "Millis", camel), camel.removesuffix("Ms"), snake.removesuffix("_ms")}
    return re.compile(r"\b(" + "|".join(sorted(forms)) + r")\b")


def files_that_name(name: str) -> list[str]:
    patterns = [spellings(each) for each in name.split(" or ")]
    found = []
    for path in (path for source in SOURCES for path in source.rglob("*") if path.suffix in SUFFIXES):
        text = path.read_text(encoding="utf-8")
        if any(pattern.search(text) for pattern in patterns):
            found.append(str(path.relative_to(ROOT)))
    return sorted(found)


@pytest.mark.parametrize("name", FILES)
def test_a_thing_is_named_in_few_files(name: str) -> None:
    found = files_that_name(name)
    assert len(found) == FILES[name][0], found


def parts_of_the_service() -> Iterator[ast.Call]:
    """The calls in Service.__init__ of classes of its own package."""
    tree = ast.parse((ROOT / "pinlater" / "service" / "service.py").read_text(encoding="utf-8"))
    parts = {
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pinlater.service.")
        for alias in node.names
        if alias.name[0].isupper()
    }
    (service,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Service")
    (made,) = (node for node in service.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    for node in ast.walk(made):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in parts:
            yield node


def test_the_parts_of_a_service_are_given_a_context() -> None:
    given = {part.func.id: len(part.args) + len(part.keywords) for part in parts_of_the_service()}  # type: ignore[attr-defined]
    assert sum(given.values()) - given["ServiceContext"] == ARGUMENTS, given

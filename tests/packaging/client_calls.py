"""The calls of Client, for programs without asyncio, from those of AsyncClient: their names, arguments and docstrings.

`python -m tests.packaging.client_calls` writes the files anew; a test compares them.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "pinlater" / "client"
FORMATS = ("check --quiet --select I,F401 --fix", "format --quiet")
"""What ruff does to a file that was put together from parts of another."""


@dataclass(frozen=True)
class Part:
    """A part of Client: the class `name` in the module `file` has the calls of the class `source`."""

    source_file: str
    source: str
    file: str
    name: str
    about: str

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.file}.py"

    def text(self) -> str:
        source = (FOLDER / f"{self.source_file}.py").read_text(encoding="utf-8")
        tree = ast.parse(source)
        lines = source.splitlines()
        found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == self.source)
        calls = list(_calls(found))
        text = "\n\n".join(
            [
                f'"""{self.name}: {self.about}.\n\nMade by `python -m tests.packaging.client_calls` from '
                f'{self.source_file}.py: change it there."""',
                "from __future__ import annotations",
                *_imports(tree),
                f'class {self.name}:\n    """A part of Client."""\n\n    _background: BackgroundClient',
                *(_blocking(each, lines, _is_overloaded(each, calls)) for each in calls),
            ]
        )
        for command in FORMATS:
            ruff = [sys.executable, "-m", "ruff", *command.split(), "--stdin-filename", str(self.path), "-"]
            text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, timeout=300).stdout
        return text


PARTS = (
    Part(
        "async_client", "AsyncClient", "job_life_client", "JobLifeClient", "the calls of Client that a job's life takes"
    ),
    Part("queue_calls", "QueueCalls", "queue_client", "QueueClient", "the calls of Client about queues"),
    Part("job_calls", "JobCalls", "job_client", "JobClient", "the calls of Client about jobs by name"),
    Part("cluster_calls", "ClusterCalls", "cluster_client", "ClusterClient", "the calls of Client for operators"),
    Part("flow_client_calls", "FlowClientCalls", "flow_client", "FlowClient", "the calls of Client about flows"),
)


def _calls(found: ast.ClassDef) -> Iterator[ast.AsyncFunctionDef]:
    """Its public ones. A client is closed in its own way."""
    for node in found.body:
        if isinstance(node, ast.AsyncFunctionDef) and not node.name.startswith("_") and node.name != "close":
            yield node


def _is_stub(call: ast.AsyncFunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "overload" for each in call.decorator_list)


def _is_overloaded(call: ast.AsyncFunctionDef, calls: list[ast.AsyncFunctionDef]) -> bool:
    return any(each.name == call.name and _is_stub(each) for each in calls)


def _imports(tree: ast.Module) -> Iterator[str]:
    """Those of the source, and what calls of another thread take; ruff drops what is not used."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            yield ast.unparse(node)
    yield "from collections.abc import Callable, Coroutine, Iterator"
    yield "from typing import Any, cast"
    yield "from pinlater.client.async_client import AsyncClient"
    yield "from pinlater.client.background import BackgroundClient"


def _blocking(call: ast.AsyncFunctionDef, lines: list[str], is_overloaded: bool) -> str:
    """The same call, as it blocks."""
    first = call.decorator_list[0] if _is_stub(call) else call
    body = call.body[0]
    signature = "\n".join(lines[first.lineno - 1 : body.lineno - 1]).replace("async def", "def", 1)
    if _is_stub(call):
        last = lines[body.lineno - 1].replace("async def", "def", 1)
        return f"{signature}\n{last}"
    docstring = "\n".join(lines[body.lineno - 1 : body.end_lineno])
    method = f"AsyncClient.{call.name}"
    assert call.returns is not None
    gives = ast.unparse(call.returns)
    if gives.startswith("AsyncIterator"):
        signature = signature.replace("AsyncIterator", "Iterator")
        return f"{signature}\n{docstring}\n        return self._background.iterate({method}, {_arguments(call)})"
    if is_overloaded:  # which of the kinds it is has been decided by then
        method = f'cast("Callable[..., Coroutine[Any, Any, {gives}]]", {method})'  # quoted: to make a type takes time
    returns = "" if gives == "None" else "return "
    return f"{signature}\n{docstring}\n        {returns}self._background.run({method}, {_arguments(call)})"


def _arguments(call: ast.AsyncFunctionDef) -> str:
    """As they are handed on, each in its place or by its name."""
    given = call.args
    placed = [each.arg for each in (*given.posonlyargs, *given.args) if each.arg != "self"]
    starred = [] if given.vararg is None else [f"*{given.vararg.arg}"]
    return ", ".join([*placed, *starred, *(f"{each.arg}={each.arg}" for each in given.kwonlyargs)])


if __name__ == "__main__":
    for part in PARTS:
        part.path.write_text(part.text(), encoding="utf-8")
